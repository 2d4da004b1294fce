"""Guarantees of budgets on random programs: met, monotone, and refusals are true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.drawn import Drawn
from tests.property.programs import programs
from tests.property.test_programs import RUNS, sampled
from timerl_nb.base.errors import BudgetError
from timerl_nb.compiler.ir.recorded_pass_decisions import Forecast
from timerl_nb.driver.program import Program

EACH = 20  # budgets per program when fuzzing; else a few
# Swaps are chosen greedily: a larger budget may be slower by this share.
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


@st.composite
def rows(draw: st.DrawFn) -> Drawn:
    """Sums over values of many rows, perhaps along a recurrence: they run in tiles."""
    names = draw(st.sampled_from((("b",), ("b", "t"), ("i", "b"))))
    bounds = {name.upper(): 2 if name == "i" else draw(st.sampled_from((16, 33))) for name in names}
    with trl.Context(*names) as ctx:
        d = Drawn(draw, ctx, bounds)
        weights = trl.constant(np.eye(8, dtype=np.float32) / 2)
        made = [trl.random.normal((8,), domain=tuple(d.symbols), stream="x")]
        for step in draw(
            st.lists(st.sampled_from(("product", "centred", "sum", "next")), max_size=3)
        ):
            x, before = draw(st.sampled_from(made)), draw(st.sampled_from(made))
            if step == "product":
                x = (x @ weights).tanh()
            elif step == "centred":
                x = x - x.mean(over=ctx.dims[-1][0])
            elif step == "sum":
                x = x + before
            elif names[-1] == "t":
                (b, _), (t, _) = ctx.dims
                y = trl.tensor((8,), domain=(b, t))
                y[b, 0] = x[b, 0]
                y[b, t + 1] = (y + x).tanh()
                x = y
            made.append(x)
        for k, x in enumerate(made[-2:]):
            ctx.output(f"y{k}", (x @ weights).tanh().sum(over=ctx.dims[-1][0]))
    return d


@sampled(max(4, RUNS // 8))
@given(st.one_of(programs(), rows()), st.sampled_from(WAYS))
def test_more_is_never_worse(drawn: Drawn, options: dict[str, Any]) -> None:
    """A budget named by a refusal suffices; a larger budget fits as well and is not slower."""
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
        if any(dim.step != 1 for dim in made.fused.dims):
            event("in blocks")
    event("least = most" if least == most else "between")
