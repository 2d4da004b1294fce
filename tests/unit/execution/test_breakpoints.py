"""Runs that pause on a condition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import timerl_nb as trl
from timerl_nb.base.errors import OptionError
from timerl_nb.execution.control.breakpoints import Breakpoint


@pytest.fixture(scope="module", params=["interpret", "xla"])
def program(request: pytest.FixtureRequest) -> trl.Program:
    """x[i] = i * i, and a total that is known at the end. The inner loop makes XLA run iteration by iteration."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.tensor((), domain=(i, t)).named("steps")
        x[0, 0] = 1.0
        x[i + 1, 0] = x[i, T - 1]
        x[i, t + 1] = x + 2.0 * trl.value(i).floating() - 1.0
        x = x[i, T - 1]
        ctx.output("x", x)
        ctx.output("even", x[i % 2 == 0])
        ctx.output("total", x.sum(over=i))
    return ctx.compile({I: 12, T: 2}, trl.Options(executor=request.param, vectorize=False))


def stops(program: trl.Program, condition: str, **options: Any) -> list[tuple[int, str]]:
    """Return the turns at which a run pauses, with the reasons."""
    found: list[tuple[int, str]] = []
    with program.start(pause_when=condition, **options) as run:
        while run.wait() and run.state == "paused":
            frame = next(iter(run.frames()))
            found.append((run.turn, frame.reason))
            run.resume()
        assert run.state == "finished"
        assert run.result()["x"].tolist() == [k * k for k in range(12)]
    return found


@pytest.mark.parametrize(
    ("condition", "turns"),
    [
        ("i = 3", [3]),
        ("i == 0", [0]),
        ("turn >= 10", [10, 11, 12]),
        ("i >= 10", [10, 11]),
        ("x = 0", [1]),
        ("x > 80", [10, 11, 12]),
        ("x=4", [3]),
        ("even = 16", [5]),
        ("even = 9", []),
        ("x < -1", []),
    ],
)
def test_a_run_pauses_where_the_condition_holds(
    program: trl.Program, condition: str, turns: list[int]
) -> None:
    assert [turn for turn, _ in stops(program, condition)] == turns


def test_the_reason_names_value_and_iteration(program: trl.Program) -> None:
    assert stops(program, "x = 4") == [(3, "x = 4 at i = 2")]
    assert stops(program, "i = 3") == [(3, "i = 3")]


def test_a_condition_can_be_set_and_removed_while_the_run_is_paused(program: trl.Program) -> None:
    with program.start(paused=True) as run:
        run.pause_when("i = 2")
        run.resume()
        assert run.wait() and run.turn == 2
        run.pause_when("x >= 25")
        run.resume()
        assert run.wait() and run.turn == 6
        run.step(2)  # the condition holds after each
        assert run.wait() and run.turn == 7
        run.pause_when(None)
        run.resume()
        assert run.wait() and run.state == "finished"


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("x", "is not a condition"),
        ("x > many", "is not a condition"),
        ("", "is not a condition"),
        ("x => 4", "is not a condition"),
        ("x > nan", "is not a condition"),
        (" " * 10_000 + "x", "is not a condition"),
        ("y > 1", "'y' has no value after each iteration"),
        ("total > 1", "'total' has no value after each iteration"),
    ],
)
def test_wrong_conditions_are_refused_before_the_run(
    program: trl.Program, condition: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        program.start(pause_when=condition)
    with program.start(paused=True) as run, pytest.raises(OptionError, match=message):
        run.pause_when(condition)


def test_a_program_without_a_loop_cannot_pause() -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        ctx.output("x", trl.value(i) * 2)
    with pytest.raises(OptionError, match="no loop over iterations"):
        ctx.compile({I: 3}).start(pause_when="x = 2")


def test_watching_a_run_does_not_read_beyond_its_last_point() -> None:
    """The last iteration computes x[12], which is no part of the output."""
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        x = trl.tensor((), domain=(i,)).named("x")
        x[0] = 0.0
        x[i + 1] = x + 1.0
        ctx.output("x", x)
        ctx.output("total", x.sum(over=i))
    options = trl.Options(executor="interpret", vectorize=False)
    program = ctx.compile({I: 12}, options)
    with program.start(pause_when="turn = 12") as run:
        assert run.wait() and (run.state, run.turn) == ("paused", 12)
        found = next(frame for frame in run.frames() if len(frame.curves["x"].values) == 12)
        assert found.curves["x"].values.tolist() == [*range(12)]
        run.resume()
        assert run.wait() and run.state == "finished"
        assert run.result()["x"].tolist() == [*range(12)]
    # point 0 is computed before the loop
    for value, turn in ((0, 1), (11, 11)):
        with program.start(pause_when=f"x = {value}") as run:
            assert run.wait() and (run.state, run.turn) == ("paused", turn)
            run.resume()
            assert run.wait() and run.state == "finished"
            *_, last = run.frames()
            assert last.reason == ""


def test_the_reason_ends_with_a_stopped_run(program: trl.Program) -> None:
    with program.start(pause_when="i = 2") as run:
        assert run.wait() and next(iter(run.frames())).reason == "i = 2"
        run.stop()
        *_, last = run.frames()
        assert (last.state, last.reason) == ("stopped", "")


def test_a_resumed_run_pauses_at_its_first_iteration(program: trl.Program, tmp_path: Path) -> None:
    with program.start(checkpoint=tmp_path, every=5, pause_when="i = 5") as run:
        assert run.wait() and run.turn == 5
    with program.start(resume=tmp_path, pause_when="i = 5") as run:
        assert run.wait() and (run.state, run.turn) == ("paused", 5)


def test_a_call_of_several_iterations_skips_no_condition() -> None:
    found = Breakpoint.from_text("i = 3")
    assert [found.is_reached(*turns) for turns in ((0, 2), (2, 4), (4, 6), (3, 3))] == [
        False,
        True,
        False,
        True,
    ]
