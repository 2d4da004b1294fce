"""Partial schedules, used if isl takes too long: same results, and a report of the loss."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.eager import eagerly
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from tests.unit.checks import assert_memory_is_sound, assert_same
from timerl_nb.base.errors import CeilingError
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.isl import operation_limit as ceiling
from timerl_nb.compiler.scheduling.fallback_schedule import by_parts

BOUNDS = {"B": 3, "I": 2, "T": 9}
TINY = trl.Options(isl_operations=1)
STOPPED = [
    pytest.mark.filterwarnings("ignore:.*is read in slices"),
    pytest.mark.filterwarnings("ignore:a trial schedule"),
    pytest.mark.filterwarnings("ignore:scheduling "),
]
pytestmark = STOPPED


@pytest.mark.parametrize(
    ("window", "hidden", "changes"),
    [
        (None, (8,), {}),
        (5, (8,) * 8, {}),
        (5, (8,), {"fuse": False}),
        (None, (8,), {"vectorize": False}),
        (5, (8,), {"vectorize": False}),
    ],
    ids=str,
)
def test_reinforce_by_parts(window: int | None, hidden: Any, changes: dict[str, Any]) -> None:
    ctx = reinforce(window, hidden=hidden, optimizer=trl.optim.SGD)
    program = ctx.compile(BOUNDS, TINY.with_(**changes))
    assert program.stages["schedule"].summary.endswith("by parts")
    with eagerly():  # without compiling each kernel
        result = program.execute(seed=2)
        want = ctx.compile(BOUNDS).execute(seed=2)
    np.testing.assert_allclose(result["return"], want["return"], rtol=1e-4)
    assert program.memory.peak == result.memory.peak


def test_what_is_lost_is_said() -> None:
    with pytest.warns(UserWarning, match="scheduled the statements by parts") as caught:
        program = reinforce(5).compile(BOUNDS, TINY)
    (told,) = [str(w.message) for w in caught if "by parts" in str(w.message)]
    assert re.search(r"reset, acting\S*, learning, update, in a loop over i\n", told), told
    assert re.search(r"\n  within \(i\): acting\S*, in a loop over t\n", told)
    assert f"predicted peak is {program.memory.peak:,} bytes" in told
    assert "isl_operations" in told
    assert all(w.filename == __file__ for w in caught if "by parts" in str(w.message))
    loops = program.schedule.tree.loops()
    shared = set.intersection(*({k for k, _ in at} for at in loops.values() if at))
    assert len(shared) == 1, "one loop over the iterations around all that has any"


@pytest.mark.some_of("name", 15)
@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_by_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "BESIDE", 6_000_000)
    pattern = PATTERNS[name]
    ctx = pattern.context()
    want = Reference(ctx.pdg(), pattern.bounds, 7).outputs()
    try:
        program = ctx.compile(pattern.bounds, TINY.with_(vectorize=False))
    except CeilingError as error:
        if name == "crossed_and_strided":  # two dozen remainders in the reads of one value
            assert "isl cannot find the last reader" in error.what
        else:
            assert "depend on each other in a cycle" in error.what
        return
    events: list[Event] = []
    with eagerly():
        result = program.execute(seed=7, on_event=events.append)
    assert_same(want, result, "by parts")
    assert_memory_is_sound(program, result, events)


def test_where_any_loop_will_do_the_outer_dimension_is_taken_upwards() -> None:
    with trl.Context("a", "b") as ctx:
        (a, _), (b, _) = ctx.dims
        ctx.output("x", trl.random.normal(domain=(a, b)).named("x"))
    program = ctx.compile({"A": 2, "B": 3}, trl.Options(vectorize=False))
    tree, _ = by_parts(program.schedule.constraints, 1_000_000, program.pdg, "")
    (time,) = tree.times().values()
    assert [str(e) for e in time] == ["a", "b"]


def test_isl_puts_a_component_in_order_that_no_loop_fits() -> None:
    """y[t] needs x[t + 1], and x[t + 2] needs y[t]: one of the two must be shifted."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,)).named("x")
        y = x[trl.min(t + 1, T - 1)] * 0.5
        x[t < 2] = trl.value(t).cast("f32")
        x[t >= 2] = y[t - 2] + 1.0
        ctx.output("y", y)
    program = ctx.compile({T: 9}, trl.Options(lift=False))
    tree, parts = by_parts(program.schedule.constraints, 1_000_000, program.pdg, "isl was stopped.")
    assert len(tree.statements) == len(program.schedule.tree.statements)
    assert "isl was stopped." in parts.describe_loss(12)
