"""What a budget promises, over random programs: it is kept to, more is never worse, and refusals are true."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.drawn import Drawn
from tests.property.programs import programs
from tests.property.test_programs import RUNS, sampled
from timerl_nb.driver.program import Program
from timerl_nb.errors import BudgetError
from timerl_nb.ir.choice import Forecast

EACH = 20  # budgets of a program, where thousands are tried; else a few
# Swaps are chosen greedily: by so much of its seconds a larger budget may have been used worse.
GREED = 1e-3
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"executor": "xla"},
    {"swap": False},
    {"rematerialize": True},
    {"trial": False, "executor": "xla"},
    {"vectorize": False},
    {"fuse": False},
)


def forecast(program: Program) -> Forecast:
    (choice,) = program.stages["incrementalize"].choices
    assert isinstance(choice.taken.forecast, Forecast)
    return choice.taken.forecast


@sampled(max(2, RUNS // 16))
@given(programs(), st.sampled_from(WAYS))
def test_more_is_never_worse(drawn: Drawn, options: dict[str, Any]) -> None:
    """Asking for what a refusal names succeeds; more memory fits as well, and takes no longer."""
    program = drawn.ctx.compile(drawn.bounds, trl.Options(**options))
    most = program.memory.needed
    try:
        program.with_options(device_memory=1)
    except BudgetError as error:
        least = error.needed
    else:
        event("nothing is needed")
        return
    assert least is not None and least <= most
    with pytest.raises(BudgetError) as caught:
        program.with_options(device_memory=least - 1)
    assert caught.value.needed == least
    count = EACH if RUNS > 100 else 5
    before = None
    for k in range(count):
        budget = least + (most - least) * k // (count - 1)
        made = program.with_options(device_memory=budget)
        assert least <= made.memory.needed <= budget
        found = forecast(made)
        assert (found.peak, found.needed) == (made.memory.peak, made.memory.needed)
        assert before is None or found.seconds <= before * (1 + GREED)
        before = found.seconds
    event("least = most" if least == most else "between")
