"""Operations on axes: value, gradient, batches and varying lengths, in one table each.

Values are compared with JAX's functions, gradients with finite differences of the float64
reference, and runs under all passes with the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy import special

import timerl_nb as trl
from tests.eager import eagerly
from tests.unit.checks import assert_same
from timerl_nb.compiler.ir.graph_verifier import prove_reads, verify
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.runtime.jax_backend.gather_scatter_rules import _last_ones

BOUNDS = {"B": 2, "T": 3}
SHAPE = (4, 3)  # shape of the tested tensor
AT = np.array([[2, 0], [3, 3]], np.int32)
ALONG = np.array([[0, 2, 2], [3, 1, 0]], np.int32)
BEYOND = np.array([1, -1, 4, 1, 7], np.int32)
SEVERAL = np.array([[2, 5], [0, 2]], np.int32)


@dataclass(frozen=True)
class Case:
    """An operation as ours and as JAX's, and whether it has a gradient."""

    ours: Callable[[Any], Any]
    theirs: Callable[[Any], Any]
    smooth: bool = True


def _numbers(*shape: int) -> np.ndarray:
    """Return numbers with few digits: a small step is exact in float32."""
    drawn = np.random.default_rng(3).uniform(-2, 2, shape)
    return (np.round(drawn * 2**9) / 2**9).astype(np.float32)


_FIRST = float(_numbers(2, 3, *SHAPE)[0, 0, 0, 1])


def _linear_scan(x: Any, reverse: bool) -> Any:
    rows = x[::-1] if reverse else x
    y = [rows[0]]
    for row in rows[1:]:
        y.append(0.5 * jnp.cos(row) * y[-1] + row)
    return jnp.stack(y[::-1] if reverse else y)


def _put_in_turn(x: Any, at: np.ndarray, values: Any) -> Any:
    for k in np.ndindex(*at.shape):
        if 0 <= at[k] < len(x):
            x = x.at[at[k]].set(values[k])
    return x


IMAGE, KERNEL = (2, 5, 4), (4, 2, 3, 2)


def _kernel(x: Any) -> Any:
    """Return a kernel that depends on the tensor, so that both operands have gradients."""
    return (x.reshape((12,)).sin().take(np.arange(48) % 12)).reshape(KERNEL)


def _their_kernel(x: Any) -> Any:
    return jnp.sin(x.reshape(12))[np.arange(48) % 12].reshape(KERNEL)


def _image(x: Any) -> Any:
    return x.reshape((12,)).take(np.arange(40) % 12).reshape(IMAGE)


def _their_image(x: Any) -> Any:
    return x.reshape(12)[np.arange(40) % 12].reshape(IMAGE)


def _conv(stride: int, padding: Any, dilation: int = 1, groups: int = 1) -> Case:
    def theirs(x: Any) -> Any:
        pads = padding.upper() if isinstance(padding, str) else [(padding, padding)] * 2
        kernel = _their_kernel(x)[:, : 2 // groups]
        return jax.lax.conv_general_dilated(
            _their_image(x)[None],
            kernel,
            (stride, stride),
            pads,
            rhs_dilation=(dilation, dilation),
            feature_group_count=groups,
        )[0]

    def ours(x: Any) -> Any:
        kernel = _kernel(x).slice(0, 2 // groups, axis=1)
        how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return trl.conv(_image(x), kernel, **how)

    return Case(ours, theirs)


def _pool(x: Any, fold: Any, start: float, padding: int) -> Any:
    window, strides = (1, 3, 2), (1, 2, 2)
    pads = ((0, 0), (padding, padding), (padding, padding))
    return jax.lax.reduce_window(_their_image(x), start, fold, window, strides, pads)


def _take_or_zero(x: Any) -> Any:
    inside = (BEYOND >= 0) & (BEYOND < 4)
    return jnp.where(inside[:, None], x[np.clip(BEYOND, 0, 3)], 0.0)


CASES: dict[str, Case] = {
    "expm1": Case(lambda x: x.expm1(), jnp.expm1),
    "log1p": Case(lambda x: x.square().log1p(), lambda x: jnp.log1p(x * x)),
    "erf": Case(lambda x: x.erf(), special.erf),
    "round": Case(lambda x: (x * 3).round(), lambda x: jnp.round(x * 3), smooth=False),
    "ceil": Case(lambda x: (x * 3).ceil(), lambda x: jnp.ceil(x * 3), smooth=False),
    "atan2": Case(lambda x: x.atan2(x.exp()), lambda x: jnp.arctan2(x, jnp.exp(x))),
    "atan2 of a number": Case(lambda x: (x - 2.0).atan2(-1.0), lambda x: jnp.arctan2(x - 2, -1.0)),
    "arcs": Case(
        lambda x: (x * 0.4).arcsin() + (x * 0.3).arccos() + (x * 0.2).arctanh() + x.arctan(),
        lambda x: jnp.arcsin(x * 0.4) + jnp.arccos(x * 0.3) + jnp.arctanh(x * 0.2) + jnp.arctan(x),
    ),
    "tan": Case(lambda x: (x * 0.5).tan(), lambda x: jnp.tan(x * 0.5)),
    "rsqrt": Case(lambda x: x.exp().rsqrt(), lambda x: jax.lax.rsqrt(jnp.exp(x))),
    "relu": Case(lambda x: x.relu(), jax.nn.relu),
    "leaky relu": Case(lambda x: x.leaky_relu(0.1), lambda x: jax.nn.leaky_relu(x, 0.1)),
    "elu": Case(lambda x: x.elu(), jax.nn.elu),
    "softplus": Case(lambda x: (x * 20).softplus(), lambda x: jax.nn.softplus(x * 20)),
    "log sigmoid": Case(lambda x: (x * 20).log_sigmoid(), lambda x: jax.nn.log_sigmoid(x * 20)),
    "silu": Case(lambda x: x.silu(), jax.nn.silu),
    "gelu": Case(lambda x: x.gelu(), lambda x: jax.nn.gelu(x, approximate=False)),
    "gelu by tanh": Case(lambda x: x.gelu(approximate=True), jax.nn.gelu),
    "argmin": Case(lambda x: x.argmin(0), lambda x: jnp.argmin(x, 0), smooth=False),
    "argsort": Case(lambda x: x.argsort(0), lambda x: jnp.argsort(x, 0), smooth=False),
    "descending": Case(
        lambda x: (x * 2).round().argsort(descending=True),
        lambda x: jnp.argsort(-jnp.round(x * 2), stable=True),
        smooth=False,
    ),
    "sort": Case(lambda x: x.sort(0), lambda x: jnp.sort(x, 0)),
    "topk": Case(lambda x: x.topk(2)[0], lambda x: jax.lax.top_k(x, 2)[0]),
    "topk positions": Case(
        lambda x: x.topk(2, 0)[1], lambda x: jax.lax.top_k(x.T, 2)[1].T, smooth=False
    ),
    "take": Case(lambda x: x.take(trl.constant(AT)), lambda x: x[AT]),
    "take along the last": Case(
        lambda x: x.take(trl.constant(AT % 3), axis=1), lambda x: jnp.take(x, AT % 3, 1)
    ),
    "take beyond": Case(lambda x: x.take(trl.constant(BEYOND)), _take_or_zero),
    "take one": Case(lambda x: x.take(x.argmax(0).min()), lambda x: x[jnp.argmax(x, 0).min()]),
    "take along": Case(
        lambda x: x.take_along(ALONG, 0), lambda x: jnp.take_along_axis(x, ALONG, 0)
    ),
    "put": Case(
        lambda x: x.put_add(BEYOND, x.sin().take(trl.constant(AT[:, 0]), 0).sum(), axis=0),
        lambda x: x.at[1].add(2 * jnp.sin(x)[AT[:, 0]].sum()),
    ),
    "put along the last": Case(
        lambda x: x.put_add(np.array([2, 0, 2]), x.exp(), axis=1),
        lambda x: x.at[:, np.array([2, 0, 2])].add(jnp.exp(x)),
    ),
    "conv": _conv(1, 0),
    "strided": _conv(2, 1),
    "dilated": _conv(1, 2, 2),
    "same": _conv(2, "same"),
    "grouped": _conv(2, 1, 1, 2),
    "transposed": Case(
        lambda x: trl.conv_transpose(_image(x), _kernel(x).slice(0, 2), stride=2, padding=1),
        lambda x: jax.vjp(
            lambda y: jax.lax.conv_general_dilated(
                y, _their_kernel(x)[:2], (2, 2), [(1, 1), (1, 1)]
            ),
            jnp.zeros((1, 2, 9, 6), x.dtype),
        )[1](_their_image(x)[None])[0][0],
    ),
    "max pool": Case(
        lambda x: trl.max_pool(_image(x), (3, 2), stride=2, padding=1),
        lambda x: _pool(x, jax.lax.max, -jnp.inf, 1),
    ),
    "average pool": Case(
        lambda x: trl.avg_pool(_image(x), (3, 2), stride=2, padding=1),
        lambda x: _pool(x, jax.lax.add, 0.0, 1) / 6,
    ),
    "tiled pool": Case(lambda x: trl.max_pool(x, 3), lambda x: x.max(1, keepdims=True)),
    "put one": Case(
        lambda x: x.put(x.argmax(0).min(), x.take(0).sin()),
        lambda x: x.at[jnp.argmax(x, 0).min()].set(jnp.sin(x[0])),
    ),
    "put along the last alone": Case(
        lambda x: x.put(2, x.sum(axis=1), axis=-1), lambda x: x.at[:, 2].set(x.sum(1))
    ),
    "put beyond": Case(lambda x: x.put(4, 0.0), lambda x: x),
    "put several": Case(
        lambda x: x.put([1, 3, 1], x.slice(0, 3).sin()),
        lambda x: _put_in_turn(x, np.array([1, 3, 1]), jnp.sin(x[:3])),
    ),
    "put several along the last": Case(
        lambda x: x.put(SEVERAL, trl.stack([x.slice(0, 2, 1), x.slice(1, 3, 1).exp()], 1), axis=1),
        lambda x: (
            _put_in_turn(
                x.T,
                SEVERAL,
                jnp.moveaxis(jnp.stack([x[:, :2], jnp.exp(x[:, 1:])], 1), 0, -1),
            ).T
        ),
    ),
    "layout": Case(
        lambda x: x.unsqueeze(1).squeeze(1).flatten().abs(), lambda x: jnp.abs(x.reshape(12))
    ),
    "exclusive or": Case(lambda x: (x > 0) ^ (x < 1), lambda x: (x > 0) ^ (x < 1), smooth=False),
    "cumsum": Case(lambda x: x.cumsum(1, reverse=True), lambda x: jax.lax.cumsum(x, 1, True)),
    "cumsum in order": Case(lambda x: x.cumsum(0, ordered=True), lambda x: jax.lax.cumsum(x, 0)),
    "cumprod": Case(lambda x: x.cumprod(0), lambda x: jnp.cumprod(x, 0)),
    "cumprod from the end": Case(
        lambda x: (x - _FIRST).cumprod(1, reverse=True),  # zeros among the factors
        lambda x: jax.lax.cumprod(x - _FIRST, 1, True),
    ),
    "cummax": Case(lambda x: x.cummax(0), lambda x: jax.lax.cummax(x, 0)),
    "cummin": Case(
        lambda x: x.cummin(1, reverse=True), lambda x: jax.lax.cummin(x, 1, reverse=True)
    ),
    "linear scan": Case(
        lambda x: x.linear_scan(x.cos() * 0.5, 0), lambda x: _linear_scan(x, False)
    ),
    "linear scan from the end": Case(
        lambda x: x.linear_scan(x.cos() * 0.5, 0, reverse=True), lambda x: _linear_scan(x, True)
    ),
    "var": Case(lambda x: x.var(axis=0), lambda x: jnp.var(x, 0)),
    "std": Case(lambda x: x.std(), jnp.std),
    "norm": Case(lambda x: x.norm(axis=-1), lambda x: jnp.linalg.norm(x, axis=-1)),
    "logsumexp": Case(lambda x: (x * 90).logsumexp(axis=0), lambda x: special.logsumexp(x * 90, 0)),
    "softmax": Case(lambda x: x.softmax(0), lambda x: jax.nn.softmax(x, 0)),
    "log softmax": Case(lambda x: (x * 90).log_softmax(), lambda x: jax.nn.log_softmax(x * 90)),
}


Make = Callable[..., Any]


def _context(make: Make, x: np.ndarray, *, gradient: bool) -> trl.Context:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        tensor = trl.data(x, domain=(b, t))
        y = make(tensor, b, B, t, T)
        ctx.output("y", y)
        if gradient:
            weights = trl.constant(_numbers(*y.shape)) + 0.25 * trl.value(t)
            ctx.output("g", trl.grad((y * weights).sum(), tensor))
            ctx.output("loss", (y * weights).sum())
    return ctx


def _reference(make: Make, x: np.ndarray, *, gradient: bool) -> dict[str, np.ndarray]:
    graph = _context(make, x, gradient=gradient).pdg()
    verify(graph)
    prove_reads(graph, BOUNDS)
    return Reference(graph, BOUNDS, precise=True).outputs()


def _check_gradient(make: Make, x: np.ndarray) -> None:
    """Compare the gradient along one direction with central differences."""
    way = np.random.default_rng(5).choice([-1.0, 1.0], x.shape)
    step = 2.0**-12
    ends = [(x + sign * step * way).astype(np.float32) for sign in (1, -1)]
    assert np.array_equal(ends[0].astype(float) - ends[1], 2 * step * way)
    high, low = (_reference(make, end, gradient=True)["loss"].sum() for end in ends)
    found = _reference(make, x, gradient=True)["g"]
    np.testing.assert_allclose((found * way).sum(), (high - low) / (2 * step), rtol=2e-4, atol=1e-4)


@lru_cache(maxsize=1)  # variants of a program run one after the other
def _meant(make: Make, gradient: bool) -> tuple[trl.Program, dict[str, np.ndarray]]:
    program = _context(make, _numbers(2, 3, *SHAPE), gradient=gradient).compile(BOUNDS)
    return program, Reference(program.pdg, BOUNDS).outputs()


def _runs(make: Make, options: dict[str, Any], *, gradient: bool) -> None:
    program, want = _meant(make, gradient)
    with eagerly():
        assert_same(want, program.with_options(**options).execute(), "run")


@cache
def _alone(case: Case) -> Make:
    return lambda x, b, B, t, T: case.ours(x)


@pytest.mark.parametrize("name", CASES)
def test_value_is_that_of_jax(name: str) -> None:
    case, x = CASES[name], _numbers(2, 3, *SHAPE)
    found = _reference(_alone(case), x, gradient=False)["y"]
    with jax.enable_x64(True):
        want = np.stack([[case.theirs(jnp.asarray(v, jnp.float64)) for v in row] for row in x])
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.smooth])
def test_gradient_is_the_finite_difference(name: str) -> None:
    _check_gradient(_alone(CASES[name]), _numbers(2, 3, *SHAPE))


@pytest.mark.some_of("name", 15)
@pytest.mark.parametrize("options", [{}, {"vectorize": False}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_runs_agree_with_the_reference(name: str, options: dict[str, Any]) -> None:
    case = CASES[name]
    _runs(_alone(case), options, gradient=case.smooth)


# --- axes whose length varies from point to point -------------------------------------------------

LENGTHS: dict[str, Make] = {
    "sort of a prefix": lambda x, b, B, t, T: (x[b, 0 : t + 1].sort(0) * 0.5).cumsum().tanh().sum(),
    "descending suffix": lambda x, b, B, t, T: (
        x[b, t:T].sort(0, descending=True).cummax(1).discounted_sum(0.5).sum()
    ),
    "argmin of a suffix": lambda x, b, B, t, T: x[b, t:T].take(x[b, t:T].argmin(0).max()).sum(),
    "softmax of a prefix": lambda x, b, B, t, T: (
        x[b, 0 : t + 1].softmax(0) * x[b, 0 : t + 1]
    ).sum(),
    "logsumexp of a suffix": lambda x, b, B, t, T: x[b, t:T].logsumexp(axis=0).sum(),
    "products of a prefix": lambda x, b, B, t, T: x[b, 0 : t + 1].cumprod().sin().sum(),
    "products of a suffix": lambda x, b, B, t, T: x[b, t:T].cumprod(reverse=True).sin().sum(),
    "greatest so far": lambda x, b, B, t, T: x[b, 0 : t + 1].cummax(reverse=True).sin().sum(),
    "scan of a suffix": lambda x, b, B, t, T: (
        x[b, t:T].linear_scan(x[b, t:T].cos(), reverse=True).tanh().sum()
    ),
    "position in a prefix": lambda x, b, B, t, T: (
        x[b, 0 : t + 1].take(trl.constant(np.array([0, 2], np.int32))).square().sum()
    ),
    "put into a prefix": lambda x, b, B, t, T: (
        x[b, 0 : t + 1].put_add(np.array([1, 0, 1]), x.take(0), axis=0).sin().sum()
    ),
    "several put into a prefix": lambda x, b, B, t, T: (
        x[b, 0 : t + 1].put([1, 0, 1], trl.stack([x.exp(), x.sin(), x.cos()])).sin().sum()
    ),
    "several put from a prefix": lambda x, b, B, t, T: (
        x.put(
            (x[b, 0 : t + 1].take(0, 1).take(0, 1) > 0).cast("i32"), x[b, 0 : t + 1].take(0, 1), 0
        )
        .sin()
        .sum()
    ),
    "put from a prefix": lambda x, b, B, t, T: (
        x.put_add(
            (x[b, 0 : t + 1].take(0, 1).take(0, 1) > 0).cast("i32"), x[b, 0 : t + 1].take(0, 1), 0
        )
        .sin()
        .sum()
    ),
    "position over a dimension": lambda x, b, B, t, T: (
        x[b, 0:T].take((x.take(0) > 0).sum()).square().sum()
    ),
    "stencil": lambda x, b, B, t, T: (
        trl.conv(x[b, 0:T].take(0, -1).transpose(), x.unsqueeze(0), padding="same").sin().sum()
    ),
    "stencil of a prefix": lambda x, b, B, t, T: (
        trl.conv(x[b, 0 : t + 1].take(0, -1).transpose(), x.unsqueeze(0), padding=2).sin().sum()
    ),
    "kernel of a prefix": lambda x, b, B, t, T: (
        trl.conv(x.unsqueeze(0), x.slice(0, 2).unsqueeze(0).unsqueeze(0)).sin()
        * x[b, 0 : t + 1].sum()
    ),
    "variance over dimensions": lambda x, b, B, t, T: (x - x.mean(over=b)) / x.std(over=(b, t)),
    "softmax over a dimension": lambda x, b, B, t, T: x.softmax(over=t) * x,
    "logsumexp over both": lambda x, b, B, t, T: x.logsumexp(over=(b, t)),
}


@pytest.mark.parametrize("count", [4, 5000])
def test_of_values_for_one_position_the_last_stays(count: int) -> None:
    """Devices may write in any order, so no two scattered positions may be equal except on a CPU."""
    rng = np.random.default_rng(count)
    at = rng.integers(-2, 12, count).astype(np.int32)
    values = rng.normal(size=(count, 3)).astype(np.float32)
    want = np.zeros((10, 3), np.float32)
    for k, v in zip(at.tolist(), values, strict=True):
        if 0 <= k < 10:
            want[k] = v
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.zeros((10, 3)) + trl.value(t).floating() * 0.0
        ctx.output("y", x.put(trl.constant(at), trl.constant(values)))
    np.testing.assert_array_equal(ctx.compile({"T": 1}).execute()["y"][0], want)
    kept = np.asarray(_last_ones(jnp.asarray(np.where(at < 0, 10, at))))
    once = kept[kept < 10]
    assert len(once) == len(set(once.tolist()))
    backwards = jnp.zeros((10, 3)).at[kept[::-1]].set(values[::-1], mode="drop")
    np.testing.assert_array_equal(backwards, want)


@pytest.mark.parametrize("name", LENGTHS)
def test_gradient_with_lengths_that_vary(name: str) -> None:
    _check_gradient(LENGTHS[name], _numbers(2, 3, *SHAPE))


@pytest.mark.some_of("name", 6)
@pytest.mark.parametrize("options", [{}, {"vectorize": False}, {"fuse": False}], ids=str)
@pytest.mark.parametrize("name", LENGTHS)
def test_runs_with_lengths_that_vary(name: str, options: dict[str, Any]) -> None:
    _runs(LENGTHS[name], options, gradient=True)


def test_gradients_of_layers_are_single_operations() -> None:
    """Gradients of weights over a batch are one convolution or one scatter, without loops."""
    images = np.random.default_rng(0).normal(size=(4, 3, 2, 8, 8)).astype(np.float32)
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        x = trl.data(images, domain=(b, t))
        at = trl.data(np.arange(12, dtype=np.int32).reshape(4, 3), domain=(b, t))
        layer = trl.nn.Conv2d(2, 4, 3, stride=2, padding=1, domain=(i,))
        rows = trl.nn.Embedding(50, 4, domain=(i,))
        y = layer(x).relu().mean(axis=(1, 2)) * rows(at)
        y.square().sum().mean(over=(b, t)).backward()
        trl.optim.SGD([*layer.params, *rows.params], lr=0.1).step()
    graph = ctx.compile({B: 4, I: 2, T: 3}).stages["contract"].artifact
    assert all(set(op.domain) <= {"i"} for op in graph)
    forward, backward = (op for op in graph if op.kind == "conv")
    assert (len(forward.shape), backward.shape) == (5, (4, 2, 3, 3))
    assert [op.shape for op in graph if op.kind == "scatter_add"] == [(50, 4)]


# --- orthonormal columns --------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"vectorize": False}, {"vectorize": ("b",)}], ids=str)
def test_orthonormal_columns(options: dict[str, Any]) -> None:
    given = np.random.default_rng(0).normal(size=(3, 2, 2, 5, 4)).astype(np.float32)
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        ctx.output("y", trl.data(given, domain=(b, t)).orthonormal() * 1.0)
    program = ctx.compile({B: 3, T: 2}, trl.Options(**options))
    y = program.execute(progress=False)["y"]
    assert_same(Reference(program.pdg, program.bounds).outputs(), {"y": y}, "run")
    np.testing.assert_allclose(
        np.swapaxes(y, -1, -2) @ y, np.broadcast_to(np.eye(4), (3, 2, 2, 4, 4)), atol=1e-5
    )
    first = given[..., 0] / np.linalg.norm(given[..., 0], axis=-1, keepdims=True)
    np.testing.assert_allclose(y[..., 0], first, rtol=1e-4, atol=1e-5)
    upper = np.swapaxes(y, -1, -2) @ given
    np.testing.assert_allclose(np.tril(upper, -1), 0, atol=1e-4)


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_orthonormal_columns_of_what_has_too_few_rows(shape: tuple[int, ...]) -> None:
    with trl.Context("t"), pytest.raises(trl.errors.TimeRLError, match="as many rows as columns"):
        trl.ones(shape).orthonormal()


def test_no_gradient_of_orthonormal_columns() -> None:
    with trl.Context("t"):
        x = trl.random.normal((3, 2))
        with pytest.raises(trl.errors.GradientError, match="orthonormal"):
            trl.grad(x.orthonormal().sum(), x)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 1)])
def test_orthogonal_weights(shape: tuple[int, int]) -> None:
    with trl.Context("i") as ctx:
        ctx.output("w", trl.parameter(shape, init=trl.nn.orthogonal(2.0)))
    first, other = (ctx.compile({"I": 1}).execute(seed, progress=False)["w"] for seed in (0, 1))
    short = first if shape[0] < shape[1] else first.T
    np.testing.assert_allclose(short @ short.T, 4 * np.eye(min(shape)), atol=1e-5)
    assert not np.allclose(first, other)
    with trl.Context("i"), pytest.raises(trl.errors.ShapeError, match="only matrices"):
        trl.parameter((3,), init=trl.nn.orthogonal())


def test_normal_distribution() -> None:
    mean, log_std = np.array([0.5, -1.0], np.float32), np.array([0.3, -0.7], np.float32)
    with trl.Context("b") as ctx:
        ((b, B),) = ctx.dims
        normal = trl.distributions.Normal(trl.constant(mean), trl.constant(log_std))
        a = normal.sample(domain=(b,))
        for name, x in {
            "a": a,
            "p": normal.log_prob(a),
            "e": normal.entropy(),
            "m": normal.mode(),
        }.items():
            ctx.output(name, x)
        w = trl.parameter(mean)
        drawn = trl.distributions.Normal(w, log_std)
        with pytest.raises(trl.errors.GradientError):
            trl.grad(drawn.sample().sum(), w)
        with pytest.raises(trl.errors.ShapeError, match="do not broadcast"):
            trl.distributions.Normal(w, np.zeros(3, np.float32))
        with pytest.raises(trl.errors.ShapeError, match="does not broadcast to"):
            trl.distributions.Normal(w, np.zeros((3, 2), np.float32))
        with pytest.raises(trl.errors.ShapeError, match="a draw must have the shape"):
            normal.log_prob(trl.zeros((3,)))
    result = ctx.compile({B: 5000}).execute(progress=False)
    scipy = jax.scipy.stats.norm
    np.testing.assert_allclose(
        result["p"], scipy.logpdf(result["a"], mean, np.exp(log_std)).sum(-1), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        result["e"], (0.5 * np.log(2 * np.pi * np.e) + log_std).sum(), rtol=1e-5
    )
    np.testing.assert_allclose(result["a"].mean(0), mean, atol=0.1)
    np.testing.assert_allclose(result["a"].std(0), np.exp(log_std), rtol=0.05)
    np.testing.assert_array_equal(result["m"], mean)
