"""Random programs that act and then learn: recomputed values equal stored ones."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.test_programs import RUNS, sampled
from tests.unit.checks import assert_same
from timerl_nb.compiler.ir.reference.evaluator import Reference

pytestmark = pytest.mark.filterwarnings("ignore:.*is read in slices")

WAYS: tuple[dict[str, Any], ...] = (
    {"incrementalize": {"t": 2}},
    {"incrementalize": {"t": 3}, "fuse": False},
    {"incrementalize": False},
    {"incrementalize": 2, "trial": False},
    {"incrementalize": {"t": 2}, "executor": "xla"},
)


def acting(rng: Random) -> trl.Context:
    """Add a state updated by layers of random shape and by draws, and sums over time."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        size = rng.choice((1, 2, 3))
        scale = trl.tensor((), domain=(i,))
        state = trl.tensor((size,), domain=(b, i, t))
        state[b, i, 0] = trl.random.normal((size,), domain=(b, i))
        made = [state * scale]
        for _ in range(rng.randint(1, 5)):
            made.append(_layer(rng, made, size, (b, i, t)))
        state[b, i, t + 1] = (made[-1] + 0.5 * rng.choice(made)).tanh()
        later = state.sum(axis=0)[b, i, t:T].discounted_sum(0.9)
        total = trl.full((), 0.0)
        for k in range(rng.randint(1, 3)):
            x, y = rng.choice(made) if k else state, rng.choice(made)
            lost = (x * y - rng.choice((x, y))).sum(axis=0)
            total = total + (lost * rng.choice((later, later, 0.5))).mean(over=(b, t))
        scale[i == 0] = 0.5
        scale[i >= 1] = (scale[i - 1] + 0.1 * total[i - 1]).tanh()
        ctx.output("total", total)
        ctx.output("scale", scale)
    return ctx


def _layer(rng: Random, made: list[Any], size: int, point: tuple[Any, ...]) -> Any:
    x, y = rng.choice(made), rng.choice(made)
    weight = np.linspace(-1, 1, size * size, dtype=np.float32).reshape(size, size)
    return rng.choice(
        (
            lambda: (x @ trl.constant(weight)).tanh(),
            lambda: x * y + 0.1,
            lambda: x + trl.random.normal((size,), domain=point),
            lambda: trl.where(x > y, x, y * 0.5),
            lambda: (x.exp() * 0.1).sum(axis=0) + y,
        )
    )()


@sampled(RUNS // 4)
@given(st.integers(0, 1 << 30), st.sampled_from(WAYS))
def test_what_is_computed_again_is_the_same(seed: int, way: dict[str, Any]) -> None:
    ctx = acting(Random(seed))
    bounds = {"B": 2, "I": 2, "T": 5}
    want = Reference(ctx.pdg(), bounds, seed=3).outputs()
    program = ctx.compile(bounds, trl.Options(rematerialize=True, **way))
    event(f"{bool(program.stages['rematerialize'].steps)}")
    assert_same(want, Reference(program.fused, bounds, seed=3).outputs(), "fused graph")
    assert_same(want, program.execute(seed=3, progress=False), "run")
