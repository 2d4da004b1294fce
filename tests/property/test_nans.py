"""Random programs with NaN detection: results are unchanged, and reports are true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.drawn import Drawn
from tests.property.programs import chain, ending_programs, programs
from tests.property.test_programs import BLOCKS, VARIANTS, chosen, ending, few, sampled
from tests.unit.checks import Expected
from timerl_nb.base.errors import ExecutionError

pytestmark = pytest.mark.filterwarnings("ignore:.*is read in slices")


def watched(program: trl.Program, expected: Expected) -> None:
    """Check that the program runs as usual, or reports a true NaN."""
    try:
        result = program.with_options(check_nan=True).execute(seed=3)
    except ExecutionError as error:
        assert "NaN" in error.what, error
        event("a NaN")
        plain = program.with_options(executor="interpret", fuse=False, simplify=False)
        assert any(_holds_nan(x) for x in plain.execute(seed=3).values()), error
        return
    event("no NaN")
    expected.assert_same(result, "watched")


def _holds_nan(x: Any) -> bool:
    return x.dtype.kind == "f" and bool(np.isnan(x).any())


@sampled(few(4))
@given(st.one_of(programs(), programs(4, last=chain)), st.sampled_from(VARIANTS + BLOCKS))
def test_watched_programs_agree(drawn: Drawn, options: dict[str, Any]) -> None:
    program = drawn.ctx.compile(drawn.bounds, chosen(drawn, options))
    watched(program, Expected(drawn.ctx.pdg(), drawn.bounds, 3))


@sampled(few(4))
@given(ending_programs(), st.sampled_from(VARIANTS))
def test_watched_programs_end_early(
    drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any]
) -> None:
    d, _ = drawn
    program = ending(drawn, options)
    if program is None:
        return
    watched(program, Expected(program.source_graph, d.bounds, 3))
