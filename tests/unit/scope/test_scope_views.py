"""View models of recordings, by value."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from benchmarks.scope.simulated import Process as Simulated
from benchmarks.scope.simulated import recording as simulated
from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError
from timerl_nb.scope import Recording
from timerl_nb.scope.analysis import state_intervals as pieces
from timerl_nb.scope.analysis.stack_frames import frames
from timerl_nb.scope.analysis.state_intervals import WORDS
from timerl_nb.scope.analysis.thread_timelines import Lane, Process
from timerl_nb.scope.device_activity.device_operations import Devices, TracedWindow
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind, Library
from timerl_nb.show.recording import timeline_downsampling as stretch
from timerl_nb.show.recording.device_downsampling import SORTS
from timerl_nb.show.recording.recording_view import ScopeView, with_stretches
from timerl_nb.show.recording.timeline_downsampling import Stretches, StretchView, Track

NAMES = ("", "collect", "step", "act", "sim.step", "interleaved: late", "<b>&\"' \x01" + "x" * 900)
BEGIN = 1_000


def edge(ts: int, kind: Kind, name: int = 0, depth: int = 0, library: int = 0) -> Any:
    return BEGIN + ts, library << NAME_BITS | name, kind, depth


def small() -> Recording:
    """Two processes: one has a phase with two operations and a call, the other an operation with an odd name."""
    edges = [
        edge(0, Kind.MARK),
        edge(100, Kind.PHASE_ENTER, 1, 1),
        edge(200, Kind.OPERATION_ENTER, 2, 1),
        edge(300, Kind.OPERATION_ENTER, 3, 2),
        edge(400, Kind.CALL_ENTER, 4, 1, Library.SIMULATION),
        edge(600, Kind.CALL_EXIT),
        edge(700, Kind.OPERATION_EXIT, 2, 1),
        edge(750, Kind.MARK, 5),
        edge(800, Kind.OPERATION_EXIT),
        edge(900, Kind.PHASE_EXIT),
    ]
    child = [edge(500, Kind.MARK), edge(500, Kind.OPERATION_ENTER, 6, 1)]
    lanes = (
        Lane(10, 11, "main", np.array(edges, EDGE), BEGIN + 1000),
        Lane(20, 21, "", np.array(child, EDGE), BEGIN + 600),
    )
    processes = (
        Process(10, 1, 0, "train.py", BEGIN, BEGIN + 1000),
        Process(20, 10, 11, "worker", BEGIN + 500, None),
    )
    return Recording(lanes, NAMES, {"act": (4, 7)}, processes)


def test_the_sums_are_those_of_the_table() -> None:
    recording = small()
    view = ScopeView.from_recording(recording)
    assert (view.total, view.end) == (1100, 1000)
    told = {
        (one.process, view.phases[one.phase].name, view.operations[one.operation].name, one.library)
        + (one.ns,)
        for one in view.times
    }
    assert told == {
        (0, "", "", "python", 200),
        (0, "collect", "", "python", 200),
        (0, "collect", "step", "python", 200),
        (0, "collect", "act", "python", 200),
        (0, "collect", "act", "simulation", 200),
        (1, "", NAMES[6], "python", 100),
    }
    assert sum(one.ns for one in view.times) == recording.table().total
    by_name = {one.name: one for one in view.operations}
    assert [(by_name[n].count, by_name[n].op_ids) for n in ("step", "act")] == [
        (1, ()),
        (1, (4, 7)),
    ]
    (moved,) = by_name["act"].transitions
    assert (moved.left, moved.to, moved.count) == ("python", "simulation", 1)
    assert [(one.number, one.depth, one.end) for one in view.processes] == [
        (10, 0, 1000),
        (20, 1, None),
    ]
    assert view.remark.startswith("no device was traced") and "late (1 times)" in view.remark
    assert str(view).splitlines()[0] == "0.001 ms"


def test_beyond_so_many_operations_they_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timerl_nb.show.recording.recording_view.MOST_OPERATIONS", 1)
    view = ScopeView.from_recording(small())
    assert [one.name for one in view.operations] == ["", "act", "2 others"]
    assert [one.count for one in view.operations] == [0, 1, 2]
    assert sum(one.ns for one in view.times) == view.total


def test_a_picture_holds_names_as_text(tmp_path: Path) -> None:
    view = ScopeView.from_recording(small())
    svg = view.to_svg()
    assert svg.startswith("<svg") and "<b>" not in svg and "&lt;b&gt;&amp;" in svg
    for said in ("train.py", "step", "python → simulation: 1", "no device was traced"):
        assert said in svg
    assert len(svg) < 40_000
    shown = small()._repr_mimebundle_()
    assert shown["image/svg+xml"] == svg and str(shown["text/plain"]).startswith("2 processes")
    assert json.dumps(view.to_json())
    message, buffers = view.to_message()
    assert len(buffers) == 2 * 3 * 4 and message["overview"]["lanes"][0]["lane"] == 0


def test_an_empty_recording_is_drawn() -> None:
    for empty in (
        Recording((), ("",)),
        Recording((), ("",), {}, (Process(1, 0, 0, "x", 5, None),)),
    ):
        view = ScopeView.from_recording(empty)
        assert (view.total, view.end, view.times) == (0, 0, ())
        assert "nothing was recorded" in view.to_svg()
        assert str(view) and str(view.overview) == "0 lanes over 0.000 ms"


def test_a_figure_adds_up() -> None:
    recording = small()
    figure = recording.figure()
    assert sum(sum(bar.x) for bar in figure.data) * 1e6 == pytest.approx(1100)
    assert list(figure.data[0].y)[:2] == ["outside of operations", "act"]
    counts = recording.figure("transitions").data
    assert [(bar.name, list(bar.x)) for bar in counts] == [("python → simulation", [1])]
    processes = recording.figure("processes").data
    assert sum(sum(bar.x) for bar in processes) * 1e6 == pytest.approx(1100)
    with pytest.raises(OptionError) as wrong:
        recording.figure("operation")
    assert "operations" in wrong.value.hint


# --- frames and segments against a nanosecond count -----------------------------------------------


def at_random(rng: np.random.Generator, count: int) -> Lane:
    found: list[Any] = []
    ts, stacks = 0, {Kind.CALL_ENTER: [], Kind.OPERATION_ENTER: [], Kind.PHASE_ENTER: []}
    for _ in range(count):
        ts += int(rng.integers(0, 9))
        kind = list(stacks)[rng.integers(3)]
        stack: list[int] = stacks[kind]
        if stack and rng.random() < 0.5:
            stack.pop()
            found.append((BEGIN + ts, stack[-1] if stack else 0, kind + 1, len(stack)))
        else:
            library = int(rng.integers(1, 5)) if kind == Kind.CALL_ENTER else 0
            stack.append(int(rng.integers(1, 8)) | library << NAME_BITS)
            found.append((BEGIN + ts, stack[-1], kind, len(stack)))
    return Lane(1, 1, "", np.array(found, EDGE), BEGIN + ts + int(rng.integers(1, 5)))


def test_frames_are_those_of_a_stack() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        lane = at_random(rng, int(rng.integers(0, 50)))
        stack, wanted = [], []
        moments = [*lane.edges["ts"].tolist(), lane.end]
        for k, (ts, top, kind, depth) in enumerate(lane.edges.tolist()):
            if kind == Kind.CALL_ENTER:
                stack.append([top, ts, lane.end, depth, 0])
                wanted.append(stack[-1])
            elif kind == Kind.CALL_EXIT:
                stack.pop()[2] = ts
            if stack:
                stack[-1][4] += moments[k + 1] - ts
        found = frames(lane, "call")
        columns = found.top, found.begin, found.end, found.depth, found.own
        assert list(map(list, zip(*(x.tolist() for x in columns), strict=True))) == wanted


def from_begin(lane: Lane) -> Lane:
    edges = lane.edges.copy()
    edges["ts"] -= edges["ts"][0] - BEGIN
    return Lane(1, 1, "", edges, int(edges["ts"][-1]) + 3)


def counted(lane: Lane, length: int) -> dict[str, Array]:
    """Return the top of each track at each nanosecond."""
    found = {name: np.zeros(length, int) for name in ("phase", "operation", "library", "called")}
    for ts, top, kind, _ in lane.edges.tolist():
        at = slice(ts - BEGIN, length)
        if kind <= Kind.CALL_EXIT:
            found["library"][at], found["called"][at] = top >> NAME_BITS, top & 0xFFFFFF
        else:
            found["operation" if kind <= Kind.OPERATION_EXIT else "phase"][at] = top
    return found


def test_any_stretch_is_what_single_nanoseconds_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretch, "_BLOCK", 4)
    monkeypatch.setattr(pieces, "PIECE", 16)
    rng = np.random.default_rng(1)
    names = ("", *(f"n{k}" for k in range(1, 8)))
    known = {"phase": ("n1", "n2"), "operation": ("n3", "n4", "n5")}
    places = {kind: {names.index(n): k for k, n in enumerate(of, 1)} for kind, of in known.items()}
    for _ in range(60):
        lane = from_begin(at_random(rng, int(rng.integers(1, 60))))
        length = lane.end - BEGIN
        held = counted(lane, length)
        begin = int(rng.integers(0, length))
        end, width = int(rng.integers(begin + 1, length + 5)), int(rng.integers(1, 20))
        view = Stretches(Recording((lane,), names), *known.values()).view(begin, end, width)
        moments = np.rint(np.linspace(begin, end, width + 1)).astype(int)
        for track in view.lanes[0].tracks:
            check(track, view, held, moments, places.get(track.kind), names)


def check(
    track: Track,
    view: StretchView,
    held: dict[str, Array],
    moments: Array,
    places: dict[int, int] | None,
    names: tuple[str, ...],
) -> None:
    of = held[track.kind]
    kinds = len(WORDS) if places is None else len(places) + 2
    shares = np.zeros((kinds, view.width))
    for k, (low, high) in enumerate(zip(moments[:-1], moments[1:], strict=True)):
        for one in of[low:high].tolist():
            place = one if places is None else places.get(one, kinds - 1) if one else 0
            shares[place, k] += 255 / (high - low)
    assert np.abs(track.shares - shares.ravel()).max() <= 0.5 + 1e-9
    spans, found = track.spans, np.zeros(len(of), int)
    for low, high, name in zip(spans.begin, spans.end, spans.name, strict=True):
        found[int(low) : int(high)] = names.index(view.names[name])
    wanted = held["called"] if places is None else of
    part = slice(int(view.begin), int(view.end))
    assert (found[part] == wanted[part]).all()


def test_what_devices_ran_is_what_single_nanoseconds_are() -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        recording, length = with_devices(rng)
        devices = recording.devices
        begin = int(rng.integers(0, length))
        end, width = int(rng.integers(begin + 1, length + 9)), int(rng.integers(1, 20))
        drawn, stretches = with_stretches(recording)
        view = stretches.view(begin, end, width)
        moments = np.rint(np.linspace(begin, end, width + 1)).astype(int)
        assert [one.device for one in view.devices] == [0, 1]
        for device, shown in zip(drawn.devices, view.devices, strict=True):
            rows = np.flatnonzero(devices.device == device.number)
            sort = np.full(length + 20, len(SORTS) - 1)
            looked = np.zeros(len(sort), bool)
            for window in devices.windows:
                looked[window.begin - BEGIN : window.end - BEGIN] = True
            ran = np.full(len(sort), -1)
            for row in rows[::-1]:  # the earliest start counts; of equal ones the first
                ran[devices.begin[row] - BEGIN : devices.end[row] - BEGIN] = devices.sort[row]
            sort[looked] = ran[looked]
            assert (device.looked, device.busy) == (looked.sum(), (looked & (ran >= 0)).sum())
            wanted = [
                [(sort[a:b] == k).sum() / max(b - a, 1) for a, b in pairwise(moments)]
                for k in range(len(SORTS))
            ]
            found = shown.shares.reshape(len(SORTS), width) / 255
            assert np.abs(found - wanted).max() <= 1 / 255 + 1e-9
            assert ((found > 0) == (np.array(wanted) > 0)).all()
            inside = rows[(devices.begin[rows] < BEGIN + end) & (devices.end[rows] > BEGIN + begin)]
            inside = inside[devices.end[inside] > devices.begin[inside]]
            spans = zip(shown.spans.begin, shown.spans.end, shown.spans.name, strict=True)
            told = [(a + BEGIN, b + BEGIN, view.names[name]) for a, b, name in spans if b > a]
            columns = devices.begin[inside], devices.end[inside], devices.name[inside]
            assert told == [(a, b, recording.names[n]) for a, b, n in zip(*columns, strict=True)]
            took = sum(one.ns for one in device.ran)
            assert took == (devices.end[rows] - devices.begin[rows]).sum()


def with_devices(rng: np.random.Generator) -> tuple[Recording, int]:
    """A track with two devices, viewed in two windows."""
    lane = from_begin(at_random(rng, 30))
    length = lane.end - BEGIN
    count = int(rng.integers(1, 30))
    begin = np.sort(rng.integers(0, length, count)) + BEGIN
    zero = np.zeros(count, np.int64)
    columns = {
        "begin": begin,
        "end": begin + rng.integers(0, 12, count),
        "name": rng.integers(1, 5, count),
        "device": rng.integers(0, 2, count),
        "sort": rng.integers(0, 3, count),
        "process": zero + 1,
        "lane": zero - 1,
        "launched": zero - 1,
    }
    columns |= dict.fromkeys(("stream", "correlation", "window"), zero)
    half = BEGIN + length // 2
    windows = tuple(
        TracedWindow(1, "made", low, high, ("A", "B"), "", 0, 5)
        for low, high in ((BEGIN + 3, half), (half + 5, BEGIN + length))
        if low < high
    )
    names = ("", *(f"n{k}" for k in range(1, 8)))
    return Recording((lane,), names, devices=Devices(**columns, windows=windows)), length


def test_a_kernel_is_of_the_operation_that_launched_it() -> None:
    process = Simulated()
    for name, kernels in (("infer", [3_000, 4_000]), ("learn", [60_000])):
        with process.within(name):
            process.runs("backend", 30_000, kernels)
            process.waits()
    drawn, stretches = with_stretches(simulated([process]))
    (shown,) = stretches.view().devices
    assert [drawn.operations[k].name for k in shown.operations] == ["infer", "infer", "learn"]
    (device,) = drawn.devices
    assert (device.name, device.busy) == ("simulated GPU", 67_000)
    assert [(one.sort, one.count, one.ns) for one in device.ran] == [("kernel", 3, 67_000)]
    svg = drawn.to_svg()
    assert "0: simulated GPU" in svg and "device: kernel" in svg and "waiting for a busy" in svg


def test_a_stretch_is_checked() -> None:
    _, stretches = with_stretches(small())
    assert [one.lane for one in stretches.view(process=20).lanes] == [1]
    assert [one.lane for one in stretches.view(most=1).lanes] == [0]
    for wrong in [(5, 5), (-1, 5), (0, 0.5), (float("nan"), 5)]:
        with pytest.raises(OptionError, match="is invalid"):
            stretches.view(*wrong)
    with pytest.raises(OptionError, match="is invalid"):
        stretches.view(0, 10, 10**9)


def test_what_a_program_runs_is_drawn_with_its_operations() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0] = 1.0
        x[t + 1] = x * 0.5
        ctx.output("y", x[0:T].sum())
    rec = ctx.compile({"T": 4}).scope()
    view = ScopeView.from_recording(rec.read())
    assert {one.name: one.op_ids for one in view.operations if one.op_ids} == rec.read().op_ids
