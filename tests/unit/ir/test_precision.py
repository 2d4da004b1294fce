"""Accuracy of operations within their stated tolerances, and half-precision element types."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from ml_dtypes import bfloat16

import timerl_nb as trl
from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.operation_attributes import (
    AxesAttrs,
    DiscountAttrs,
    DotAttrs,
    ScanAttrs,
    SlidingAttrs,
)
from timerl_nb.compiler.ir.operation_kinds import ELEMENTWISE, KINDS
from timerl_nb.compiler.ir.reference import evaluation_rules as reference_rules
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.ir.shapes import promote
from timerl_nb.runtime.jax_backend import operation_rules as jax_rules
from timerl_nb.runtime.jax_backend.trace_context_and_masks import Scope
from timerl_nb.runtime.state.checkpoint_reader import load

RNG = np.random.default_rng(0)
INSIDE = {"log": (0, 9), "sqrt": (0, 9), "log1p": (-0.9, 9), "erf_inv": (-0.99, 0.99)}
NO_NUMBERS = {"unit", "cast", "not", "and", "or", "xor", "shl", "shr", "where", "copy", "detach"}
FUNCTIONS = sorted(ELEMENTWISE - NO_NUMBERS)
SCOPE = Scope({}, {}, (None, None), lambda size: int(size), lambda _: False)


def _ours(kind: str, attrs: Any, xs: list[np.ndarray]) -> np.ndarray:
    op = SimpleNamespace(kind=kind, dtype="f32", attrs=attrs, shape=(), inputs=(0,))
    shapes = [x.shape for x in xs]
    return np.asarray(jax.jit(lambda *a: jax_rules.compute(SCOPE, op, a, shapes))(*xs))


def _exact(kind: str, attrs: Any, xs: list[np.ndarray]) -> np.ndarray:
    op = SimpleNamespace(kind=kind, dtype="f32", attrs=attrs, inputs=(0,))
    with np.errstate(all="ignore"):
        return np.asarray(
            reference_rules.RULES[kind](None, op, [x.astype(np.float64) for x in xs], {})
        )


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_elementwise_tolerance(kind: str) -> None:
    low, high = INSIDE.get(kind, (-9, 9))
    if kind == "pow":
        low = 0.1
    xs = [RNG.uniform(low, high, 4000).astype(np.float32) for _ in range(KINDS[kind].arity or 0)]
    xs[0][:1000] *= np.float32(1e-3)
    have, want = _ours(kind, None, xs), _exact(kind, None, xs)
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(have, want)
        return
    unit = np.spacing(np.maximum(np.abs(want), 1e-30).astype(np.float32)).astype(np.float64)
    assert (np.abs(have - want) / unit).max() <= KINDS[kind].ulps


SUMS: dict[str, tuple[Any, tuple[tuple[int, ...], ...], int]] = {
    "sum": (AxesAttrs((0,)), ((300, 4),), 300),
    "dot": (DotAttrs("ab", "bc", "ac"), ((4, 300), (300, 5)), 300),
    "discounted_sum": (DiscountAttrs(0, 0.99), ((300, 4),), 300),
    "sliding_sum": (SlidingAttrs(0, 0.99, 100, True), ((300, 4),), 100),
    "linear_scan": (ScanAttrs(0), ((300, 4), (300, 4)), 300),
}


@pytest.mark.parametrize("kind", SUMS)
def test_tolerance_of_sums(kind: str) -> None:
    attrs, shapes, terms = SUMS[kind]
    xs = [RNG.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    have, want = _ours(kind, attrs, xs), _exact(kind, attrs, xs)
    size = _exact(kind, attrs, [np.abs(x) for x in xs])  # the sum of the terms' absolute values
    unit = np.spacing(size.astype(np.float32)).astype(np.float64)
    assert (np.abs(have - want) / unit).max() <= KINDS[kind].ulps * terms


# --- half precision -------------------------------------------------------------------------------

HALVES = {"bf16": bfloat16, "f16": np.float16}


def _program(dtype: str) -> trl.Context:
    """Sums, products, a recurrence and gradients, in half precision."""
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        given = np.random.default_rng(1).normal(size=(3, 4, 5)).astype(np.float32)
        x = trl.data(given, domain=(b, t)).cast(dtype)
        w = trl.constant(np.random.default_rng(2).normal(size=(5, 5)) * 0.4, dtype)
        y = (x @ w).tanh() * 0.5 + x.softmax()
        s = trl.tensor((5,), dtype, domain=(b, t))
        s[b, 0] = y[b, 0]
        s[b, t + 1] = s * 0.5 + y
        for k, g in enumerate(trl.grad((s * s).sum(), [x, w])):
            ctx.output(f"g{k}", g)
        ctx.output("s", s)
        ctx.output("mean", s.mean(over=(b, t)))
        ctx.output("g", s[b, t:T].discounted_sum(0.9).sort())
        ctx.output("max", s.max(over=b))
        ctx.output("scan", s.linear_scan(s).cumsum())
    return ctx


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("options", [{}, {"vectorize": False}, {"fuse": False}], ids=str)
@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_runs(dtype: str, options: dict[str, Any]) -> None:
    ctx = _program(dtype)
    want = Reference(ctx.pdg(), {"B": 3, "T": 4}).outputs()
    exact = Reference(ctx.pdg(), {"B": 3, "T": 4}, precise=True).outputs()
    result = ctx.compile({"B": 3, "T": 4}, trl.Options(**options)).execute()
    near = float(jax.numpy.finfo(HALVES[dtype]).eps)
    for name in want:
        assert result[name].dtype == want[name].dtype == np.dtype(HALVES[dtype])
        have, mean = (np.asarray(x[name], np.float64) for x in (result, want))
        scale = np.abs(exact[name]).max()
        np.testing.assert_allclose(have, mean, rtol=8 * near, atol=8 * near * scale, err_msg=name)
        np.testing.assert_allclose(have, exact[name], rtol=16 * near, atol=16 * near * scale)


def test_long_sums_in_half_precision_are_rounded_once() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", trl.data(np.ones(3000, bfloat16), domain=(t,)).sum(over=t))
    assert float(ctx.compile({"T": 3000}).execute()["y"]) == 3008  # 3000, to eight bits


def test_statistics_of_halves_are_those_of_their_float32() -> None:
    """Intermediate sums and counts may exceed the half-precision range even if results do not."""
    given = {
        "many": np.full(70_000, 0.01, np.float16),
        "large": np.linspace(-3e3, 6e3, 1000).astype(np.float16),
    }
    found = {
        "mean": np.mean,
        "var": np.var,
        "std": np.std,
        "norm": np.linalg.norm,
        "logsumexp": lambda x: x.max() + np.log(np.exp(x - x.max()).sum()),
        "softmax": lambda x: (e := np.exp(x - x.max())) / e.sum(),
    }
    with trl.Context("t") as ctx:
        for of, array in given.items():
            for name in found:
                ctx.output(f"{of} {name}", getattr(trl.constant(array), name)())
        x = trl.constant(np.array([0.1, -300.0, 6e4, np.inf], np.float16))
        ctx.output("arcsinh", x.arcsinh())
        ctx.output("arccosh", abs(x).arccosh())
        scanned = trl.ones((3,), "f16").linear_scan(np.full(3, 1 / 3, np.float32))
        assert scanned.dtype == "f32"
    result = ctx.compile({"T": 1}).execute()
    with np.errstate(all="ignore"):
        for of, array in given.items():
            for name, f in found.items():
                want = np.asarray(f(array.astype(np.float64)), np.float16)
                np.testing.assert_allclose(result[f"{of} {name}"], want, rtol=2e-3, err_msg=name)
        x = np.array([0.1, -300.0, 6e4, np.inf], np.float16).astype(np.float64)
        np.testing.assert_allclose(result["arcsinh"], np.arcsinh(x), rtol=2e-3)
        np.testing.assert_allclose(result["arccosh"], np.arccosh(abs(x)), rtol=2e-3)


@pytest.mark.some_of("dtype", 1)
@pytest.mark.parametrize("rule", ["Adam", "AdamW", "RMSProp", "SGD"])
@pytest.mark.parametrize("dtype", HALVES)
def test_halves_learn_as_their_float32(dtype: str, rule: str) -> None:
    def learned(dtype: str) -> np.ndarray:
        with trl.Context("i") as ctx:
            ((i, _),) = ctx.dims
            w = trl.parameter(np.array([1.0, -2.0, 0.0]), domain=i, dtype=dtype, name="w")
            (w * w).sum().backward()
            rate = trl.optim.schedules.linear(i, 0.1, 0.05)
            getattr(trl.optim, rule)([w], lr=rate).step()
            ctx.output("w", w)
        return np.asarray(ctx.compile({"I": 5}).execute()["w"], np.float64)

    near = float(jax.numpy.finfo(HALVES[dtype]).eps)
    np.testing.assert_allclose(learned(dtype), learned("f32"), atol=8 * near)


def test_half_precision_types() -> None:
    assert promote(["bf16", "i32"]) == "bf16"
    assert promote(["bf16", "f16"]) == promote(["f16", "f32"]) == "f32"
    with trl.Context("t"):
        x = trl.constant(1.5, "bf16")
        assert (x * 2).dtype == (2.5 / x).dtype == (x > 1)._select(x, 0).dtype == "bf16"
        assert (x + trl.constant(1.0)).dtype == "f32"
        assert trl.constant(np.float16(1)).dtype == "f16"
        with pytest.raises(ShapeError, match="is not an element type"):
            trl.constant(1, "f7")


def test_half_precision_parameters_are_saved(tmp_path: Path) -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        w = trl.parameter(np.ones(3), domain=(i,), dtype="bf16", name="w")
        (w * w).sum().backward()
        trl.optim.SGD([w], lr=0.25).step()
        w.checkpoint(str(tmp_path))
    result = ctx.compile({"I": 2}).execute()
    assert result.parameters["w"].dtype == np.dtype(bfloat16)
    saved = load(tmp_path / "i=1.safetensors")["w"]
    np.testing.assert_array_equal(saved.astype(np.float32), 0.5)
