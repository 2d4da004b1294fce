"""Recordings as Chrome traces, with round trips."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.traced import recorded
from timerl_nb.base.errors import ExecutionError, OptionError, TimeRLWarning
from timerl_nb.cli import main
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.stack_frames import frames
from timerl_nb.scope.analysis.thread_timelines import Lane, Process
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind, Library

MADE = Path(__file__).parents[3] / "datasets" / "kineto-made.json"
NAMES = ("", "collect", "act", "matmul")
START = 1_000
Row = tuple[int, Kind, int, int]


def lane(*rows: Row, end: int, thread: int = 8) -> Lane:
    """Return events from (ts since the start, kind, top, depth)."""
    edges = [(START + ts, top, kind, depth) for ts, kind, top, depth in rows]
    return Lane(7, thread, "main", np.array(edges, EDGE), START + end)


CALL = Library.BACKEND << NAME_BITS | 3
LANE = lane(
    (0, Kind.PHASE_ENTER, 1, 1),
    (10, Kind.OPERATION_ENTER, 2, 1),
    (10, Kind.CALL_ENTER, CALL, 1),
    (12, Kind.CALL_ENTER, CALL, 2),
    (15, Kind.CALL_EXIT, CALL, 1),
    (40, Kind.CALL_EXIT, 0, 0),
    (50, Kind.OPERATION_EXIT, 0, 0),
    (60, Kind.OFF, 0, 0),
    (70, Kind.ON, 0, 0),
    (80, Kind.OPERATION_ENTER, 2, 1),
    end=100,
)
ONE = Recording((LANE,), NAMES, {"act": (3, 4)}, (Process(7, 1, 0, "train.py", START, None),))
SLICES = [
    ("collect", "phase", 0, 100),
    ("act", "operation", 10, 50),
    ("matmul", "backend", 10, 40),
    ("matmul", "backend", 12, 15),
    ("unobserved", "unobserved", 60, 70),
    ("act", "operation", 80, 100),
]


def read(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def slices(trace: dict[str, Any]) -> list[tuple[str, str, int, int]]:
    """Return (name, category, begin, end) of all slices, in ns; checks that they nest on each track."""
    found, opened = list[tuple[str, str, int, int]](), defaultdict[tuple[int, int], list[int]](list)
    for one in trace["traceEvents"]:
        if one["ph"] == "X":
            begin = round(one["ts"] * 1e3)
            end = begin + round(one["dur"] * 1e3)
            ends = opened[one["pid"], one["tid"]]
            while ends and ends[-1] <= begin:
                ends.pop()
            assert not ends or end <= ends[-1]
            ends.append(end)
            found.append((one["name"], one["cat"], begin, end))
    return found


def test_stacks_are_slices(tmp_path: Path) -> None:
    path = ONE.perfetto(tmp_path / "run.json")
    trace = read(path)
    assert path == tmp_path / "run.json" and slices(trace) == SLICES
    assert trace["otherData"]["slices"] == "6"
    assert trace["otherData"]["slices left out, the shortest"] == "0"
    events = trace["traceEvents"]
    named = [(one["name"], one["args"]["name"]) for one in events if one["ph"] == "M"]
    assert named == [("process_name", "train.py (7)"), ("thread_name", "main (8)")]
    acts = [one for one in events if one["name"] == "act"]
    assert [one["args"] for one in acts] == [{"op_ids": [3, 4]}] * 2
    counted = [one for one in events if one["ph"] == "C"]
    assert sum(one["args"]["value"] for one in counted) == 30  # resolution of one nanosecond
    assert {one["name"] for one in counted} == {"threads in calls"}


def test_a_packed_trace_is_the_same(tmp_path: Path) -> None:
    packed = ONE.perfetto(tmp_path / "run.json.gz")
    assert packed.read_bytes()[:2] == b"\x1f\x8b"
    assert read(packed) == read(ONE.perfetto(tmp_path / "run.JSON"))


def test_a_stretch_cuts_slices_at_its_ends(tmp_path: Path) -> None:
    trace = read(ONE.perfetto(tmp_path / "run.json", begin=14e-9, end=65e-9))
    assert slices(trace) == [
        (name, sort, max(begin, 14), min(end, 65))
        for name, sort, begin, end in [SLICES[0], *SLICES[1:5]]
    ]
    assert not slices(read(ONE.perfetto(tmp_path / "run.json", begin=1.0, end=2.0)))


def test_the_shortest_are_left_out(tmp_path: Path) -> None:
    for most in range(1, 6):
        with pytest.warns(TimeRLWarning, match=f"the {6 - most} shortest slices are left out"):
            path = ONE.perfetto(tmp_path / "run.json", most=most)
        trace = read(path)
        longest = sorted(SLICES, key=lambda one: one[2] - one[3])[:most]
        assert slices(trace) == [one for one in SLICES if one in longest]
        assert trace["otherData"]["slices left out, the shortest"] == str(6 - most)


def test_what_does_not_nest_lies_beside(tmp_path: Path) -> None:
    crossed = lane(
        (0, Kind.OPERATION_ENTER, 2, 1),
        (10, Kind.PHASE_ENTER, 1, 1),
        (20, Kind.OPERATION_EXIT, 0, 0),
        (30, Kind.PHASE_EXIT, 0, 0),
        end=40,
    )
    trace = read(Recording((crossed,), NAMES).perfetto(tmp_path / "run.json"))
    assert slices(trace) == [("act", "operation", 0, 20), ("collect", "phase", 10, 30)]
    named = [one["args"]["name"] for one in trace["traceEvents"] if one["ph"] == "M"]
    assert named == ["process 7", "main (8)", "main (8), overlapping"]


def test_kernels_are_rows_with_flows_from_their_launches(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r")
    trl.scope.add_trace(folder, MADE)
    recording = trl.scope.read(folder)
    devices, (only,) = recording.devices, recording.lanes
    trace = read(recording.perfetto(tmp_path / "run.json"))
    events, origin = trace["traceEvents"], int(only.edges["ts"][0])
    drawn = Counter((one[0], one[2] + origin, one[3] + origin) for one in slices(trace))
    for k in range(len(devices)):
        drawn[recording.names[devices.name[k]], int(devices.begin[k]), int(devices.end[k])] -= 1
    for stack in ("operation", "call"):
        made = frames(only, stack)
        for top, begin, end in zip(made.top, made.begin, made.end, strict=True):
            drawn[recording.names[top & ((1 << NAME_BITS) - 1)], int(begin), int(end)] -= 1
    (window,) = devices.traced_windows
    for _ in window.devices:
        drawn["traced", window.begin, window.end] -= 1
    assert not any(drawn.values()), drawn
    starts, ends = ({one["id"]: one for one in events if one["ph"] == ph} for ph in "sf")
    expected = {
        (int(launched), int(begin))
        for lane, launched, begin in zip(devices.lane, devices.launched, devices.begin, strict=True)
        if lane >= 0 and launched <= begin
    }
    assert expected and starts.keys() == ends.keys()
    pairs = [(starts[k], ends[k]) for k in starts]
    assert {tuple(round(x["ts"] * 1e3) + origin for x in pair) for pair in pairs} == expected
    begins = {(one["pid"], one["tid"], one["ts"]) for one in events if one["ph"] == "X"}
    for pair in pairs:
        assert all((one["pid"], one["tid"], one["ts"]) in begins for one in pair)
        assert pair[0]["pid"] != pair[1]["pid"]
    assert {one["name"] for one in events if one["ph"] == "C"} == {"threads in calls", "busy"}


def test_wrong_files_and_stretches_are_refused(tmp_path: Path) -> None:
    for name in ("run.txt", "run.gz", "run"):
        with pytest.raises(OptionError, match="does not end in .json"):
            ONE.perfetto(tmp_path / name)
    stretches: list[dict[str, Any]] = [
        {"begin": -1},
        {"begin": 2, "end": 1},
        {"most": 0},
        {"end": float("nan")},
    ]
    for wrong in stretches:
        with pytest.raises(OptionError, match="is not in the recording|is not positive"):
            ONE.perfetto(tmp_path / "run.json", **wrong)
    with pytest.raises(ExecutionError, match="cannot be written"):
        ONE.perfetto(tmp_path / "nowhere" / "run.json")
    assert not list(tmp_path.iterdir())


def test_an_empty_recording_is_a_trace(tmp_path: Path) -> None:
    assert read(Recording((), ("",)).perfetto(tmp_path / "run.json"))["traceEvents"] == []


def test_a_trace_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with trl.scope.record(tmp_path / "r", taps=False) as rec:
        for _ in range(3):
            with trl.scope.phase("collect"), trl.scope.operation("act"):
                pass
    path = tmp_path / "run.json.gz"
    assert main(["scope", "export", str(tmp_path / "r"), str(path)]) == 0
    assert capsys.readouterr().out == f"written: {path}\n"
    found = slices(read(path))
    assert Counter(one[:2] for one in found) == {("collect", "phase"): 3, ("act", "operation"): 3}
    acted = sum(end - begin for name, _, begin, end in found if name == "act")
    assert acted == rec.table().by("operation")[("act",)]
