"""Device activity: traces of PyTorch's and JAX's profilers, their clocks, and merging into recordings."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl
from tests.traced import END, MONOTONIC, PROCESS, WALL, described, recorded
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.scope.analysis.library_transitions import transitions_text
from timerl_nb.scope.analysis.time_breakdown import Cell, Used, overlap_of
from timerl_nb.scope.device_activity.clock_alignment import Anchor, Joint
from timerl_nb.scope.device_activity.device_operations import CALLED, RAN
from timerl_nb.scope.device_activity.kineto import kineto
from timerl_nb.scope.device_activity.trace_data import read_trace, write_trace
from timerl_nb.scope.device_activity.xplane import read_profile, xplane
from timerl_nb.scope.storage.event_format import NAME_BITS, Kind

DATASETS = Path(__file__).parents[3] / "datasets"
MADE = DATASETS / "kineto-made.json"
GPU_PLANES = """
planes { name: "Task Environment"
  stat_metadata { key: 1 value { id: 1 name: "profile_start_time" } }
  stat_metadata { key: 2 value { id: 2 name: "profile_stop_time" } }
  stats { metadata_id: 1 uint64_value: 1700000000000050000 }
  stats { metadata_id: 2 uint64_value: 1700000000000350000 } }
planes { name: "/device:GPU:0"
  stat_metadata { key: 1 value { id: 1 name: "correlation_id" } }
  stat_metadata { key: 2 value { id: 2 name: "memcpy_details" } }
  event_metadata { key: 1 value { id: 1 name: "gemm_fusion" } }
  event_metadata { key: 2 value { id: 2 name: "MemcpyH2D" } }
  event_metadata { key: 3 value { id: 3 name: "jit_step" } }
  lines { id: 13 name: "Stream #13(Compute,MemcpyH2D)"
    events { metadata_id: 1 offset_ps: 74000000 duration_ps: 60000000
             stats { metadata_id: 1 int64_value: 7 } }
    events { metadata_id: 2 offset_ps: 134000000 duration_ps: 16000000
             stats { metadata_id: 1 int64_value: 8 } stats { metadata_id: 2 str_value: "size:4" } } }
  lines { id: 9 name: "XLA Modules" events { metadata_id: 3 offset_ps: 0 duration_ps: 200000000 } } }
planes { name: "/host:CPU"
  stat_metadata { key: 1 value { id: 1 name: "correlation_id" } }
  event_metadata { key: 1 value { id: 1 name: "cuLaunchKernel" } }
  event_metadata { key: 2 value { id: 2 name: "timerl mark 0 of thread 4242" } }
  event_metadata { key: 3 value { id: 3 name: "PjitFunction(step)" } }
  event_metadata { key: 4 value { id: 4 name: "cuMemcpyHtoDAsync" } }
  lines { id: 1 name: "python"
    events { metadata_id: 2 offset_ps: 1000000 duration_ps: 2000000 }
    events { metadata_id: 3 offset_ps: 60000000 duration_ps: 50000000 }
    events { metadata_id: 1 offset_ps: 65000000 duration_ps: 10000000
             stats { metadata_id: 1 int64_value: 7 } } }
  lines { id: 2 name: "python"
    events { metadata_id: 4 offset_ps: 80000000 duration_ps: 8000000
             stats { metadata_id: 1 int64_value: 8 } } } }
"""


@pytest.mark.parametrize("name", ["kineto-cpu.json", "kineto-made.json", "jax-cpu.xplane.pb"])
def test_what_is_read_of_a_trace(name: str, golden: Callable[[str, str], None]) -> None:
    read = xplane if name.endswith(".pb") else kineto
    golden(f"trace.{name.partition('.')[0]}", described(read(DATASETS / name)))


def test_planes_of_a_gpu(golden: Callable[[str, str], None]) -> None:
    profile = pytest.importorskip("jax").profiler.ProfileData.from_text_proto(GPU_PLANES)
    golden("trace.xplane-made", described(read_profile(profile)))


def test_a_trace_is_added_to_the_recording_of_its_run(
    tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    folder = recorded(tmp_path / "r")
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(MADE.read_bytes()))
    window = trl.scope.add_trace(folder, packed)
    assert (window.begin - MONOTONIC, window.end - MONOTONIC) == (50_000, 350_000)
    recording = trl.scope.read(folder)
    (lane,) = recording.lanes
    shown = [str(recording.devices), str(overlap_of(recording))]
    golden("scope.devices", "\n\n".join([*shown, str(overlap_of(recording, by="launch"))]))
    calls = [
        (Kind(kind).name, (ts - MONOTONIC) / 1000, recording.names[top & ((1 << NAME_BITS) - 1)])
        for ts, top, kind, _ in lane.edges.tolist()
        if kind <= Kind.CALL_EXIT
    ]
    assert calls == [
        ("CALL_ENTER", 110, "torch.linear"),
        ("CALL_ENTER", 115, "cudaLaunchKernel"),  # and the driver's call inside is separate
        ("CALL_EXIT", 125, "torch.linear"),
        ("CALL_ENTER", 130, "cudaMemcpyAsync"),
        ("CALL_EXIT", 138, "torch.linear"),
        ("CALL_ENTER", 140.5, "cudaMemsetAsync"),
        ("CALL_EXIT", 144.75, "torch.linear"),
        ("CALL_EXIT", 150, ""),  # a call cannot extend across this
        ("CALL_ENTER", 160, "torch.cuda.synchronize"),  # inside this, waiting is the same
        ("CALL_EXIT", 300, ""),
    ]
    devices = recording.devices
    assert devices.process.tolist() == [PROCESS] * 5
    assert ((devices.launched - MONOTONIC) / 1000)[devices.lane == 0].tolist() == [
        115,
        145,
        130,
        140.5,
    ]
    assert devices.launched[devices.lane < 0].tolist() == [-1]
    backend = Cell("", "train", "backend", Used.GPU)  # while the thread waited
    assert overlap_of(recording, by="launch").cells[backend] == 42_500
    # merging the same trace again changes no track
    trl.scope.add_trace(folder, packed)
    assert trl.scope.read(folder).lanes[0].edges.tobytes() == lane.edges.tobytes()
    assert overlap_of(trl.scope.read(folder)) == overlap_of(recording)


def test_a_clock_that_drifts_is_set_right(tmp_path: Path) -> None:
    joint = Joint(
        Anchor(1000, 50, 3), Anchor(3000, 2550, 7)
    )  # our clock advanced by 2,500 meanwhile
    assert (joint.drift, joint.width) == (-500, 7)
    assert joint.to_our_clock(np.array([1000, 1400, 3000, 3400])).tolist() == [50, 550, 2550, 3050]
    alone = Joint(Anchor(1000, 50, 3))
    assert alone.drift is None and alone.to_our_clock(np.array([1700])).tolist() == [750]
    assert Anchor.from_readings(100, 7, 121) == Anchor(7, 110, 11)
    assert Anchor.from_readings(100, 7, 121, took=15) == Anchor(7, 103, 3)

    folder = recorded(tmp_path / "r", drift=40_000)
    window = trl.scope.add_trace(folder, MADE)
    assert window.drift == 40_000
    assert (window.begin - MONOTONIC, window.end - MONOTONIC) == (45_455, 318_182)
    assert "drifted 40,000 ns" in str(trl.scope.read(folder).devices)
    killed = recorded(tmp_path / "k", end=False)
    assert trl.scope.add_trace(killed, MADE).drift is None
    assert "of unknown drift" in str(trl.scope.read(killed).devices)


def test_a_trace_without_devices_says_that_they_are_absent(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r")
    about = json.loads(MADE.read_text())
    about["traceEvents"] = [
        one for one in about["traceEvents"] if one.get("cat") in ("Trace", "cpu_op")
    ]
    (tmp_path / "t.json").write_text(json.dumps(about | {"deviceProperties": []}))
    trl.scope.add_trace(folder, tmp_path / "t.json")
    recording = trl.scope.read(folder)
    assert str(recording.devices).splitlines() == [
        "devices: no data",
        f"  process {PROCESS}, PyTorch's profiler: the trace has no device",
    ]
    assert {cell.used for cell in overlap_of(recording).cells} == {Used.UNTRACED}
    assert overlap_of(recording).total == 1000 * END
    # an idle device counts as zero
    (tmp_path / "t.json").write_text(json.dumps(about))
    trl.scope.add_trace(folder, tmp_path / "t.json")
    used = overlap_of(trl.scope.read(folder)).by("used")
    assert used == {(Used.CPU,): 300_000, (Used.UNTRACED,): 100_000}


def test_what_lies_beside_lanes_is_checked(tmp_path: Path) -> None:
    trace = kineto(MADE).to_our_clock(Joint(Anchor(WALL, MONOTONIC, 0)))
    path = write_trace(tmp_path, trace)
    assert path.name == f"{PROCESS}-0.devices"
    found = read_trace(path)
    assert found.window == trace.window and found.names == trace.names
    assert found.ran.tobytes() == trace.ran.tobytes()
    assert found.called.tobytes() == trace.called.tobytes()
    whole = path.read_bytes()
    for wrong in (b"", whole[:-40], b"PK\x03\x04", whole[:200] + b"x" * 50 + whole[250:]):
        path.write_bytes(wrong)
        with pytest.raises(ExecutionError, match="is not a valid device trace"):
            read_trace(path)
    short = replace(trace, names=trace.names[:1])
    with pytest.raises(ExecutionError, match="is not a valid device trace"):
        read_trace(write_trace(tmp_path, short))
    none = replace(trace, ran=np.zeros(0, RAN), called=np.zeros(0, CALLED))
    assert len(read_trace(write_trace(tmp_path, none)).ran) == 0


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        ("{", "t.json", "is not a trace of PyTorch's profiler"),
        ("{}", "t.json", "is not a trace of PyTorch's profiler"),
        ('{"traceEvents": []}', "t.json", "no time span and no device events"),
        ("x", "t.xplane.pb", "is not a trace of JAX's profiler"),
        ("x", "t.csv", "is not a known kind of trace"),
    ],
)
def test_what_is_no_trace_is_refused(content: str, name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises((ExecutionError, OptionError), match=said):
        trl.scope.add_trace(recorded(tmp_path / "r"), tmp_path / name)


def test_what_was_read_of_a_recording_of_ours(golden: Callable[[str, str], None]) -> None:
    recording = trl.scope.read(DATASETS / "ours.scope.zip")
    shown = [trl.scope.processes(recording), recording.table(), transitions_text(recording)]
    chain = trl.scope.critical_chain(recording, "collect")
    edges = [f"lane of {len(lane.edges)} edges: {lane.name or '-'}" for lane in recording.lanes]
    golden("scope.ours", "\n\n".join([*map(str, (*shown, chain)), "\n".join(edges)]))


def test_traces_of_other_runs_are_refused(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r")
    with pytest.raises(OptionError, match="process 7 was not recorded") as found:
        trl.scope.add_trace(folder, MADE, process=7)
    assert str(PROCESS) in found.value.hint
    about = json.loads(MADE.read_text())
    (tmp_path / "t.json").write_text(json.dumps(about | {"baseTimeNanoseconds": WALL - 10**9}))
    with pytest.raises(ExecutionError, match="is outside of the recording"):
        trl.scope.add_trace(folder, tmp_path / "t.json")
    assert not [*folder.glob("*.devices")]
