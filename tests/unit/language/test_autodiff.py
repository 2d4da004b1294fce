"""Gradients through every access pattern, compared with finite differences of the float64 reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.eager import eagerly
from tests.unit.checks import assert_same
from timerl_nb.base.errors import BranchError, GradientError, ReadError
from timerl_nb.compiler.ir.graph_verifier import prove_reads, verify
from timerl_nb.compiler.ir.reference.evaluator import Reference

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


def _remainder(x: Any, b: Any, B: Any, t: Any, T: Any) -> Any:
    s = trl.like(x)
    s[b, t] = (s[b, t - 1] * 0.7 + x).tanh()
    s[b, 0] = x[b, 0]
    return s * s


def _first_match(x: Any, b: Any, B: Any, t: Any, T: Any) -> Any:
    y = trl.first_match(trl.like(x))
    y[t % 3 == 1] = x.sin()
    y[b, t + 1] = y * x
    y[...] = x * x
    return y


def _attention(x: Any, b: Any, B: Any, t: Any, T: Any) -> Any:
    w = trl.constant(_numbers(2, 2, 3))
    row = trl.stack([x, x * x], axis=0)
    q, k, v = row @ w.take(0), row @ w.take(1), row.sin()
    score = k[b, 0 : t + 1] @ q  # of length t + 1
    weight = (score - score.max(axis=0)).exp()
    return ((weight / weight.sum(axis=0)) @ v[b, 0 : t + 1]).sum()


def _two_back(x: Any, b: Any, B: Any, t: Any, T: Any) -> Any:
    y = trl.like(x)
    y[b, 0] = x[b, 0]
    y[b, 1] = x[b, 1] * 2.0
    y[b, t + 2] = (y * y[b, t + 1] + x).sin()
    return y


def _errors_of_td(x: Any, b: Any, B: Any, t: Any, T: Any) -> Any:
    e = trl.like(x)
    e[b, T - 1] = x[b, T - 1]
    e[t < T - 1] = x.tanh() + 0.9 * x[b, t + 1] * x
    return e * e


def _conditional_branches(x: Any, b: Any, B: Any, t: Any, T: Any) -> Any:
    z = trl.like(x)
    z[b, t] = x.sin()[t > 2]
    z[b, t] = (x * x)[t <= 2]
    return z[(b + t) % 2 == 0].exp()


def _conditional_readers(x: Any, b: Any, B: Any, t: Any, T: Any) -> Any:
    y = x.sin()
    return y[t > 2].otherwise(0.0) * y + (y * y)[(t < 2) & (b > 0)].tanh().otherwise(1.0)


LOSSES: dict[str, Loss] = {
    "remaining points": _remainder,
    "first match": _first_match,
    "from the end": lambda x, b, B, t, T: x[-1, -2] * x[b, -3:].sin().sum(axis=0) + x[b, :-1].sum(),
    "index in pieces": lambda x, b, B, t, T: (
        x[b, trl.where(t < 2, t + 3, trl.where(b == 1, 0, t))] * x
    ),
    "slice in pieces": lambda x, b, B, t, T: (
        x[b, trl.where(t < 2, 0, 2) : trl.where(t < 3, t + 2, T)].exp().sum(axis=0).log() * x
    ),
    "conditional": lambda x, b, B, t, T: x[t % 2 == 1] * x.sin(),
    "conditional and shifted": lambda x, b, B, t, T: (x[t % 2 == 1] * x[b, t - 1]).tanh(),
    "conditional branches": _conditional_branches,
    "conditional readers": _conditional_readers,
    "conditional mean": lambda x, b, B, t, T: x[t > 1].square().mean(over=t) * x,
    "conditional sum of some": lambda x, b, B, t, T: x.sin()[b + t > 3].sum(over=b) * x[b, 0],
    "conditional max": lambda x, b, B, t, T: x[(t + b) % 2 == 0].max(over=t) * x[b, 1],
    "conditional suffix": lambda x, b, B, t, T: x.sin()[t % 2 == 0] * x[b, t:T].sum(axis=0),
    "conditional strided": lambda x, b, B, t, T: x.sin()[b, t // 2][t % 2 == 1] * x,
    "conditional window": lambda x, b, B, t, T: (
        x.sin()[t > 0][b, trl.max(t, 1) : T].sum(axis=0) * x
    ),
    "conditional return": lambda x, b, B, t, T: (
        (x[b, t:T].discounted_sum(0.9) * x)[t % 2 == 0].tanh() * -x
    ),
    "conditional prefix": lambda x, b, B, t, T: x[b, 0 : t + 1].tanh().sum(axis=0)[t > 1].square(),
    "conditional recurrence": lambda x, b, B, t, T: (
        _recurrence(x, b, B, t, T)[t % 3 == 2] * x[b == 1]
    ),
    "conditional in name": lambda x, b, B, t, T: x[b, 2].sin()[t > b] * x[0, 1],
    "two back": _two_back,
    "temporal differences": _errors_of_td,
    "strided": lambda x, b, B, t, T: x[b, t % 3] * x,
    "third and rest": lambda x, b, B, t, T: x[b, t // 3] * x[b, t % 3],
    "skewed": lambda x, b, B, t, T: x[(b + t) % 3, t] * x,
    "prefix of functions": lambda x, b, B, t, T: x[b, 0 : t + 1].tanh().sum(axis=0).square(),
    "suffix of functions": lambda x, b, B, t, T: (x[b, t:T] * x).sin().sum(axis=0),
    "window of functions": lambda x, b, B, t, T: (
        x[b, trl.max(t - 2, 0) : trl.min(t + 2, T)].exp().sum(axis=0).log()
    ),
    "block of functions": lambda x, b, B, t, T: (
        x[b, t - t % 2 : trl.min(t - t % 2 + 2, T)].exp().mean(axis=0)
    ),
    "product of a prefix": lambda x, b, B, t, T: x[b, 0 : t + 1].prod(axis=0),
    "product over a dimension": lambda x, b, B, t, T: x.prod(over=t) * x,
    "product with a zero": lambda x, b, B, t, T: (x * trl.value(t != 2).cast("f32")).prod(over=t),
    "two slices": lambda x, b, B, t, T: x[0:B, 0 : t + 1].tanh().sum(axis=(0, 1)) * x,
    "attention": _attention,
    "a moving position": lambda x, b, B, t, T: x[b, 0:T].take(T - 1 - t).square(),
    "a moving range": lambda x, b, B, t, T: x[b, 0:T].slice(t // 2, t // 2 + 2).square().sum(),
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
    "discounted in steps of two": lambda x, b, B, t, T: (
        x[b, t * 2 : T].discounted_sum(0.7)[t * 2 < T].square()
    ),
    "some discounted": lambda x, b, B, t, T: x[b, 1:T].discounted_sum(0.0) * x,
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


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x: x.cumprod(0).square(), lambda v: jnp.cumprod(v) ** 2),
        (lambda x: (x * x.flip(0)).square(), lambda v: (v * v[::-1]) ** 2),
        (lambda x: x.slice(1, 4).square() * x.take(0), lambda v: v[1:4] ** 2 * v[0]),
        (lambda x: (x * x).cummin(0, reverse=True), lambda v: jax.lax.cummin(v * v, reverse=True)),
    ],
    ids=["products so far", "reversed", "a part and a position", "extrema"],
)
def test_positions_are_differentiated_twice(ours: Any, theirs: Any) -> None:
    values = _numbers(5)
    with trl.Context("t") as ctx:
        x = trl.data(values)
        first = trl.grad(ours(x).sum(), x)
        ctx.output("y", trl.grad(first.square().sum(), x))
    found = Reference(ctx.pdg(), {"T": 1}, precise=True).outputs()["y"]

    with jax.enable_x64(True):
        v = jnp.asarray(values, jnp.float64)
        first = jax.grad(lambda v: theirs(v).sum())
        want = jax.grad(lambda v: (first(v) ** 2).sum())(v)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-7)


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
    """w.grad[i] is the derivative by w[i] alone, not through the update that led to it."""
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
        assert any("detach" in label for label in caught.value.others)
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


@lru_cache(maxsize=1)  # variants of a program run one after the other
def _meant(name: str) -> tuple[trl.Program, dict[str, np.ndarray]]:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        x = trl.data(_numbers(3, 5), domain=(b, t))
        ctx.output("dx", trl.grad(LOSSES[name](x, b, B, t, T), x))
    program = ctx.compile(BOUNDS)
    return program, Reference(program.pdg, BOUNDS).outputs()


@pytest.mark.some_of("name", 10)
@pytest.mark.parametrize("options", [{}, {"vectorize": False}, {"fuse": False}], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_run(name: str, options: dict[str, Any]) -> None:
    program, want = _meant(name)
    with eagerly():
        assert_same(want, program.with_options(**options).execute(), name)


def test_attention_against_jax() -> None:
    data = _numbers(2, 6, 4)
    weights = [_numbers(4, 4) * scale for scale in (0.5, 0.7, 0.9)]
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        x = trl.data(data, domain=(b, t))
        given = [trl.constant(w) for w in weights]
        q, k, v = (x @ w for w in given)
        score = k[b, 0 : t + 1] @ q
        weight = (score - score.max(axis=0)).exp()
        y = (weight / weight.sum(axis=0)) @ v[b, 0 : t + 1]
        for name, g in zip("qkvx", trl.grad(y * y, [*given, x]), strict=True):
            ctx.output(name, g)

    def loss(ws: list[Any], x: Any) -> Any:
        q, k, v = (x @ w for w in ws)
        score = jnp.einsum("btd,bsd->bts", q, k)
        seen = jnp.tril(jnp.ones((6, 6), bool))
        y = jax.nn.softmax(jnp.where(seen, score, -jnp.inf), -1) @ v
        return (y * y).sum()

    by_weight, by_data = jax.grad(loss, (0, 1))([jnp.asarray(w) for w in weights], data)
    want = dict(zip("qkvx", map(np.asarray, [*by_weight, by_data]), strict=True))
    assert_same(want, ctx.compile({"B": 2, "T": 6}).execute(), "attention")


def test_gated_recurrence_against_jax() -> None:
    data = _numbers(2, 5, 3)
    weights = [_numbers(6, 3) * scale for scale in (0.6, 0.8, 1.0)]

    def cell(ws: Any, h: Any, x: Any, ops: Any) -> Any:
        join, sigmoid, tanh = ops
        z, r = (sigmoid(join(h, x) @ w) for w in ws[:2])
        return h * (1.0 - z) + z * tanh(join(r * h, x) @ ws[2])

    with trl.Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims
        x = trl.data(data, domain=(b, t))
        given = [trl.constant(w) for w in weights]
        ops = (lambda h, x: trl.concat([h, x]), lambda y: y.sigmoid(), lambda y: y.tanh())
        h = trl.tensor((3,), domain=(b, t))
        h[b, 0] = trl.zeros((3,))
        after = cell(given, h, x, ops)
        h[b, t + 1] = after
        for name, g in zip("zrnx", trl.grad(after * after, [*given, x]), strict=True):
            ctx.output(name, g)

    def loss(ws: Any, x: Any) -> Any:
        ops = (lambda h, x: jnp.concatenate([h, x], -1), jax.nn.sigmoid, jnp.tanh)
        h, total = jnp.zeros((2, 3)), 0.0
        for k in range(5):
            h = cell(ws, h, x[:, k], ops)
            total = total + (h * h).sum()
        return total

    by_weight, by_data = jax.grad(loss, (0, 1))([jnp.asarray(w) for w in weights], data)
    want = dict(zip("zrnx", map(np.asarray, [*by_weight, by_data]), strict=True))
    for options in ({}, {"vectorize": False}, {"trial": False}):
        result = ctx.compile({"B": 2, "T": 5}, trl.Options(**options)).execute()
        assert_same(want, result, "recurrence")


@pytest.mark.parametrize("executor", ["interpret", "xla"])
@pytest.mark.parametrize("stores", ["auto", "point"])
def test_branches_may_have_shorter_slices_than_their_sources(executor: Any, stores: Any) -> None:
    """The gradient of one branch has slices of up to two elements, its operands of up to three."""
    x0 = np.random.default_rng(0).normal(size=(3, 3)).astype("f")
    with trl.Context("a", "b") as ctx:
        (a, A), (b, B) = ctx.dims
        x = trl.data(x0, domain=(a, b))
        y = trl.tensor((), domain=(a, b))
        y[b >= 2] = x.sin()
        y[b < 2] = y[a, b + 1] + x[a, 0 : b + 1].logsumexp(axis=0)
        ctx.output("g", trl.grad(y.square().sum(over=(a, b)), x))

    def loss(x: Any) -> Any:
        last = jnp.sin(x[:, 2])
        middle = last + jax.nn.logsumexp(x[:, :2], axis=1)
        return sum((v**2).sum() for v in (last, middle, middle + x[:, 0]))

    program = ctx.compile({A: 3, B: 3}, trl.Options(executor=executor, stores=stores))
    found = program.execute(progress=False)["g"]
    np.testing.assert_allclose(found, jax.grad(loss)(x0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("squared", [False, True])
def test_a_loss_read_outside_the_domain_is_refused(squared: bool) -> None:
    """With a linear loss, the gradient would not read the missing value, and be 0."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        w = trl.parameter((4,), domain=(i,), name="w")
        h = trl.tensor((4,), domain=(i, t)).named("h")
        h[i, 0] = trl.ones((4,))
        h[i, t + 1] = h * w
        end = h[i, T]
        with pytest.raises(ReadError, match=r"h\[i, T\] is read at i = 0, but h has no value"):
            (end.square() if squared else end).sum().backward()
