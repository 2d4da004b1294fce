"""Random programs as XLA programs: the same numbers as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.programs import Drawn, chain, ending_programs, programs
from tests.property.test_programs import BLOCKS, RUNS, VARIANTS, assert_same, chosen, sampled
from timerl_nb.errors import BoundsError, ReadError, ScheduleError
from timerl_nb.ir.reference import Reference

pytestmark = pytest.mark.filterwarnings("ignore:.*is read in slices")

XLA = {"executor": "xla"}


def lowered(program: trl.Program) -> trl.Program:
    assert program.executable.lowered is not None, program.executable.how
    return program


@sampled(RUNS // 2)
@given(st.one_of(programs(), programs(4, last=chain)), st.sampled_from(VARIANTS + BLOCKS))
def test_lowered_programs_agree(drawn: Drawn, options: dict[str, Any]) -> None:
    want = Reference(drawn.ctx.pdg(), drawn.bounds, seed=3).outputs()
    program = lowered(drawn.ctx.compile(drawn.bounds, chosen(drawn, {**options, **XLA})))
    assert_same(want, dict(program.execute(seed=3)), "lowered")


@sampled(RUNS // 4)
@given(ending_programs(), st.sampled_from(VARIANTS))
def test_lowered_programs_end_early(
    drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any]
) -> None:
    d, done = drawn
    last = d.ctx.space.all[-1].bound
    try:
        bounds = {**d.bounds, last: trl.until(done, at_most=d.bounds[last])}
        program = lowered(d.ctx.compile(bounds, chosen(d, {**options, **XLA})))
    except (BoundsError, ReadError, ScheduleError) as error:
        event(f"refused: {type(error).__name__}")
        return
    want = program.with_options(executor="interpret").execute(seed=3)
    have = program.execute(seed=3)
    for name, lengths in want.lengths.items():
        np.testing.assert_array_equal(have.lengths[name], lengths)
    assert_same(dict(want), dict(have), "lowered")
