"""Network layers: values and gradients equal those of JAX versions."""

from __future__ import annotations

import re
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
from timerl_nb.base.errors import DomainError, ShapeError, TimeRLError

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


def _conv1d(p: Params, x: Any) -> Any:
    dims = ("NCH", "OIH", "NCH")
    y = jax.lax.conv_general_dilated(
        x[None], p["conv.weight"], (2,), [(1, 1)], dimension_numbers=dims
    )
    return y[0] + p["conv.bias"][:, None]


def _group_norm(p: Params, x: Any) -> Any:
    parts = x.reshape(2, 2, *x.shape[1:])
    axes = tuple(range(1, parts.ndim))
    centred = parts - parts.mean(axes, keepdims=True)
    y = (centred / jnp.sqrt(parts.var(axes, keepdims=True) + 1e-5)).reshape(x.shape)
    wide = (-1, *(1 for _ in x.shape[1:]))
    return y * p["norm.scale"].reshape(wide) + p["norm.shift"].reshape(wide)


def _batch_norm(axis: int) -> Callable[[Params, Any], Any]:
    def norm(p: Params, xs: Any) -> Any:
        axes = tuple(k for k in range(xs.ndim) if k != xs.ndim + axis)
        wide = (-1, *(1 for _ in range(-axis - 1)))
        y = (xs - xs.mean(axes, keepdims=True)) / jnp.sqrt(xs.var(axes, keepdims=True) + 1e-5)
        return y * p["norm.scale"].reshape(wide) + p["norm.shift"].reshape(wide)

    return norm


MASK = np.tril(np.ones((3, 3), bool))


def _heads(p: Params, x: Any) -> Any:
    q, k, v = (
        _linear(p, f"attention.{part}", x).reshape(3, 2, 2) for part in ("query", "key", "value")
    )
    score = jnp.where(MASK, jnp.einsum("nhd,mhd->hnm", q, k) / np.sqrt(2), -jnp.inf)
    seen = jnp.einsum("hnm,mhd->nhd", jax.nn.softmax(score, -1), v).reshape(3, 4)
    return _linear(p, "attention.out", seen)


def _sequence(p: Params, x: Any) -> Any:
    return _linear(p, "linear2", jax.nn.relu(_linear(p, "linear", x)))


LAYERS: dict[str, tuple[tuple[int, ...], Any, Any, Any]] = {
    "Conv2d": (
        (2, 5, 4),
        lambda: nn.Conv2d(2, 4, 3, stride=(2, 1), padding=1, groups=2),
        _plain,
        _each(_conv),
    ),
    "Conv1d": (
        (2, 6),
        lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1),
        _plain,
        _each(_conv1d),
    ),
    "GroupNorm": ((4, 3, 2), lambda: nn.GroupNorm(2, 4), _plain, _each(_group_norm)),
    "GroupNorm of rows": (
        (3, 4),
        lambda: nn.GroupNorm(2, 4, axis=-1),
        _plain,
        _each(lambda p, x: jnp.stack([_group_norm(p, row) for row in x])),
    ),
    "MultiHeadAttention": (
        (3, 4),
        lambda: nn.MultiHeadAttention(4, heads=2),
        lambda layer, x, b, t: layer(x, mask=trl.constant(MASK)),
        _each(_heads),
    ),
    "Sequential": (
        (3,),
        lambda: nn.Sequential(nn.Linear(3, 4), trl.RecurrentTensor.relu, nn.Linear(4, 2)),
        _plain,
        _each(_sequence),
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


@lru_cache(maxsize=1)  # variants of a layer run one after the other
def meant(name: str) -> tuple[trl.Program, dict[str, np.ndarray]]:
    """Return a program of one layer, with JAX's values and gradients."""
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
    program = ctx.compile({"B": B, "T": T})
    with eagerly():
        result = program.execute(seed=4, outputs=names)
    params = {n: jnp.asarray(result[n]) for n in names}

    def f(params: Params, xs: Any) -> Any:
        y = theirs(params, xs)
        return (jnp.sin(y) * y).sum()

    by_params, by_x = jax.grad(f, (0, 1))(params, jnp.asarray(xs))
    want = {f"d{n}": np.asarray(g) for n, g in by_params.items()}
    want |= {"y": np.asarray(theirs(params, xs)), "dx": np.asarray(by_x)}
    return program, want


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("options", [{}, {"vectorize": False}], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layer_is_that_of_jax(name: str, options: dict[str, Any]) -> None:
    program, want = meant(name)
    with eagerly():
        assert_same(want, program.with_options(**options).execute(seed=4), name)


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


@pytest.mark.parametrize(("shape", "axis"), [((4,), -1), ((4, 3, 2), -3)])
def test_a_batch_is_normalised_as_in_jax(shape: tuple[int, ...], axis: int) -> None:
    xs = np.random.default_rng(0).normal(size=(B, T, *shape)).astype(np.float32)
    first = np.linspace(0.5, 2.0, 4, dtype=np.float32)
    with trl.Context("i", "b", "t") as ctx:
        (i, I), (b, _), (t, _) = ctx.dims
        x, norm = trl.data(xs, domain=(b, t)), nn.BatchNorm(4, (b, t), axis=axis, domain=(i,))
        norm.scale = trl.parameter(first, domain=(i,), name="other.scale")
        y = norm(x)
        loss = (y.sin() * y).sum()
        loss.backward()
        for name, found in {"y": y, "dx": trl.grad(loss, x), "dscale": norm.scale.grad}.items():
            ctx.output(name, found)
    result = ctx.compile({I: 1, "B": B, "T": T}).execute()
    params = {"norm.scale": jnp.asarray(first), "norm.shift": jnp.zeros(4)}

    def f(params: Params, xs: Any) -> Any:
        y = _batch_norm(axis)(params, xs)
        return (jnp.sin(y) * y).sum()

    by_params, by_x = jax.grad(f, (0, 1))(params, jnp.asarray(xs))
    close = np.testing.assert_allclose
    close(result["y"][0], _batch_norm(axis)(params, xs), rtol=1e-4, atol=1e-5)
    close(result["dx"], by_x, rtol=1e-3, atol=1e-4)
    close(result["dscale"][0], by_params["norm.scale"], rtol=1e-3, atol=1e-4)


def test_running_statistics_follow_batches_and_are_saved() -> None:
    xs = np.random.default_rng(0).normal(2.0, 3.0, size=(4, 6, 2)).astype(np.float32)
    with trl.Context("i", "b") as ctx:
        (i, I), (b, B) = ctx.dims
        x = trl.data(xs, domain=(i, b))
        norm = nn.BatchNorm(2, over=b, domain=(i,), momentum=0.3)
        norm(x).square().sum().backward()
        assert [p.name for p in norm.params] == ["norm.scale", "norm.shift"]
        assert [p.name for p in norm.saved][2:] == ["norm.mean", "norm.variance"]
        ctx.output("acting", norm.running(x))
        with pytest.raises(DomainError, match="normalised another batch"):
            norm(x * 2.0)
    result = ctx.compile({I: 4, B: 6}).execute()
    mean, variance = np.zeros(2), np.ones(2)
    for k in range(4):
        np.testing.assert_allclose(
            result["acting"][k], (xs[k] - mean) / np.sqrt(variance + 1e-5), rtol=1e-4, atol=1e-5
        )
        mean, variance = 0.7 * mean + 0.3 * xs[k].mean(0), 0.7 * variance + 0.3 * xs[k].var(0)
    np.testing.assert_allclose(result.parameters["norm.mean"], mean, rtol=1e-4)
    np.testing.assert_allclose(result.parameters["norm.variance"], variance, rtol=1e-4)


def test_dropout_keeps_the_mean() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.constant(np.ones(50, np.float32))
        y = nn.Dropout(0.3)(x, domain=(t,))
        ctx.output("y", y)
        ctx.output("dx", trl.grad(y.sum(), x))
        assert nn.Dropout(0.0)(x).read == x.read
    result = ctx.compile({T: 200}).execute()
    kept = result["y"] != 0
    np.testing.assert_allclose(result["y"][kept], 1 / 0.7, rtol=1e-6)
    assert abs(kept.mean() - 0.7) < 0.02 and not (kept == kept[0]).all()
    np.testing.assert_allclose(result["dx"], kept.sum(0) / 0.7, rtol=1e-5)


WRONG: dict[str, tuple[type[TimeRLError], str, Callable[[Any, Any], Any]]] = {
    "no window": (ShapeError, "does not fit", lambda x, t: trl.conv(x, np.ones((1, 2, 5, 1)))),
    "channels": (ShapeError, "does not match", lambda x, t: trl.conv(x, np.ones((1, 3, 1, 1)))),
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
    "positions along": (ShapeError, "do not fit", lambda x, t: x.take_along([0, 1], 0)),
    "values to put": (ShapeError, "cannot be added", lambda x, t: x.put_add([0, 1], np.ones(7))),
    "several put": (ShapeError, "does not replace", lambda x, t: x.put([0, 1], np.ones(7))),
    "put": (ShapeError, "does not replace", lambda x, t: x.put(0, np.ones(7))),
    "squeezed": (ShapeError, "does not have size 1", lambda x, t: x.squeeze(0)),
    "flattened": (ShapeError, "cannot be joined", lambda x, t: x[0 : t + 1].flatten()),
    "no bits": (ShapeError, "needs booleans or integers", lambda x, t: x ^ x),
    "too many": (ShapeError, "elements along", lambda x, t: x.topk(9)),
    "no number": (ShapeError, "of at least 1", lambda x, t: x.topk(True)),
    "factors": (ShapeError, "do not broadcast", lambda x, t: x.linear_scan(np.ones(7))),
    "heads": (ShapeError, "do not divide", lambda x, t: nn.Attention(4, heads=3)),
    "attended": (DomainError, "one dimension", lambda x, t: nn.Attention(3)(trl.zeros(3), t)),
    "attended axis": (ShapeError, "takes 3 numbers", lambda x, t: nn.Attention(3)(x, t)),
    "norm": (ShapeError, "last axis of 5", lambda x, t: nn.LayerNorm(5)(x)),
    "cell": (ShapeError, "last axis of 5", lambda x, t: nn.GRUCell(3, 5)(x, x)),
    "layer": (ShapeError, "of at least 1", lambda x, t: nn.LSTMCell(3, 0)),
    "dropout": (ShapeError, "below 1", lambda x, t: nn.Dropout(1.0)),
    "sequence": (ShapeError, "cannot be called", lambda x, t: nn.Sequential(nn.Linear(3, 2), 3)),
    "group norm": (ShapeError, "do not divide", lambda x, t: nn.GroupNorm(2, 3)),
    "channels to norm": (ShapeError, "5 channels", lambda x, t: nn.GroupNorm(1, 5)(x)),
    "rows": (ShapeError, "takes rows", lambda x, t: nn.MultiHeadAttention(3)(x)),
    "no iterations": (DomainError, "change along", lambda x, t: nn.BatchNorm(3, t, domain=())(x)),
    "one window": (ShapeError, "give a length", lambda x, t: nn.Conv1d(3, 4, (3, 3))),
    "conv groups": (ShapeError, "no convolution", lambda x, t: nn.Conv2d(3, 4, 3, groups=2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_operands(name: str) -> None:
    kind, message, write = WRONG[name]
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.data(np.ones((2, 2, 4, 3), np.float32), domain=(t,))
        with pytest.raises(kind) as caught:
            write(x, t)
    # the whole text has this row
    assert re.search(message, f"{caught.value.what} {caught.value.hint}")
    assert caught.value.origin.file == __file__
