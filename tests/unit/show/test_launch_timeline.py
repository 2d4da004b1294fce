"""The launch timeline agrees with the turn, with the cost model, and with measurements."""

from __future__ import annotations

import json

import numpy as np
import pytest
import timerl_widgets

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.show import CostView, LaunchView, MemoryView, Turn
from timerl_nb.show.recording.recorded_launches import RecordedLaunches, RecordedRun
from timerl_nb.show.stages.measured_launches import measured_run, seconds_per_launch
from timerl_nb.show.stages.operation_costs import launch_counts

BOUNDS = {"B": 4, "I": 3, "T": 6}


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return reinforce(5, hidden=(8,)).compile(BOUNDS, trl.Options(executor="interpret"))


@pytest.fixture(scope="module")
def compiled(program: trl.Program) -> trl.Program:
    return program.with_options(executor="xla")


def test_every_instant_is_a_launch_as_long_as_estimated(program: trl.Program) -> None:
    turn = Turn.from_program(program)
    view = LaunchView.of_turn(turn, program)
    assert view.how == "estimated"
    ran = np.full(len(turn), -1)
    for k, row in enumerate(view.rows):
        assert row.launches == len(row.columns) and set(row.counts.tolist()) == {1}
        ran[row.columns] = k
    names = [view.rows[k].name for k in ran]
    assert names == [turn.points[k].name for k in turn.statement]
    starts = [names.index(row.name) for row in view.rows]
    assert starts == sorted(starts)
    measures = {one.name: one.rows for one in CostView.from_program(program).measures}
    each = {
        row.op_ids[0]: row.value / number.value
        for row, number in zip(measures["estimated time"], measures["launches"], strict=True)
    }
    seconds = [row.seconds for row in view.rows]
    assert seconds == pytest.approx([each[row.op_id] for row in view.rows])
    assert np.diff(view.begin) == pytest.approx([seconds[k] for k in ran])
    assert str(view).splitlines()[0].startswith(f"{len(turn)} launches of a turn, ")


def test_kernels_take_as_long_as_in_a_profile(program: trl.Program) -> None:
    profile = trl.profile(program, turns=2)
    view = LaunchView.from_program(program, profile)
    assert view.how == "measured"
    means = {row.name: row.mean for row in profile.rows}
    assert [row.seconds for row in view.rows] == pytest.approx(
        [means[row.name] for row in view.rows]
    )


def test_a_call_is_divided_among_its_launches(compiled: trl.Program) -> None:
    calls = {row.name: row for row in trl.profile(compiled).rows}
    assert len(calls) == 2 and calls["call 2"].count == 3
    # two of three iterations were measured: the time of a launch does not depend on their number
    rows = (
        RecordedLaunches("call 2", calls["call 2"].op_ids, 2, 0.006),
        RecordedLaunches("call 9", calls["call 2"].op_ids, 2, 9.0),  # of another program
    )
    run = RecordedRun(rows)
    view = LaunchView.from_program(compiled, run)
    assert view.how == "measured by call"
    assert view.begin[-1] == pytest.approx(0.006)
    estimated = LaunchView.from_program(compiled)
    ratio = view.begin[-1] / estimated.begin[-1]
    for row, other in zip(view.rows, estimated.rows, strict=True):
        assert row.seconds == pytest.approx((other.seconds or 0) * ratio)
    # kernels of the call that was not measured are unknown
    found, counts = seconds_per_launch(compiled, run), launch_counts(compiled)
    assert found.keys() < counts.keys()
    assert sum(found[k] * counts[k] for k in found) == pytest.approx(3 * 0.006)


def test_a_recording_has_the_times_of_launches(program: trl.Program) -> None:
    recording = program.scope()
    rows = {row.name: row for row in measured_run(recording).rows}
    names = program.ast.names
    expected = {names[op_id]: count for op_id, count in launch_counts(program).items()}
    assert {name: row.count for name, row in rows.items()} == expected
    view = LaunchView.from_program(program, recording)
    assert [row.seconds for row in view.rows] == pytest.approx(
        [rows[row.name].mean for row in view.rows]
    )


def test_measurements_of_something_else_are_refused(program: trl.Program) -> None:
    with pytest.raises(trl.errors.OptionError, match="no launch of this program"):
        LaunchView.from_program(program, RecordedRun(()))
    with pytest.raises(trl.errors.CallError, match="neither a profile nor a recording"):
        LaunchView.from_program(program, 3)  # pyrefly: ignore[bad-argument-type]


def test_the_explorer_shows_measured_launches(program: trl.Program) -> None:
    explorer = timerl_widgets.Explorer(program, ahead=False)
    profile = trl.profile(program, turns=1)
    estimated = explorer.launches
    explorer.measured(profile.by_op)
    assert explorer.launches is estimated
    for given in (profile, program.scope(turns=1)):
        explorer.measured(given)
        assert explorer.launches["json"]["how"] == "measured"
        measures = [one["name"] for one in explorer.cost["json"]["measures"]]
        assert measures[-1] == "measured time"
    with pytest.raises(trl.errors.CallError, match="neither a profile nor a recording"):
        explorer.measured("profile")
    explorer.close()


def test_a_long_turn_is_summarised() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((4,), domain=(t,)).named("x")
        s = trl.like(x).named("s")
        s[0] = x[0]
        s[t + 1] = (s * 0.5 + x[t + 1]).tanh()
        ctx.output("s", s)
    long = ctx.compile({T: 100_000}, trl.Options(vectorize=False))
    view = LaunchView.from_program(long)
    assert len(view.first) == 1024
    assert sum(row.launches for row in view.rows) == len(view.turn) > 190_000
    for row in view.rows:
        assert row.counts.sum() == row.launches and len(row.columns) <= 1024
    total = sum(row.launches * (row.seconds or 0) for row in view.rows)
    assert view.begin[-1] == pytest.approx(total)
    assert len(json.dumps(view.to_json())) < 100_000
    assert len(view.to_svg()) < 100_000


def test_stored_tensors_have_the_users_line_and_a_reason(program: trl.Program) -> None:
    plan = program.memory
    for one in MemoryView.from_program(program).tensors:
        origin = plan.origin(one.tensor)
        assert (one.place, one.line) == (origin.place, origin.text)
        assert one.why == plan.stores[one.tensor].why != ""
