"""Layers of networks: values and gradients are those of the same layer written in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_same
from timerl_nb.errors import DomainError, ShapeError, TimeRLError

nn = trl.nn
B, T = 2, 4
Params = dict[str, Any]


def _each(f: Callable[[Params, Any], Any]) -> Callable[[Params, Any], Any]:
    return lambda p, xs: jnp.stack([jnp.stack([f(p, x) for x in row]) for row in xs])


def _linear(p: Params, name: str, x: Any) -> Any:
    y = x @ p[f"{name}.weight"]
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def _conv(p: Params, x: Any) -> Any:
    y = jax.lax.conv_general_dilated(
        x[None], p["conv.weight"], (2, 1), [(1, 1), (1, 1)], feature_group_count=2
    )
    return y[0] + p["conv.bias"][:, None, None]


def _layer_norm(p: Params, x: Any) -> Any:
    y = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return y * (p["norm.scale"] + 0.0) + p["norm.shift"]


def _rms_norm(p: Params, x: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * p["norm.scale"]


def _gru(p: Params, xs: Any) -> Any:
    h, found = jnp.zeros((B, 3)), []
    for k in range(T):
        found.append(h)
        r, z, n = jnp.split(_linear(p, "gru.input", xs[:, k]), 3, -1)
        of_r, of_z, of_n = jnp.split(_linear(p, "gru.state", h), 3, -1)
        r, z = jax.nn.sigmoid(r + of_r), jax.nn.sigmoid(z + of_z)
        h = (1 - z) * jnp.tanh(n + r * of_n) + z * h
    return jnp.stack(found, 1)


def _lstm(p: Params, xs: Any) -> Any:
    h, c, found = jnp.zeros((B, 3)), jnp.zeros((B, 3)), []
    for k in range(T):
        found.append(h)
        both = _linear(p, "lstm.input", xs[:, k]) + _linear(p, "lstm.state", h)
        i, f, g, o = jnp.split(both, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return jnp.stack(found, 1)


def _attention(window: int) -> Callable[[Params, Any], Any]:
    def attend(p: Params, xs: Any) -> Any:
        q, k, v = (
            _linear(p, f"attention.{part}", xs).reshape(B, T, 2, 2)
            for part in ("query", "key", "value")
        )
        score = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(2)
        apart = np.arange(T)[:, None] - np.arange(T)
        seen = (apart >= 0) & (apart < window)
        weight = jax.nn.softmax(jnp.where(seen, score, -jnp.inf), -1)
        return _linear(
            p, "attention.out", jnp.einsum("bhts,bshd->bthd", weight, v).reshape(B, T, 4)
        )

    return attend


def _recurrent(cell: Any, x: Any, b: Any, t: Any) -> Any:
    h = trl.tensor((3,), domain=(b, t))
    h[b, 0] = trl.zeros((3,))
    if isinstance(cell, nn.GRUCell):
        h[b, t + 1] = cell(h, x)
        return h
    c = trl.tensor((3,), domain=(b, t))
    c[b, 0] = trl.zeros((3,))
    h[b, t + 1], c[b, t + 1] = cell(h, c, x)
    return h


def _plain(layer: Any, x: Any, b: Any, t: Any) -> Any:
    return layer(x)


LAYERS: dict[str, tuple[tuple[int, ...], Any, Any, Any]] = {
    "Conv2d": (
        (2, 5, 4),
        lambda: nn.Conv2d(2, 4, 3, stride=(2, 1), padding=1, groups=2),
        _plain,
        _each(_conv),
    ),
    "LayerNorm": ((3, 4), lambda: nn.LayerNorm(4), _plain, _each(_layer_norm)),
    "RMSNorm": ((4,), lambda: nn.RMSNorm(4), _plain, _each(_rms_norm)),
    "GRUCell": ((2,), lambda: nn.GRUCell(2, 3), _recurrent, _gru),
    "LSTMCell": ((2,), lambda: nn.LSTMCell(2, 3), _recurrent, _lstm),
    "Attention": (
        (4,),
        lambda: nn.Attention(4, heads=2),
        lambda layer, x, b, t: layer(x, t),
        _attention(T),
    ),
    "windowed Attention": (
        (4,),
        lambda: nn.Attention(4, heads=2),
        lambda layer, x, b, t: layer(x, t, window=2),
        _attention(2),
    ),
}


@pytest.mark.parametrize("options", [{}, {"vectorize": False}], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layer_is_that_of_jax(name: str, options: dict[str, Any]) -> None:
    shape, make, ours, theirs = LAYERS[name]
    xs = np.random.default_rng(0).normal(size=(B, T, *shape)).astype(np.float32)
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        x, layer = trl.data(xs, domain=(b, t)), make()
        y = ours(layer, x, b, t)
        loss = (y.sin() * y).sum()
        loss.backward()
        ctx.output("y", y)
        ctx.output("dx", trl.grad(loss, x))
        for p in layer.params:
            ctx.output(p.name, p)
            ctx.output(f"d{p.name}", p.grad)
    names = [p.name for p in layer.params]
    assert len(names) == len(set(names)) > 0
    with jax.disable_jit():
        result = ctx.compile({"B": B, "T": T}, trl.Options(**options)).execute(seed=4)
    params = {n: jnp.asarray(result[n]) for n in names}

    def f(params: Params, xs: Any) -> Any:
        y = theirs(params, xs)
        return (jnp.sin(y) * y).sum()

    by_params, by_x = jax.grad(f, (0, 1))(params, jnp.asarray(xs))
    want = {f"d{n}": np.asarray(g) for n, g in by_params.items()}
    want |= {"y": np.asarray(theirs(params, xs)), "dx": np.asarray(by_x)}
    assert_same(want, result, name)


def test_embedding_rows_and_their_gradients() -> None:
    at = np.array([[1, 0, 1, 4], [2, 2, -1, 1]], np.int32)
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        layer = nn.Embedding(4, 3)
        y = layer(trl.data(at, domain=(b, t)))
        (y * (trl.value(t) + 1).cast("f32")).sum().backward()
        for name, x in {"y": y, "w": layer.weight, "dw": layer.weight.grad}.items():
            ctx.output(name, x)
    for options in ({}, {"vectorize": False}):
        result = ctx.compile({"B": 2, "T": 4}, trl.Options(**options)).execute()
        inside = (at >= 0) & (at < 4)
        want = np.where(inside[..., None], result["w"][np.clip(at, 0, 3)], 0)
        np.testing.assert_array_equal(result["y"], want)
        counts = np.zeros(4)
        np.add.at(counts, at[inside], np.broadcast_to(np.arange(4) + 1, at.shape)[inside])
        np.testing.assert_allclose(result["dw"], np.tile(counts[:, None], 3))


WRONG: dict[str, tuple[type[TimeRLError], str, Callable[[Any, Any], Any]]] = {
    "no window": (ShapeError, "does not fit", lambda x, t: trl.conv(x, np.ones((1, 2, 5, 1)))),
    "channels": (ShapeError, "does not go with", lambda x, t: trl.conv(x, np.ones((1, 3, 1, 1)))),
    "groups": (
        ShapeError,
        "groups must divide",
        lambda x, t: trl.conv(x, np.ones((3, 1, 1, 1)), groups=2),
    ),
    "stride": (ShapeError, "stride", lambda x, t: trl.conv(x, np.ones((1, 2, 1, 1)), stride=0)),
    "padding": (
        ShapeError,
        "padding",
        lambda x, t: trl.conv(x, np.ones((1, 2, 1, 1)), padding="half"),
    ),
    "symbolic stride": (
        ShapeError,
        "integers, not|stride of 2",
        lambda x, t: trl.conv(
            x[0 : t + 1].transpose(1, 2, 3, 0).take(0), np.ones((1, 3, 2)), stride=2
        ),
    ),
    "integers": (
        ShapeError,
        "floating-point",
        lambda x, t: trl.conv(x.cast("i32"), np.ones((1, 2, 1, 1), np.int32)),
    ),
    "wide pool": (ShapeError, "does not fit", lambda x, t: trl.max_pool(x, (4, 9))),
    "empty pool": (ShapeError, "leaves windows", lambda x, t: trl.max_pool(x, 2, padding=2)),
    "no pool": (ShapeError, "the window", lambda x, t: trl.avg_pool(x, "no")),
    "positions": (ShapeError, "must be integers", lambda x, t: x.take(x)),
    "positions along": (ShapeError, "do not go with", lambda x, t: x.take_along([0, 1], 0)),
    "values to put": (ShapeError, "cannot be added", lambda x, t: x.put_add([0, 1], np.ones(7))),
    "several put": (ShapeError, "one position", lambda x, t: x.put([0, 1], 0.0)),
    "put": (ShapeError, "does not replace", lambda x, t: x.put(0, np.ones(7))),
    "squeezed": (ShapeError, "has not size 1", lambda x, t: x.squeeze(0)),
    "flattened": (ShapeError, "cannot be joined", lambda x, t: x[0 : t + 1].flatten()),
    "no bits": (ShapeError, "needs booleans or integers", lambda x, t: x ^ x),
    "too many": (ShapeError, "elements along", lambda x, t: x.topk(9)),
    "no number": (ShapeError, "positive integer", lambda x, t: x.topk(True)),
    "factors": (ShapeError, "do not go with", lambda x, t: x.linear_scan(np.ones(7))),
    "heads": (ShapeError, "do not divide", lambda x, t: nn.Attention(4, heads=3)),
    "attended": (DomainError, "one dimension", lambda x, t: nn.Attention(3)(trl.zeros(3), t)),
    "attended axis": (ShapeError, "takes 3 numbers", lambda x, t: nn.Attention(3)(x, t)),
    "norm": (ShapeError, "last axis of 5", lambda x, t: nn.LayerNorm(5)(x)),
    "cell": (ShapeError, "last axis of 5", lambda x, t: nn.GRUCell(3, 5)(x, x)),
    "layer": (ShapeError, "positive integers", lambda x, t: nn.LSTMCell(3, 0)),
    "conv groups": (ShapeError, "no convolution", lambda x, t: nn.Conv2d(3, 4, 3, groups=2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_operands(name: str) -> None:
    kind, message, write = WRONG[name]
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.data(np.ones((2, 2, 4, 3), np.float32), domain=(t,))
        with pytest.raises(kind, match=message) as caught:
            write(x, t)
    assert caught.value.origin.file == __file__
