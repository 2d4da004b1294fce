"""`program.scope()`: iterations and launches of a compiled program, compared with its events."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl
from tests.recorders import own_lane
from tests.reinforce import reinforce
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.recording.program_launches import WAIT
from timerl_nb.scope.storage.event_format import NAME_BITS, Kind, Library

BOUNDS = {"B": 4, "I": 6, "T": 8}
_PROGRAMS: dict[str, trl.Program] = {}


def learning(executor: str) -> trl.Program:
    if executor not in _PROGRAMS:
        options = trl.Options(executor=executor)
        _PROGRAMS[executor] = reinforce(hidden=(8,)).compile(BOUNDS, options)
    return _PROGRAMS[executor]


def launches(recording: Recording, lane: Lane) -> list[tuple[str, tuple[int, ...]]]:
    """Return the launches with their points."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for _, top, kind, _ in lane.edges.tolist():
        if kind == Kind.OPERATION_ENTER:
            found.append((recording.names[top & ((1 << NAME_BITS) - 1)], ()))
        elif kind == Kind.POINT:
            name, point = found[-1]
            found[-1] = name, (*point, top)
    return found


def called(recording: Recording) -> list[str]:
    """Return the calls of this thread."""
    edges = own_lane(recording).edges
    tops = edges["top"][edges["kind"] == Kind.CALL_ENTER] & ((1 << NAME_BITS) - 1)
    return [recording.names[top] for top in tops.tolist()]


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_launches_are_those_of_a_profile(executor: str, tmp_path: Path) -> None:
    program = learning(executor)
    told: list[tuple[str, tuple[int, ...]]] = []
    run = program.begin(
        2, on_call=lambda e: told.append((e.name, e.point)) if e.kind == "execute" else None
    )
    run.complete()
    run.release()
    rec = program.scope(seed=2, folder=tmp_path / "r")
    recording = rec.read()
    (lane,) = recording.lanes
    assert launches(recording, lane) == told
    rows = trl.profile(program, seed=2).rows
    assert recording.op_ids == {row.name: row.op_ids for row in rows}
    kinds = Counter(Kind(kind) for kind in lane.edges["kind"].tolist())
    assert kinds[Kind.PHASE_ENTER] == kinds[Kind.PHASE_EXIT] == BOUNDS["I"]
    for enter in (Kind.CALL_ENTER, Kind.OPERATION_ENTER):
        assert kinds[enter] == kinds[Kind(enter + 1)] > 0
    on_host = [name for name, _ in told if {r.name: r.sort for r in rows}[name] == "host"]
    waits = int((lane.edges["top"] >> NAME_BITS == Library.WAITING).sum())
    assert waits == (executor == "xla")
    assert kinds[Kind.CALL_ENTER] == len(told) - len(on_host) + waits
    table = rec.table()
    assert table.total == lane.end - int(lane.edges["ts"][0])
    assert {cell.phase for cell in table.cells} == {"", "turn"}


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_it_stops_after_some_turns_and_waits_for_them(executor: str) -> None:
    recording = learning(executor).scope(turns=2).read()
    (lane,) = recording.lanes
    assert int((lane.edges["kind"] == Kind.PHASE_ENTER).sum()) == 2
    waits = int((lane.edges["top"] >> NAME_BITS == Library.WAITING).sum())
    assert waits == (executor == "xla")


def test_what_is_waited_for_is_told_once_where_that_is_tapped() -> None:
    program = learning("xla")
    with trl.scope.record(calibrated=False) as rec:
        program.execute(seed=3, progress=False)
    waits = {"jax.block_until_ready", WAIT} & set(called(rec.read()))
    assert waits == {"jax.block_until_ready"}


def test_host_functions_are_python_and_may_be_annotated_inside() -> None:
    def halved(x: np.ndarray) -> np.ndarray:
        with trl.scope.operation("inside"):
            return x / 2

    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(np.arange(4.0, dtype=np.float32), domain=(t,))
        ctx.output("y", trl.udf(halved, x, out="f32", name="halved")[0:T].sum())
    recording = ctx.compile({"T": 4}).scope().read()
    (lane,) = recording.lanes
    named = Counter(name for name, _ in launches(recording, lane))
    assert named["inside"] == 4
    (host,) = {name for name in named if "halved" in name}
    depth = {
        recording.names[top & ((1 << NAME_BITS) - 1)]: depth
        for _, top, kind, depth in lane.edges.tolist()
        if kind == Kind.OPERATION_ENTER
    }
    assert (named[host], depth[host], depth["inside"]) == (4, 1, 2)
    assert not [
        1
        for _, top, kind, _ in lane.edges.tolist()
        if kind == Kind.CALL_ENTER and recording.names[top & ((1 << NAME_BITS) - 1)] == host
    ]


def test_a_function_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    def failing(x: np.ndarray) -> np.ndarray:
        raise ValueError("by itself")

    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.data(np.arange(4.0, dtype=np.float32), domain=(t,))
        ctx.output("y", trl.udf(failing, x, out="f32"))
    with pytest.raises(Exception, match="by itself"):
        ctx.compile({"T": 4}).scope(folder=tmp_path / "r")
    (lane,) = trl.scope.read(tmp_path / "r").lanes
    kinds = Counter(Kind(kind) for kind in lane.edges["kind"].tolist())
    assert kinds[Kind.OPERATION_ENTER] == kinds[Kind.OPERATION_EXIT] > 0
    assert kinds[Kind.PHASE_ENTER] == kinds[Kind.PHASE_EXIT] == 1


def test_a_temporary_folder_goes_with_the_record() -> None:
    rec = learning("xla").scope(turns=1)
    folder = rec.folder
    assert folder.is_dir() and rec.table().total > 0
    del rec
    gc.collect()
    assert not folder.exists()


def test_wrong_calls_are_refused_before_anything_runs(tmp_path: Path) -> None:
    program = learning("xla")
    with pytest.raises(OptionError, match="turns=0 is not possible"):
        program.scope(turns=0)
    with trl.scope.record(tmp_path / "one"), pytest.raises(ExecutionError, match="is still open"):
        program.scope()
    (tmp_path / "file").write_text("")
    with pytest.raises(ExecutionError, match="the recording folder"):
        program.scope(folder=tmp_path / "file")
    with pytest.raises(ExecutionError, match="already holds a recording"):
        program.scope(folder=tmp_path / "one")


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_what_executes_in_a_recording_is_in_it(executor: str) -> None:
    program = learning(executor)
    want = program.execute(seed=3, progress=False)
    with trl.scope.record(taps=False) as rec:
        have = program.execute(seed=3, progress=False)
        with trl.scope.phase("mine"), trl.scope.operation("all of it"):
            program.execute(seed=3, progress=False)
        program.start(seed=3).result()
    np.testing.assert_array_equal(have["return"], want["return"])
    recording, table = rec.read(), rec.table()
    assert len(recording.lanes) == 2  # the background run has a separate thread
    by = table.by("phase", "operation", "library")
    assert by[("mine", "all of it", "backend")] > 0  # annotations win
    mine = {operation for phase, operation, _ in by if phase == "mine"}
    assert mine == {"", "all of it"}
    assert set(recording.op_ids) <= {operation for _, operation, _ in by}
    for lane in recording.lanes:
        kinds = Counter(Kind(kind) for kind in lane.edges["kind"].tolist())
        assert kinds[Kind.PHASE_ENTER] == kinds[Kind.PHASE_EXIT]
        assert kinds[Kind.OPERATION_ENTER] == kinds[Kind.OPERATION_EXIT]
        assert kinds[Kind.CALL_ENTER] == kinds[Kind.CALL_EXIT]
    turns = [int((lane.edges["kind"] == Kind.PHASE_ENTER).sum()) for lane in recording.lanes]
    assert sorted(turns) == [BOUNDS["I"], BOUNDS["I"] + 1]
