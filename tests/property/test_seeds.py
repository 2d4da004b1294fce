"""Random programs for several seeds: each row equals a run with that seed."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.drawn import Drawn
from tests.property.programs import STEPS, ending_programs, hosted, programs
from tests.property.test_programs import BLOCKS, VARIANTS, chosen, few, sampled
from tests.property.test_xla import whatever_it_gains  # noqa: F401  (a fixture)
from tests.property.ways import Way, ways
from tests.unit.checks import Expected, assert_equal, assert_same, assert_same_points
from timerl_nb.base.errors import BoundsError, BranchError, ReadError, ScheduleError
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.execution.results.run_result import Result

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is read in slices"),
    pytest.mark.filterwarnings(
        "ignore:invalid value:RuntimeWarning"
    ),  # for odd numbers, on the host
    pytest.mark.usefixtures("whatever_it_gains"),
]

FIRST: Final = (0, 3, 2**31 - 1, 2**32 - 2, 2**63 - 2, 2**64 - 4, -2, -(2**63))
OPTIONS: Final = (*VARIANTS, *BLOCKS, {"vectorize": False, "fuse": False})


def with_draws(d: Drawn) -> None:
    """Add the random draws to the outputs; these must agree bitwise."""
    with d.ctx:
        d.ctx.output("drawn", trl.random.uniform((2,), domain=d.domain()))


def assert_rows(
    d: Drawn, result: Result, of: Any, first: int, calls: list[tuple[str, dict[str, int], float]]
) -> None:
    """Check that each row equals the reference of graph `of` with that seed."""
    assert result.seeds == tuple(range(first, first + len(result.seeds)))
    for s, seed in enumerate(result.seeds):
        row, want = result.row(s), Expected(of, d.bounds, seed)
        assert set(row) == set(want.outputs["output"])
        want.assert_same(row, f"row {s}")
        want.assert_same(row.parameters, f"row {s}", "parameter")
        assert_equal({"drawn": want.outputs["output"]["drawn"]}, row)
        assert_same_points(want.reference.coordinates(), row.coordinates)
        assert_same(want.reference.lengths(), row.lengths, "lengths")
        mine = [
            (name, {k: v for k, v in at.items() if k != "seed"}, x)
            for name, at, x in calls
            if at["seed"] == s
        ]
        order = lambda call: (call[0], sorted(call[1].items()))  # noqa: E731
        assert sorted(map(order, mine)) == sorted(map(order, want.calls))
        sums = [[x for *_, x in sorted(some, key=order)] for some in (mine, want.calls)]
        np.testing.assert_allclose(*sums, rtol=1e-3, atol=1e-4 + want.calls_off)


@sampled(few(6))
@given(
    st.one_of(programs(), programs(6, hosted, (*STEPS, *[hosted] * 3))),
    st.sampled_from(OPTIONS),
    ways(),
    st.sampled_from(FIRST),
    st.integers(1, 3),
)
def test_each_row_is_a_run_alone(
    d: Drawn, options: dict[str, Any], way: Way, first: int, seeds: int
) -> None:
    with_draws(d)
    graph = d.ctx.pdg()
    program = way.compiled(d.ctx, d.bounds, chosen(d, options), seeds=seeds)
    assert program.seeds == seeds
    whole, fused = (
        Reference(of, program.bounds, first).outputs() for of in (program.pdg, program.fused)
    )
    for s in range(seeds):  # bitwise equal
        alone = Reference(graph, d.bounds, first + s)
        here = {
            n: at["seed"] == s
            for n, at in Reference(program.pdg, program.bounds, first).coordinates().items()
        }
        rows = {n: x[here[n]] if n in here else x[s] for n, x in whole.items()}
        assert_equal(alone.outputs(), rows)
        assert_equal({"drawn": alone.outputs()["drawn"]}, {"drawn": fused["drawn"][s]})
    d.calls.clear()
    assert_rows(d, way.run(program, seed=first), graph, first, d.calls)
    smaller = {name: max(1, bound - 1) for name, bound in d.bounds.items()}
    try:
        small = program.with_bounds(smaller)
    except (ReadError, BranchError, BoundsError):
        return
    assert small.seeds == seeds


@sampled(few(6))
@given(ending_programs((*STEPS, hosted)), st.sampled_from(OPTIONS), ways(), st.sampled_from(FIRST))
def test_each_row_ends_by_itself(
    drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any], way: Way, first: int
) -> None:
    d, done = drawn
    with_draws(d)
    last = d.ctx.space.all[-1].bound
    bounds = {**d.bounds, last: trl.until(done, at_most=d.bounds[last])}
    found: list[Any] = []
    for seeds in (None, 2):
        try:
            found.append(way.compiled(d.ctx, bounds, chosen(d, options), seeds=seeds))
        except (BoundsError, ReadError, ScheduleError) as error:
            found.append(error)
    alone, program = found
    if isinstance(alone, Exception) or isinstance(program, Exception):
        event(f"refused: {type(alone).__name__}")
        assert type(alone) is type(program)
        assert isinstance(alone, ScheduleError) or str(alone) == str(program)
        return
    d.calls.clear()
    assert_rows(d, way.run(program, seed=first), alone.source_graph, first, d.calls)
