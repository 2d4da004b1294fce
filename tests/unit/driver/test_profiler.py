"""Profiles and Chrome traces contain every executed operation once, in the right place."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.pixels import pixels
from tests.reinforce import reinforce
from tests.unit.checks import leaving
from timerl_nb.base.errors import BoundsError, ExecutionError, OptionError
from timerl_nb.base.runtime_events import Event

BOUNDS = {"B": 4, "I": 6, "T": 8}
_PROGRAMS: dict[str, trl.Program] = {}


def learning(executor: str) -> trl.Program:
    if executor not in _PROGRAMS:
        options = trl.Options(executor=executor)
        _PROGRAMS[executor] = reinforce(hidden=(8,)).compile(BOUNDS, options)
    return _PROGRAMS[executor]


def traced(profile: trl.Profile, folder: Path) -> list[dict[str, Any]]:
    path = profile.chrome_trace(folder / "run.json")
    assert [p.name for p in folder.iterdir()] == ["run.json"]  # nothing is left over
    return json.loads(path.read_text())["traceEvents"]


def slices(events: list[dict[str, Any]], *sorts: str) -> list[dict[str, Any]]:
    return [e for e in events if e["ph"] == "X" and e["cat"] in sorts]


def assert_nested(events: list[dict[str, Any]]) -> None:
    """Check that two slices of a track are nested or disjoint."""
    for track in {e["tid"] for e in events if e["ph"] == "X"}:
        open_until: list[float] = []
        of = [e for e in events if e["ph"] == "X" and e["tid"] == track]
        for e in sorted(of, key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= e["ts"] + 1e-3:
                open_until.pop()
            end = e["ts"] + e["dur"]
            assert not open_until or end <= open_until[-1] + 1e-3, e
            open_until.append(end)


# --- profiles --------------------------------------------------------------------------------------


def test_statements_are_counted_and_add_up() -> None:
    program = learning("interpret")
    profile = trl.profile(program, seed=2)
    counts = Counter(point.name for point in _executed(program))
    assert {row.name: row.count for row in profile.rows} == counts
    assert profile.turns == 6 and profile.executor == "interpret" and 0 < profile.busy < 1
    assert sum(row.seconds for row in profile.rows) < profile.seconds
    written = sum(row.nbytes or 0 for row in profile.rows)
    assert written >= program.memory.peak
    rows = {row.name: row for row in profile.rows}
    assert all(row.sort == "kernel" and 0 < row.first <= row.seconds for row in profile.rows)
    for row in profile.rows:
        assert row.mean * (row.count - 1) + row.first == pytest.approx(row.seconds)
    seconds = [row.seconds for row in profile.rows]
    assert seconds == sorted(seconds, reverse=True)
    for name, row in rows.items():
        assert program.ast.names[row.op_ids[0]] == name and len(row.op_ids) > 1
        assert name in str(profile)


def _executed(program: trl.Program) -> list[Event]:
    events: list[Event] = []
    program.execute(on_event=events.append)
    return [e for e in events if e.kind == "execute"]


def test_calls_are_counted_where_xla_runs_the_nest() -> None:
    program = learning("xla")
    lowered = program.executable.xla_program
    assert lowered is not None
    profile = trl.profile(program, seed=2)
    once = sum(call.loop is None for call in lowered.calls)
    repeated = len(lowered.calls) - once
    assert profile.executor == "xla" and "calls to XLA, seen from the host" in str(profile)
    assert sum(row.count for row in profile.rows) == once + repeated * 6
    assert {row.sort for row in profile.rows} == {"call"}
    assert {row.nbytes for row in profile.rows} == {None}


def test_it_stops_after_some_turns() -> None:
    for executor in ("interpret", "xla"):
        profile = trl.profile(learning(executor), turns=2)
        assert profile.turns == 2
    with pytest.raises(OptionError, match="turns=0"):
        trl.profile(learning("xla"), turns=0)


def test_the_host_is_told_apart() -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.tensor((), "f32", domain=(i, t))
        x[i, 0] = trl.random.normal((), domain=(i,))
        x[i, t + 1] = x.tanh()
        ctx.output("y", trl.udf(lambda x: x * 2, x[i, T - 1], out="f32") + 1)
    for executor in ("interpret", "xla"):
        program = ctx.compile({I: 3, T: 4}, trl.Options(executor=executor))
        profile = trl.profile(program)
        (host,) = [row for row in profile.rows if row.sort == "host"]
        assert host.count == 3 and host.seconds > 0
        assert profile.busy < 1 - host.seconds / profile.seconds + 1e-9


def test_a_bound_without_a_ceiling_is_refused() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), "f32", domain=(t,))
        x[0] = 0.0
        x[t + 1] = x + 1
        ctx.output("x", x)
        done = x > 5
    with pytest.raises(BoundsError, match="cannot be repeated"):
        trl.profile(ctx.compile({T: done}))


def test_a_profile_is_json() -> None:
    profile = trl.profile(learning("interpret"), turns=1)
    found = json.loads(json.dumps(profile.to_json()))
    assert [row["name"] for row in found["rows"]] == [row.name for row in profile.rows]


def test_events_know_their_times() -> None:
    """Equality ignores times: two runs report equal events."""
    program, runs = learning("interpret"), ([], [])
    for events in runs:
        program.execute(seed=1, on_event=events.append)
    assert runs[0] == runs[1]
    times = [event.time for event in runs[0]]
    assert times == sorted(times) and times[0] > 0
    done = [event for event in runs[0] if event.kind == "done"]
    assert all(0 < event.seconds < event.time for event in done)


# --- traces ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_a_trace_holds_the_run(executor: str, tmp_path: Path) -> None:
    program = learning(executor)
    profile = trl.profile(program)
    events = traced(profile, tmp_path)
    assert_nested(events)
    ran = slices(events, "kernel", "call", "host")
    assert Counter(e["name"] for e in ran) == {row.name: row.count for row in profile.rows}
    for row in profile.rows:
        spent = sum(e["dur"] for e in ran if e["name"] == row.name)
        assert spent / 1e6 == pytest.approx(row.seconds)
        assert {tuple(e["args"]["op_ids"]) for e in ran if e["name"] == row.name} == {row.op_ids}
    turns = slices(events, "turn")
    assert [e["args"]["turn"] for e in turns] == list(range(6))
    for one, after in zip(turns, turns[1:], strict=False):
        assert one["ts"] + one["dur"] == pytest.approx(after["ts"])
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert tracks == {1: "kernels", 2: "host functions", 3: "transfers"}
    counters = [e for e in events if e["ph"] == "C"]
    name = "live bytes" if executor == "interpret" else "live bytes (predicted)"
    assert {e["name"] for e in counters} == {name}
    most = max(e["args"]["bytes"] for e in counters)
    # gathered operands are no events
    assert most == program.memory.peak if executor == "xla" else most <= program.memory.peak


def test_points_are_those_of_the_run(tmp_path: Path) -> None:
    program = learning("interpret")
    events = traced(trl.profile(program), tmp_path)
    want = [(e.name, list(e.point)) for e in _executed(program)]
    have = [(e["name"], e["args"]["point"]) for e in slices(events, "kernel", "host")]
    assert have == want
    freed = [e for e in events if e["ph"] == "i"]
    assert freed and all(e["args"]["op_ids"] and e["name"].startswith("free ") for e in freed)


def test_turns_of_one_call_are_one_slice(tmp_path: Path) -> None:
    program = learning("xla").with_options(fuse_iterations=4)
    names = [e["name"] for e in slices(traced(trl.profile(program), tmp_path), "turn")]
    assert names == ["turns 0 to 3", "turns 4 to 5"]


def test_copies_have_a_track(tmp_path: Path) -> None:
    options = trl.Options(vectorize=("b",), executor="interpret")
    program = pixels().compile({"B": 8, "I": 2, "T": 8}, options)
    swapped = program.with_options(device_memory=leaving(program, 0.6))
    profile = trl.profile(swapped)
    events = traced(profile, tmp_path)
    assert_nested(events)
    copies = slices(events, "transfer")
    assert len(copies) == len(profile.copies) > 0 and {e["tid"] for e in copies} == {3}
    assert {e["name"].split()[0] for e in copies} == {"offload", "fetch"}
    assert sum(e["args"]["bytes"] for e in copies) == sum(c.nbytes for c in profile.copies)
    assert "transfer" in str(profile)


def test_a_trace_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    profile = trl.profile(learning("xla"), turns=1)
    with pytest.raises(ExecutionError, match="cannot be written"):
        profile.chrome_trace(tmp_path / "nowhere" / "run.json")
    assert not list(tmp_path.iterdir())


def test_measuring_changes_no_value() -> None:
    program = learning("interpret")
    values: list[float] = []
    want = program.execute(seed=4)
    have = program.execute(seed=4, on_event=lambda event: values.append(event.seconds))
    np.testing.assert_array_equal(have["return"], want["return"])
    assert any(values)


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_launches_are_reported_without_waiting_and_change_nothing(executor: str) -> None:
    program = learning(executor)
    told: list[Event] = []
    turns: list[int] = []
    run = program.begin(2, on_call=told.append, progress=lambda n=1: turns.append(n), waits=False)
    run.complete()
    outputs = run.outputs()
    run.release()
    waited: list[Event] = []
    other = program.begin(2, on_call=waited.append)
    other.complete()
    for name, value in other.outputs().items():
        assert np.array_equal(value, outputs[name]), name
    other.release()
    kinds = Counter(event.kind for event in told)
    # the executed operations are equal, with or without waiting
    assert (
        kinds["launch"] > 0
        and kinds["launch"] + kinds["done"] == Counter(event.kind for event in waited)["done"]
    )
    assert "launch" not in {event.kind for event in waited}
    assert sum(turns) == BOUNDS["I"]
    launched = [event for event in told if event.kind in ("execute", "launch")]
    open_at: list[tuple[str, tuple[int, ...]]] = []
    for event in launched:
        if event.kind == "launch":
            assert (event.name, event.point) == open_at[-1]
        open_at.append((event.name, event.point))
    assert kinds["wait"] == (executor == "xla")
    assert all(event.seconds >= 0 for event in told)
