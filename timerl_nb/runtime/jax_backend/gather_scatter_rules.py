"""JAX rules for reading and writing elements at positions of an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operation_attributes import (
    GatherAttrs,
    ReindexAttrs,
    ScatterAttrs,
    SetAttrs,
    SortAttrs,
)
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import NUMPY, Size
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray, Scope, mask_padding


@dataclass(frozen=True)
class Picks:
    """Slice that stays in its buffer: a gather along it reads only the selected elements.

    Attributes:
        shape: Shape of the slice at its capacity; the sliced axis is the first.
        dtype: Element type.
        look: Returns the values at positions along the sliced axis. Its second argument selects elements
            of each value, by axis; these axes are missing in the result. Values at invalid positions are
            arbitrary.
    """

    shape: tuple[int, ...]
    dtype: Any
    look: Callable[[JaxArray, Mapping[int, JaxArray]], JaxArray]

    @property
    def ndim(self) -> int:
        return len(self.shape)


def arg_extremum(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    axis = op.attrs.axis
    find = jnp.argmax if op.kind == "argmax" else jnp.argmin
    worst = identity(op.kind.removeprefix("arg"), np.dtype(args[0].dtype))
    return find(mask_padding(scope, args[0], sizes[0], (axis,), worst), axis).astype(jnp.int32)


def argsort(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    attrs: SortAttrs = op.attrs
    (x,), axis = args, attrs.axis
    if attrs.descending:
        x = -x if jnp.issubdtype(x.dtype, jnp.floating) else ~x  # ~x cannot overflow
    place = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis)
    length = scope.length(sizes[0][axis])
    keys = (x,) if length is None else (place >= length, x)  # padding sorts last
    return jax.lax.sort((*keys, place), dimension=axis, num_keys=len(keys))[-1]


def gather(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    a: GatherAttrs = op.attrs
    x, at = args[0], _positions(args[1])
    k = a.left.index(a.axis)
    length, n = scope.length(sizes[0][k]), x.shape[k]
    if not prod(x.shape):
        return jnp.zeros(scope.shape(op.shape), x.dtype)
    inside = (at >= 0) & (at < (n if length is None else length))
    position = jnp.clip(at, 0, n - 1)
    both = [label for label in a.left if label in a.right]
    mine = [label for label in a.left if label not in a.right and label != a.axis]
    own = [label for label in a.right if label not in a.left]
    position, inside = (_in_order(y, a.right, [*both, *own]) for y in (position, inside))
    if isinstance(x, Picks):
        grid = jnp.indices(position.shape[: len(both)], sparse=True)
        there = (1,) * len(own)
        along = [steps.reshape(steps.shape + there) for steps in grid]
        places = [a.left.index(label) - 1 for label in both]
        found, front = x.look(position, dict(zip(places, along, strict=True))), []
    elif both:
        x = _in_order(x, a.left, [*both, a.axis, *mine])
        found, front = _at_rows(scope, sizes[0], len(both), _take_clipped)(x, position), []
    else:  # without batch axes, no transposition is needed
        found, front = _take_clipped(x, position, k), mine[:k]
    behind = mine[len(front) :]
    inside = inside.reshape((1,) * len(front) + inside.shape + (1,) * len(behind))
    found = jnp.where(inside, found, 0).astype(x.dtype)
    return _in_order(found, [*front, *both, *own, *behind], a.out)


def _take_clipped(x: JaxArray, position: JaxArray, axis: int = 0) -> JaxArray:
    return jnp.take(x, position, axis=axis, mode="clip")


def _at_rows(
    scope: Scope, sizes: Sequence[Size], many: int, one: Callable[..., JaxArray]
) -> Callable[..., JaxArray]:
    """Extend a function of positions along an axis to arrays with `many` batch axes in front.

    The batch axes and the axis are merged, as XLA transposes the whole array for a batched gather. Divided
    arrays are mapped by `jax.vmap` instead, which keeps them divided.

    Args:
        scope: Trace context.
        sizes: Sizes of the array's axes.
        many: Number of batch axes.
        one: Takes an array, positions along its first axis, and values for a scatter.
    """
    if any(map(scope.is_divided, sizes)):
        for _ in range(many):
            one = jax.vmap(one)
        return one

    def gather_rows(x: JaxArray, position: JaxArray, *values: JaxArray) -> JaxArray:
        front, n = x.shape[:many], x.shape[many]
        batch = jnp.arange(prod(front), dtype=position.dtype)
        batch = batch.reshape(*front, *(1,) * (position.ndim - many))
        # a position beyond one row must be beyond the merged axis
        whole = jnp.where(position < n, batch * n + position, prod(front) * n)
        return one(x.reshape(-1, *x.shape[many + 1 :]), whole, *values)

    return gather_rows if many else one


def scatter_add(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    a: ScatterAttrs = op.attrs
    x, at = args[0], _positions(args[1])
    summed = [k for k, label in enumerate(a.left) if label not in a.out]
    x = mask_padding(scope, x, sizes[0], summed, 0)
    size = scope.capacity(a.size)
    # negative positions would count from the end, so they are replaced by a position beyond it
    position = at if jnp.issubdtype(at.dtype, jnp.unsignedinteger) else jnp.where(at < 0, size, at)

    def place(x: JaxArray, position: JaxArray) -> JaxArray:
        made = jnp.zeros((size, *x.shape[position.ndim :]), x.dtype)
        return made.at[position].add(x, mode="drop")

    both = [label for label in a.right if label in a.out]
    own = [label for label in a.right if label not in a.out]
    rest = [label for label in a.left if label not in a.right]
    x = _in_order(x, a.left, [*both, *own, *rest])
    position = _in_order(position, a.right, [*both, *own])
    for _ in both:
        place = jax.vmap(place)
    return _in_order(place(x, position), [*both, a.axis, *rest], a.out)


def scatter_set(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    a: SetAttrs = op.attrs
    x, values, at = args[0], args[1], _positions(args[2])
    both = [label for label in a.right if label in a.out]
    own = [label for label in a.right if label not in a.out]
    rest = [label for label in a.left if label not in a.right]
    k = a.out.index(a.axis)
    length, n = scope.length(sizes[0][k]), x.shape[k]
    there = jnp.ones(at.shape, bool)
    for axis, label in enumerate(a.right):  # padded positions write nothing
        end = scope.length(sizes[2][axis]) if label in own else None
        if end is not None:
            steps = jnp.arange(at.shape[axis])
            there &= (steps < end).reshape([-1 if j == axis else 1 for j in range(at.ndim)])
    inside = there & (at >= 0) & (at < (n if length is None else length))
    position = jnp.where(inside, at, n)
    if not both:  # without batch axes, no transposition is needed
        values = _in_order(values, a.left, [*a.out[:k], *own, *a.out[k + 1 :]])
        return _scatter_set(x, position, values, k)
    x = _in_order(x, a.out, [*both, a.axis, *rest])
    values = _in_order(values, a.left, [*both, *own, *rest])
    position = _in_order(position, a.right, [*both, *own])
    if any(map(scope.is_divided, sizes[0])):
        found = _at_rows(scope, sizes[0], len(both), _scatter_set)(x, position, values)
    else:
        found = _set_in_rows(x, position, values, len(both))
    return _in_order(found, [*both, a.axis, *rest], a.out)


def _scatter_set(x: JaxArray, position: JaxArray, values: JaxArray, axis: int = 0) -> JaxArray:
    flat = jax.lax.platform_dependent(position.reshape(-1), cpu=_in_turn, default=_last_ones)
    values = values.reshape(*x.shape[:axis], flat.size, *x.shape[axis + 1 :])
    return x.at[(*[slice(None)] * axis, flat)].set(values, mode="drop")


def _set_in_rows(x: JaxArray, position: JaxArray, values: JaxArray, many: int) -> JaxArray:
    """Scatter like `_scatter_set`, along the axis after `many` batch axes.

    The array keeps its shape, as XLA would write into a copy of a reshaped array.
    """
    front, n = x.shape[:many], x.shape[many]
    rows = jnp.arange(prod(front), dtype=position.dtype)
    rows = jnp.broadcast_to(
        rows.reshape(*front, *(1,) * (position.ndim - many)), position.shape
    ).reshape(-1)
    end = prod(front) * n
    place = position.reshape(-1)
    whole = jnp.where(place < n, rows * n + place, end)
    whole = jax.lax.platform_dependent(whole, cpu=_in_turn, default=_last_ones)
    place = jnp.where(whole < end, place, n)
    at = (*jnp.unravel_index(rows, front), place)
    return x.at[at].set(values.reshape(-1, *x.shape[many + 1 :]), mode="drop")


def _in_turn(position: JaxArray) -> JaxArray:
    """Return positions unchanged, for XLA on a CPU: it writes in order, so the last value wins."""
    return position


def _last_ones(position: JaxArray) -> JaxArray:
    """Move all but the last of equal positions beyond the axis, so the last value wins on any device."""
    number = jnp.arange(position.size)
    place, order = jax.lax.sort((position, number), num_keys=2)
    last = jnp.concatenate([place[1:] != place[:-1], jnp.ones(1, bool)])
    kept = jnp.zeros(position.size, bool).at[order].set(last, unique_indices=True)
    return jnp.where(kept, position, jnp.iinfo(position.dtype).max)


def _positions(at: JaxArray) -> JaxArray:
    """Return positions in a type of at least 32 bits."""
    return at.astype(jnp.int32) if at.dtype.itemsize < 4 else at


def _in_order(x: JaxArray, have: Sequence[str], want: Sequence[str]) -> JaxArray:
    return jnp.transpose(x, [have.index(label) for label in want])


def concat(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    axis = op.attrs.axis
    lengths = [scope.length(shape[axis]) for shape in sizes]
    if all(length is None for length in lengths):
        return jnp.concatenate(args, axis)
    made, start = jnp.zeros(scope.shape(op.shape), NUMPY[op.dtype]), jnp.zeros((), jnp.int32)
    places = jnp.arange(made.shape[axis])
    for x, length in zip(args, lengths, strict=True):
        made = _laid(made, x, axis, places - start, length)
        start = start + (x.shape[axis] if length is None else length)
    return made


def _laid(onto: JaxArray, x: JaxArray, axis: int, at: Any, length: JaxArray | None) -> JaxArray:
    """Write elements of `x` over `onto`, for positions of an axis in the valid part of `x`."""
    n = x.shape[axis]
    if n == 0:
        return onto
    inside = ((at >= 0) & (at < (n if length is None else length))).reshape(
        [-1 if k == axis else 1 for k in range(x.ndim)]
    )
    there = jnp.take(x, jnp.clip(at, 0, n - 1), axis=axis)
    return jnp.where(inside, there, onto).astype(onto.dtype)


def reindex(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    attrs: ReindexAttrs = op.attrs
    x, axis = args[0], attrs.axis
    if attrs.size is None:
        return jax.lax.dynamic_index_in_dim(x, scope.value(attrs.at), axis, keepdims=False)
    n, m = scope.capacity(op.shape[axis]), x.shape[axis]
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    if not n or not m:
        return jnp.zeros(shape, x.dtype)
    length = scope.length(sizes[0][axis]) if attrs.beyond == "zero" else None
    is_fixed = length is None and not attrs.at.symbols.intersection(scope.point)
    numpy, bounds = (np, scope.bounds) if is_fixed else (jnp, {**scope.bounds, **scope.point})
    found = values(attrs.at, {**bounds, **dict.fromkeys(attrs.bound_dims, numpy.arange(n))}, numpy)
    at = numpy.broadcast_to(found, (n,))
    if attrs.beyond != "zero":
        at = numpy.clip(at, 0, m - 1)
        return _take_fixed(x, axis, at) if is_fixed else jnp.take(x, at, axis=axis)  # pyrefly: ignore[bad-argument-type]
    if is_fixed and np.array_equal(at, at[0] + np.arange(n)):
        widths = [(-at[0], n + at[0] - m, 0) if k == axis else (0, 0, 0) for k in range(x.ndim)]
        return jax.lax.pad(x, jnp.zeros((), x.dtype), widths)  # pyrefly: ignore[bad-argument-type]
    return _laid(jnp.zeros(shape, x.dtype), x, axis, at, length)


def _take_fixed(x: JaxArray, axis: int, at: Array) -> JaxArray:
    """Return the elements at fixed positions of an axis, by slicing if they are consecutive."""
    n, start, end = len(at), int(at[0]), int(at[-1])
    if np.array_equal(at, start + np.arange(n)):
        return jax.lax.slice_in_dim(x, start, start + n, axis=axis)
    if np.array_equal(at, start - np.arange(n)):
        return jnp.flip(jax.lax.slice_in_dim(x, end, start + 1, axis=axis), axis)
    # positions clipped at an end: a slice, padded with the edge value
    steps = np.flatnonzero(np.diff(at))
    lo, hi = (int(steps[0]), int(steps[-1]) + 2) if len(steps) else (0, 1)
    if np.array_equal(at[lo:hi], np.arange(hi - lo) + start):
        widths = [(lo, n - hi) if k == axis else (0, 0) for k in range(x.ndim)]
        part = jax.lax.slice_in_dim(x, start, end + 1, axis=axis)
        return jnp.pad(part, widths, mode="edge")
    return jnp.take(x, at, axis=axis)
