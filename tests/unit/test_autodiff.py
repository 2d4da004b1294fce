"""Gradients through every access pattern, against finite differences of the reference in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.errors import BranchError, GradientError
from timerl_nb.ir.reference import Reference
from timerl_nb.ir.verify import prove_reads, verify

BOUNDS = {"B": 3, "T": 5}
Loss = Callable[..., Any]


def _recurrence(x: Any, b: Any, B: Any, t: Any, T: Any) -> Any:
    s = trl.like(x)
    s[b, 0] = x[b, 0]
    s[b, t + 1] = (s * 0.7 + x).tanh()
    return s * s


def _backward(x: Any, b: Any, B: Any, t: Any, T: Any) -> Any:
    s = trl.like(x)
    s[b, T - 1] = x[b, T - 1] * 2.0
    s[t < T - 1] = x + 0.5 * s[b, trl.min(t + 1, T - 1)]
    return s.tanh()


def _branches(x: Any, b: Any, B: Any, t: Any, T: Any) -> Any:
    y = trl.like(x)
    y[t % 2 == 0] = x * x
    y[t % 2 == 1] = x.sin()
    return y


LOSSES: dict[str, Loss] = {
    "linear": lambda x, b, B, t, T: x.tanh() * x,
    "constant": lambda x, b, B, t, T: x[b, 1] * x,
    "last": lambda x, b, B, t, T: x[B - 1, T - 1] * x,
    "ahead": lambda x, b, B, t, T: x[b, trl.min(t + 2, T - 1)] * x,
    "back": lambda x, b, B, t, T: x[b, trl.max(t - 1, 0)].sin(),
    "reversed": lambda x, b, B, t, T: x[b, T - 1 - t] * x.exp(),
    "half": lambda x, b, B, t, T: x[b, t // 2] * x,
    "suffix sum": lambda x, b, B, t, T: x[b, t:T].sum(axis=0).square(),
    "suffix discounted": lambda x, b, B, t, T: x[b, t:T].discounted_sum(0.9).square(),
    "window discounted": lambda x, b, B, t, T: (
        x[b, t : trl.min(t + 3, T)].discounted_sum(0.5).square()
    ),
    "prefix mean": lambda x, b, B, t, T: x[b, 0 : t + 1].mean(axis=0).tanh() * x,
    "prefix max": lambda x, b, B, t, T: x[b, 0 : t + 1].max(axis=0).square(),
    "window min": lambda x, b, B, t, T: x[b, trl.max(t - 2, 0) : t + 1].min(axis=0).square(),
    "mean over b": lambda x, b, B, t, T: (x - x.mean(over=b)).square(),
    "max over t": lambda x, b, B, t, T: x.max(over=t).square(),
    "sum over both": lambda x, b, B, t, T: x.sum(over=(b, t)).tanh() * x,
    "whole slice": lambda x, b, B, t, T: x[b, 0:T].cumsum().square().sum(),
    "part of a slice": lambda x, b, B, t, T: x[b, 1:3].tanh().sum(axis=0) * x,
    "recurrence": _recurrence,
    "backward recurrence": _backward,
    "branches": _branches,
    "where": lambda x, b, B, t, T: trl.where(x > 0.35, x * x, -x),
    "maximum": lambda x, b, B, t, T: trl.max(x, x * 0.5) + trl.min(x, 0.3),
    "powers": lambda x, b, B, t, T: (x * x + 1.0) ** 1.5 + 2.0**x,
    "quotient": lambda x, b, B, t, T: x / (x * x + 1.0) + (x * x + 1.0).log().sqrt(),
    "functions": lambda x, b, B, t, T: abs(x) + x.cos() * x.sigmoid() + (x * 0.3).erf_inv(),
}


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


def _evaluate(loss: Loss, x: np.ndarray, *, gradient: bool) -> np.ndarray:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        # data are float32; the evaluator computes in float64 from the exact differences below
        tensor = trl.data(x, domain=(b, t))
        value = loss(tensor, b, B, t, T)
        if gradient:
            ctx.output("y", trl.grad(value, tensor))
        else:
            ctx.output("y", value)
    graph = ctx.pdg()
    verify(graph)
    prove_reads(graph, BOUNDS)
    return Reference(graph, BOUNDS, precise=True).outputs()["y"]


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_is_the_finite_difference(name: str) -> None:
    loss, x = LOSSES[name], _numbers(3, 5)
    found = _evaluate(loss, x, gradient=True)
    want = np.zeros_like(found)
    step = np.float32(2.0**-9)  # exact in float32 around the values used
    for at in np.ndindex(*x.shape):
        higher, lower = x.copy(), x.copy()
        higher[at] += step
        lower[at] -= step
        width = float(higher[at]) - float(lower[at])
        rise = _evaluate(loss, higher, gradient=False).sum()
        want[at] = (rise - _evaluate(loss, lower, gradient=False).sum()) / width
    np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-4)


def test_second_derivative() -> None:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        x = trl.data(_numbers(3, 5), domain=(b, t))
        first = trl.grad(x[b, 0 : t + 1].sum(axis=0) ** 3.0, x)
        ctx.output("y", trl.grad(first * first, x))
    found = Reference(ctx.pdg(), BOUNDS, precise=True).outputs()["y"]

    def f(v: Any) -> Any:
        return (jnp.cumsum(v, 1) ** 3.0).sum()

    with jax.enable_x64(True):
        v = jnp.asarray(_numbers(3, 5), jnp.float64)
        want = jax.grad(lambda v: (jax.grad(f)(v) ** 2).sum())(v)
    np.testing.assert_allclose(found, want, rtol=1e-5)


def test_back_propagation_through_time_is_jax_grad_of_the_unrolled_loop() -> None:
    xs, w0 = _numbers(5, 2), _numbers(2, 2)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x, w = trl.data(xs, domain=(t,)), trl.data(w0)
        h = trl.tensor((2,), domain=(t,))
        h[0] = trl.zeros((2,))
        h[t + 1] = (x + h @ w).tanh()
        dw, dx = trl.grad((h * h).sum(), [w, x])
        ctx.output("dw", dw)
        ctx.output("dx", dx)
    found = ctx.compile({T: 5}).execute()

    def unrolled(w: Any, x: Any) -> Any:
        state, total = jnp.zeros(2), 0.0
        for k in range(5):
            total = total + (state * state).sum()
            state = jnp.tanh(x[k] + state @ w)
        return total

    dw, dx = jax.grad(unrolled, (0, 1))(jnp.asarray(w0), jnp.asarray(xs))
    np.testing.assert_allclose(found["dw"], dw, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["dx"], dx, rtol=1e-4, atol=1e-5)


def test_parameters_are_leaves_at_every_iteration() -> None:
    """w.grad[i] is the derivative by w[i] alone: not through the update that led to it."""
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        w = trl.parameter(np.float32(1.0), domain=(i,), name="w")
        (w * w).backward()
        trl.optim.SGD([w], lr=0.25).step()
        ctx.output("grad", w.grad)
        ctx.output("w", w)
    result = ctx.compile({I: 3}).execute()
    np.testing.assert_allclose(result["w"], [1.0, 0.5, 0.25])
    np.testing.assert_allclose(result["grad"], [2.0, 1.0, 0.5])
    np.testing.assert_allclose(result.parameters["w"], 0.125)


def test_detach_and_choices_stop_gradients() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(_numbers(5), domain=(t,))
        ctx.output("y", trl.grad(x * x.detach() + (x > 0).cast("f32"), x) - x)
    assert not ctx.compile({T: 5}).execute()["y"].any()


def test_several_losses_add_up() -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        w = trl.parameter(np.float32(3.0), domain=(i,), name="w")
        (w * 2.0).backward()
        (w * w).backward()
        ctx.output("grad", w.grad)
    np.testing.assert_allclose(ctx.compile({I: 2}).execute()["grad"], [8.0, 8.0])


def test_what_cannot_be_reached_is_said() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x, y = trl.data(_numbers(5), domain=(t,)), trl.data(_numbers(5), domain=(t,))
        with pytest.raises(GradientError, match="does not depend on"):
            trl.grad(x * 2.0, y)
        with pytest.raises(GradientError, match="without a derivative") as caught:
            trl.grad(x.detach() * y, x)
        assert "detach" in str(caught.value)
        with pytest.raises(GradientError, match="reaches no parameter"):
            x.backward()
        with pytest.raises(GradientError, match="floating-point"):
            trl.grad(x > 0, x)


def test_a_branch_after_the_gradient_names_both_lines() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(_numbers(5), domain=(t,))
        y = trl.like(x)
        y[0] = x[0]
        trl.grad(y * y, x)
        with pytest.raises(BranchError) as caught:
            y[t + 1] = y * 0.5
    text = str(caught.value)
    assert "y[t + 1] = y * 0.5" in text
    assert "trl.grad(y * y, x)" in text


def test_a_slice_that_moves_must_be_reduced() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(_numbers(5), domain=(t,))
        with pytest.raises(GradientError, match="moves with"):
            trl.grad(x[t : trl.min(t + 2, T)].tanh().sum(axis=0), x)
