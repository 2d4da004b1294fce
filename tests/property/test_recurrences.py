"""Gradients of valid recurrences are right, and have a schedule if the forward pass has one.

The reference is a plain walk over the points (`recurrences`). A few gradients are still refused:
one statement holds
all points of a tensor with several branches, and may lack an affine order.
"""

from __future__ import annotations

import os
from random import Random

import numpy as np
import pytest

import timerl_nb as trl
from tests.property.recurrences import Recurrence, drawn
from timerl_nb.base.errors import ScheduleError

FUZZED = int(os.environ.get("TIMERL_FUZZ", "0"))
FIRST = Random().randrange(10**6) if FUZZED else 0
RUNS = FUZZED or 5


def _check(one: Recurrence) -> None:
    want, slope = one.value_and_gradient(one.data())
    ctx, bounds = one.build(gradient=True)
    symbols = {bound: bounds[str(bound)] for _, bound in ctx.dims}
    program = ctx.compile(symbols, tell=False)
    for executor in ("xla", "interpret"):
        result = program.with_options(executor=executor).execute(progress=False)
        np.testing.assert_allclose(result["s"], want, rtol=1e-3, atol=1e-3, err_msg=str(one))
        np.testing.assert_allclose(result["g"], slope, rtol=2e-3, atol=2e-3, err_msg=str(one))


def _compiles(one: Recurrence) -> bool:
    ctx, bounds = one.build(gradient=False)
    try:
        ctx.compile({bound: bounds[str(bound)] for _, bound in ctx.dims}, tell=False)
    except ScheduleError:
        return False
    return True


def test_random_recurrences_have_right_gradients() -> None:
    refused: list[str] = []
    for seed in range(FIRST, FIRST + RUNS):
        one = drawn(seed)
        try:
            _check(one)
        except ScheduleError as error:
            if _compiles(one):
                refused.append(f"seed {seed}: {error.what}\n{one}")
    assert len(refused) <= max(1, RUNS // 8), "\n".join(refused)


A = {"a": 4}
TWO = {"c": 3, "j": 2}
KINDS = {
    "the next, up to a constant": Recurrence(A, ("a >= 3",), ((), (("min(a + 1, 3)",),))),
    "the one before, from a constant": Recurrence(A, ("a < 1",), ((), (("max(a - 1, 0)",),))),
    "clamped at both ends": Recurrence(
        {"a": 5}, ("a < 1",), ((), (("min(max(a - 2, 0), 3)",), ("max(a - 1, 0)",)))
    ),
    "many points of one": Recurrence({"a": 6}, ("a < 1",), ((), (("a // 2",), ("a // 3",)))),
    "in turn": Recurrence({"a": 6}, ("a < 2",), ((), (("a % 2",), ("a - 2",)))),
    "flattened": Recurrence(
        TWO, ("2 * c + j < 1",), ((), (("(2 * c + j - 1) // 2", "(2 * c + j - 1) % 2"),))
    ),
    "flattened, two steps back": Recurrence(
        TWO,
        ("2 * c + j < 2",),
        (
            (),
            (
                ("(2 * c + j - 1) // 2", "(2 * c + j - 1) % 2"),
                ("(2 * c + j - 2) // 2", "(2 * c + j - 2) % 2"),
            ),
        ),
        is_reversed=True,
    ),
    "flattened, downwards": Recurrence(
        TWO,
        ("2 * c + j >= 5",),
        ((), (("min(2 * c + j + 1, 5) // 2", "min(2 * c + j + 1, 5) % 2"),)),
        is_linear=True,
    ),
    "flattened, two readers of each point": Recurrence(
        {"c": 2, "j": 4},
        ("4 * c + j < 1",),
        ((), (("(4 * c + j) // 2 // 4", "(4 * c + j) // 2 % 4"),)),
    ),
    "windows": Recurrence({"a": 5}, ("a < 1",), ((), (("max(a - 2, 0):a",), ("0:a",)))),
    "rows of all, and the column before": Recurrence(
        {"c": 3, "j": 3}, ("c < 1",), ((), (("0:3", "0:j"),))
    ),
    "branches that never hold": Recurrence(
        {"a": 3}, ("a < 3", "a < 2"), ((), (("0",),), (("1",),))
    ),
    "three branches": Recurrence(
        {"a": 6}, ("a < 1", "a < 4"), ((), (("a - 1",),), (("a - 2",), ("max(a - 4, 0)",)))
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_recurrences(kind: str) -> None:
    _check(KINDS[kind])


def test_a_circle_through_a_gradient_says_that_the_forward_pass_has_an_order() -> None:
    """Each x is moved by a gradient of later values, which depend on x."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x, s = (trl.tensor((), domain=(t,)) for _ in range(2))
        x[0], s[0] = trl.constant(1.0), trl.constant(0.0)
        y = x.detach()
        s[t + 1] = s * 0.5 + y
        g = trl.grad(s.square().sum(over=t), y)
        x[t + 1] = x - 0.1 * g
        ctx.output("x", x)
    with pytest.raises(ScheduleError) as caught:
        ctx.compile({T: 4})
    said = str(caught.value)
    assert "the forward pass has an order of execution, but its gradient has none" in said
    assert "[t=0]" in said and "x[t + 1] = x - 0.1 * g" in said
