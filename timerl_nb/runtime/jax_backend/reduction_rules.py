"""JAX rules for reductions, sliding windows, scans, contractions and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from timerl_nb.compiler.ir.operation_attributes import (
    AxesAttrs,
    ConvAttrs,
    DiscountAttrs,
    DotAttrs,
    ScanAttrs,
    SlidingAttrs,
)
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import HALF, NUMPY, is_float
from timerl_nb.runtime.jax_backend.arrays_and_devices import is_accelerated
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray, Scope, mask_padding
from timerl_nb.runtime.jax_backend.user_function_calls import total

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

_RUNNING: Final[Mapping[str, Callable[..., Any]]] = {
    "max": jax.lax.cummax,
    "min": jax.lax.cummin,
}


def reduction(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    attrs: AxesAttrs = op.attrs
    x = args[0].astype(jnp.int32) if op.kind in ("sum", "prod") and op.dtype == "i32" else args[0]
    nothing = np.asarray(identity(op.kind, np.dtype(x.dtype)), x.dtype)
    x = mask_padding(scope, x, sizes[0], attrs.axes, nothing)
    if op.kind == "sum" and (made := total(scope, x, attrs.axes)) is not None:
        return made
    if op.kind not in ("max", "min"):
        return _FOLD[op.kind](x, axis=attrs.axes)
    found = _FOLD[op.kind](x, axis=attrs.axes, initial=nothing)
    if is_float(op.dtype) and any(scope.is_divided(sizes[0][k]) for k in attrs.axes):
        # XLA compares the results of the devices with `>`, which would lose a NaN
        return jnp.where(jnp.isnan(x).any(attrs.axes), jnp.nan, found)
    return found


def discounted_sum(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    attrs: DiscountAttrs = op.attrs
    x = mask_padding(scope, args[0], sizes[0], (attrs.axis,), 0)
    n = x.shape[attrs.axis]
    length = scope.length(sizes[0][attrs.axis])
    powers = jnp.arange(n)
    if attrs.reverse:
        powers = (n if length is None else length) - 1 - powers
    weights = jnp.asarray(attrs.gamma, x.dtype) ** jnp.maximum(powers, 0).astype(x.dtype)
    along = weights.reshape([-1 if k == attrs.axis else 1 for k in range(x.ndim)])
    # beyond the length, the product of an infinite power and zero would be NaN
    return mask_padding(scope, along * x, sizes[0], (attrs.axis,), 0).sum(attrs.axis)


def sliding(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    attrs: SlidingAttrs = op.attrs
    reduce, kind = op.kind.removeprefix("sliding_"), np.dtype(args[0].dtype)
    fill = np.asarray(identity(reduce, kind), kind)
    x = mask_padding(scope, args[0], sizes[0], (attrs.axis,), fill)
    n = x.shape[attrs.axis]
    window = n if attrs.window is None else min(n, scope.capacity(attrs.window))
    if attrs.window is None and reduce in _RUNNING and kind.kind != "b":
        return _RUNNING[reduce](x, attrs.axis, reverse=attrs.forward)
    if not attrs.forward:
        x = jnp.flip(x, attrs.axis)

    if n and reduce == "sum" and attrs.window is None and _runs_in_order():
        factor = jnp.full_like(x, attrs.gamma)
        total = _in_order(factor, x, attrs.axis, reverse=True)
        return total if attrs.forward else jnp.flip(total, attrs.axis)

    def join(near: JaxArray, far: JaxArray, distance: int) -> JaxArray:
        if reduce == "sum":
            with np.errstate(over="ignore"):
                power = (np.float64(attrs.gamma) ** distance).astype(kind)
            # with an infinite power, zeros beyond the end must still add zero
            far = far * power if np.isfinite(power) else jnp.where(far == 0, far, far * power)
        return COMBINE[reduce](near, far)

    total = _windows(x, attrs.axis, window, fill, join)
    return total if attrs.forward else jnp.flip(total, attrs.axis)


def _windows(
    x: JaxArray,
    axis: int,
    window: int,
    fill: Any,
    join: Callable[[JaxArray, JaxArray, int], JaxArray],
) -> JaxArray:
    """Join elements k to k + window at each k, by doubling: log2(window) passes over x."""

    def shift(y: JaxArray, k: int) -> JaxArray:
        widths = [(0, k, 0) if a == axis else (0, 0, 0) for a in range(y.ndim)]
        far = jax.lax.pad(y, fill, widths)
        return jax.lax.slice_in_dim(far, k, k + y.shape[axis], axis=axis)

    result: JaxArray | None = None
    done, block, width = 0, x, 1
    while done < window:
        if window & width:
            result = block if result is None else join(result, shift(block, done), done)
            done += width
        if done < window:
            block = join(block, shift(block, width), width)
            width *= 2
    return jnp.full_like(x, fill) if result is None else result


def dot(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    attrs: DotAttrs = op.attrs
    summed = [k for k, label in enumerate(attrs.left) if label not in attrs.out]
    left = mask_padding(scope, args[0], sizes[0], summed, 0)
    summed = [k for k, label in enumerate(attrs.right) if label not in attrs.out]
    right = mask_padding(scope, args[1], sizes[1], summed, 0)
    wide = None if op.dtype not in HALF else jnp.float32
    divided = _sharded_labels(scope, (attrs.left, attrs.right), sizes)
    return _contract(attrs, left, right, wide, divided).astype(NUMPY[op.dtype])


def _sharded_labels(scope: Scope, labels: Sequence[str], sizes: Any) -> set[str]:
    """Return the labels of divided axes."""
    pairs = (pair for text, shape in zip(labels, sizes, strict=True) for pair in zip(text, shape))  # noqa: B905
    return {label for label, size in pairs if scope.is_divided(size)}


def _contract(
    attrs: DotAttrs, left: JaxArray, right: JaxArray, wide: Any, divided: set[str]
) -> JaxArray:
    """Contract two arrays, with adjacent axes merged if they are adjacent in all three label strings.

    XLA would copy operands for a contraction over two axes. An axis in `divided` is never merged into
    the axis before it, as no device could hold its part of the merged axis.
    """
    labels = [attrs.left, attrs.right, attrs.out]
    of = dict(zip(attrs.left + attrs.right, left.shape + right.shape, strict=True))
    shape = [of[k] for k in attrs.out]
    for pair in dict.fromkeys(a + b for text in labels for a, b in pairwise(text)):
        first, second = pair
        if second in divided:
            continue
        if all((first in text or second in text) <= (pair in text) for text in labels):
            labels = [text.replace(pair, second) for text in labels]
            of[second] *= of[first]
            divided = divided | ({second} if first in divided else set())
    left, right = (x.reshape([of[k] for k in text]) for x, text in zip((left, right), labels))  # noqa: B905
    return _apply_dot_general(left, right, labels, wide).reshape(shape)


def _apply_dot_general(
    left: JaxArray, right: JaxArray, labels: Sequence[str], wide: Any
) -> JaxArray:
    """Contract two arrays by `lax.dot_general`. (`jnp.einsum` would add an entry to JAX's cache per call.)

    The operands are exchanged if this avoids a transposition of the result.
    """
    one, two, out = labels
    left, one = _sum_unshared_labels(left, one, two + out)
    right, two = _sum_unshared_labels(right, two, one + out)
    batch = [k for k in out if k in one and k in two]
    summed = [k for k in one if k in two and k not in out]

    def own_labels(text: str) -> list[str]:
        return [k for k in text if k not in batch and k not in summed]

    if [*batch, *own_labels(two), *own_labels(one)] == list(out):
        left, one, right, two = right, two, left, one

    def axes_of(labels: Sequence[str]) -> tuple[list[int], list[int]]:
        return [one.index(k) for k in labels], [two.index(k) for k in labels]

    how = axes_of(summed), axes_of(batch)
    made = jax.lax.dot_general(left, right, how, preferred_element_type=wide)
    have = [*batch, *own_labels(one), *own_labels(two)]
    return made.transpose([have.index(k) for k in out])


def _sum_unshared_labels(x: JaxArray, text: str, others: str) -> tuple[JaxArray, str]:
    """Sum an operand over the labels of this operand alone."""
    alone = tuple(k for k, label in enumerate(text) if label not in others)
    return (x.sum(axis=alone, dtype=x.dtype) if alone else x), "".join(
        k for k in text if k in others
    )


def conv(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    """Convolve by JAX's convolution, with axes of the same role merged into one."""
    a: ConvAttrs = op.attrs
    shape, swept = scope.shape(op.shape), [s.label for s in a.sweeps]
    parts = _sharded_labels(scope, (a.left, a.right), sizes)

    def order_labels(labels: list[str]) -> list[str]:
        """Put divided axes first, as the outermost axis stays divided after merging."""
        return sorted(labels, key=lambda label: label not in parts)

    summed = order_labels([x for x in a.left if x not in a.out])
    x = mask_padding(scope, args[0], sizes[0], [a.left.index(k) for k in (*summed, *swept)], 0)
    w = mask_padding(scope, args[1], sizes[1], [a.right.index(k) for k in (*summed, *swept)], 0)
    if not prod((*x.shape, *w.shape, *shape)):
        return jnp.zeros(shape, x.dtype)
    groups = order_labels([k for k in a.out if k in a.left and k in a.right and k not in swept])
    mine = order_labels([k for k in a.out if k not in a.right])
    theirs = order_labels([k for k in a.out if k not in a.left])
    of = dict(zip(a.left + a.right, x.shape + w.shape, strict=True)) | dict(
        zip(a.out, shape, strict=True)
    )

    def merge_axes(y: JaxArray, labels: str, *parts: list[str]) -> JaxArray:
        y = jnp.transpose(
            y, [labels.index(k) for part in parts for k in part] + [labels.index(k) for k in swept]
        )
        return y.reshape(
            *(prod(of[k] for k in part) for part in parts), *y.shape[y.ndim - len(swept) :]
        )

    x = merge_axes(x, a.left, mine, [*groups, *summed])
    w = merge_axes(w, a.right, [*groups, *theirs], summed)
    if a.mirrored:
        w = jnp.flip(w, range(2, w.ndim))
    padding: list[tuple[int, int]] = []
    for k, s in enumerate(a.sweeps):
        n, reach = of[s.label], (w.shape[2 + k] - 1) * s.dilation
        before = s.offset + (reach if a.mirrored else 0)
        wide = (x.shape[2 + k] - 1) * s.spread + 1
        padding.append((before, (n - 1) * s.stride + reach + 1 - wide - before))
    made = jax.lax.conv_general_dilated(
        x,
        w,
        [s.stride for s in a.sweeps],
        padding,
        [s.spread for s in a.sweeps],
        [s.dilation for s in a.sweeps],
        feature_group_count=prod(of[k] for k in groups),
    )
    labels = [*mine, *groups, *theirs, *swept]
    made = made.reshape([of[k] for k in labels])
    return jnp.transpose(made, [labels.index(k) for k in a.out])


def linear_scan(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    attrs: ScanAttrs = op.attrs
    factor, term = (
        mask_padding(scope, x, shape, (attrs.axis,), 0)
        for x, shape in zip(args, sizes, strict=True)
    )

    if attrs.reverse and (length := scope.length(sizes[0][attrs.axis])) is not None:
        # the last valid element starts a reversed scan: padding after it must not contribute
        place = jax.lax.broadcasted_iota(jnp.int32, factor.shape, attrs.axis)
        factor = jnp.where(place == length - 1, jnp.zeros_like(factor), factor)

    def then(first: JaxArray, second: JaxArray) -> JaxArray:
        (a, b), (factor, term) = first, second
        return a * factor, _next(factor, b, term, restarts=attrs.restarts)

    if term.size and (attrs.ordered or _runs_in_order()):
        return _in_order(factor, term, attrs.axis, reverse=attrs.reverse, restarts=attrs.restarts)
    return jax.lax.associative_scan(then, (factor, term), reverse=attrs.reverse, axis=attrs.axis)[1]


def _runs_in_order() -> bool:
    """Whether a sequential loop is faster than a parallel scan, as on a CPU."""
    return not is_accelerated()


def _next(factor: JaxArray, before: JaxArray, term: JaxArray, *, restarts: bool) -> JaxArray:
    made = factor * before + term
    return jnp.where(factor == 0, term, made) if restarts else made


def _in_order(
    factor: JaxArray, term: JaxArray, axis: int, *, reverse: bool, restarts: bool = False
) -> JaxArray:
    """Evaluate a recurrence sequentially."""

    def step(y: JaxArray, ab: tuple[JaxArray, JaxArray]) -> tuple[JaxArray, JaxArray]:
        y = _next(ab[0], y, ab[1], restarts=restarts)
        return y, y

    factor, term = jnp.moveaxis(factor, axis, 0), jnp.moveaxis(term, axis, 0)
    start = jnp.zeros(term.shape[1:], term.dtype)
    factor = factor.at[-1 if reverse else 0].set(0)  # the first element has no predecessor
    result = jax.lax.scan(step, start, (factor, term), reverse=reverse)[1]
    return jnp.moveaxis(result, 0, axis)
