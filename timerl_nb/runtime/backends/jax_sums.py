"""Operations in JAX that combine elements along axes: reductions, windows, scans, contractions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from timerl_nb.ir.attrs import (
    AxesAttrs,
    DiscountAttrs,
    DotAttrs,
    ScanAttrs,
    SlidingAttrs,
)
from timerl_nb.ir.ops import Op
from timerl_nb.ir.reference_rules import identity
from timerl_nb.runtime.backends.jax_scope import Array, Scope, masked

_FOLD: Final[Mapping[str, Callable[..., Any]]] = {
    "sum": jnp.sum,
    "prod": jnp.prod,
    "max": jnp.max,
    "min": jnp.min,
}
COMBINE: Final[Mapping[str, Callable[..., Any]]] = {
    "sum": jnp.add,
    "prod": jnp.multiply,
    "max": jnp.maximum,
    "min": jnp.minimum,
}


def reduction(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: AxesAttrs = op.attrs
    x = args[0].astype(jnp.int32) if op.kind in ("sum", "prod") and op.dtype == "i32" else args[0]
    nothing = np.asarray(identity(op.kind, np.dtype(x.dtype)), x.dtype)
    x = masked(scope, x, sizes[0], attrs.axes, nothing)
    start = nothing if op.kind in ("max", "min") else None
    return _FOLD[op.kind](x, axis=attrs.axes, initial=start)


def discounted_sum(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: DiscountAttrs = op.attrs
    x = masked(scope, args[0], sizes[0], (attrs.axis,), 0)
    n = x.shape[attrs.axis]
    length = scope.length(sizes[0][attrs.axis])
    powers = jnp.arange(n)
    if attrs.reverse:
        powers = (n if length is None else length) - 1 - powers
    weights = jnp.asarray(attrs.gamma, x.dtype) ** jnp.maximum(powers, 0).astype(x.dtype)
    along = weights.reshape([-1 if k == attrs.axis else 1 for k in range(x.ndim)])
    return (along * x).sum(attrs.axis)


def sliding_sum(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: SlidingAttrs = op.attrs
    x = masked(scope, args[0], sizes[0], (attrs.axis,), 0)
    n = x.shape[attrs.axis]
    window = n if attrs.window is None else min(n, scope.capacity(attrs.window))
    if not attrs.forward:
        x = jnp.flip(x, attrs.axis)
    total = _windows(x, attrs.axis, attrs.gamma, window)
    return total if attrs.forward else jnp.flip(total, attrs.axis)


def _windows(x: Array, axis: int, gamma: float, window: int) -> Array:
    """sum over j < window of gamma**j * x[k + j], by doubling: log2(window) passes over x."""

    def ahead(y: Array, k: int) -> Array:
        widths = [(0, k) if a == axis else (0, 0) for a in range(y.ndim)]
        return jax.lax.slice_in_dim(jnp.pad(y, widths), k, k + y.shape[axis], axis=axis)

    result: Array | None = None
    done, block, width = 0, x, 1
    while done < window:
        if window & width:
            part = block if not done else ahead(block, done) * x.dtype.type(gamma**done)
            result = part if result is None else result + part
            done += width
        if done < window:
            block = block + ahead(block, width) * x.dtype.type(gamma**width)
            width *= 2
    return jnp.zeros_like(x) if result is None else result


def dot(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: DotAttrs = op.attrs
    summed = [k for k, label in enumerate(attrs.left) if label not in attrs.out]
    left = masked(scope, args[0], sizes[0], summed, 0)
    summed = [k for k, label in enumerate(attrs.right) if label not in attrs.out]
    right = masked(scope, args[1], sizes[1], summed, 0)
    return jnp.einsum(str(attrs), left, right)


def linear_scan(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: ScanAttrs = op.attrs
    factor, term = (
        masked(scope, x, shape, (attrs.axis,), 0) for x, shape in zip(args, sizes, strict=True)
    )

    def then(first: Array, second: Array) -> Array:
        return first[0] * second[0], first[1] * second[0] + second[1]

    return jax.lax.associative_scan(then, (factor, term), reverse=attrs.reverse, axis=attrs.axis)[1]


def cummax(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: ScanAttrs = op.attrs
    least = identity("max", np.dtype(args[0].dtype))
    x = masked(scope, args[0], sizes[0], (attrs.axis,), least)
    return jax.lax.cummax(x, attrs.axis, reverse=attrs.reverse)
