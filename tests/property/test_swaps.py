"""Random programs with random swaps: same bits, and memory as predicted."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.eager import eagerly
from tests.property.drawn import Drawn
from tests.property.programs import chain, ending_programs, programs
from tests.property.test_programs import BLOCKS, RUNS, VARIANTS, chosen, ending, sampled
from tests.property.ways import SEEDS, some_swaps
from tests.unit.checks import assert_equal, with_swaps
from timerl_nb.compiler.memory.budget.swapping import Slack
from timerl_nb.runtime.interpreter.interpreter import Run

pytestmark = pytest.mark.filterwarnings("ignore:.*is read in slices")


@sampled(RUNS // 2)
@given(
    st.one_of(programs(), programs(4, last=chain)),
    st.sampled_from(VARIANTS + BLOCKS),
    st.builds(Slack, st.integers(0, 3), st.integers(0, 2)),
    st.integers(0, 2**32),
)
def test_any_swaps_change_nothing_but_memory(
    drawn: Drawn, options: dict[str, Any], slack: Slack, seed: int
) -> None:
    program = drawn.ctx.compile(drawn.bounds, chosen(drawn, options))
    run = assert_same_with_swaps(program, slack, Random(seed))
    line = run.executable.plan.timeline()
    np.testing.assert_array_equal(run.ledger.timeline(), line.bytes)
    if run.executable.plan.swaps.all:
        np.testing.assert_array_equal(run.ledger.host_trace, line.host)


@sampled(RUNS // 4)
@given(
    ending_programs(),
    st.sampled_from(VARIANTS),
    st.builds(Slack, st.integers(0, 3), st.integers(0, 2)),
    st.integers(0, 2**32),
)
def test_swaps_where_a_dimension_ends_early(
    drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any], slack: Slack, seed: int
) -> None:
    program = ending(drawn, options)
    if program is None:
        return
    run = assert_same_with_swaps(program, slack, Random(seed))
    assert run.ledger.peak <= run.executable.plan.peak


def assert_same_with_swaps(program: trl.Program, slack: Slack, random: Random) -> Run:
    """Run the program unchanged and with random swaps; return the latter run."""
    swaps = some_swaps(program, slack, random)
    seed = random.choice(SEEDS)
    run = with_swaps(program, swaps, seed)
    with eagerly():
        want = program.execute(seed)
        run.complete()
        have = run.outputs()
    assert_equal(want, {name: x for (role, name), x in have.items() if role == "output"})
    run.release()
    return run
