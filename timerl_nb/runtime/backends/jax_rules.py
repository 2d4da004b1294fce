"""What each operation kind is in `jax.numpy`.

Axes of symbolic length run at a static capacity, with the valid length beside them: elements beyond
it are arbitrary, and the rules that combine elements along such an axis mask them (`PADDING` states
the rule per kind). So one kernel serves every point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from timerl_nb.ir import randomness
from timerl_nb.ir.attrs import (
    AtAttrs,
    AxesAttrs,
    ConstAttrs,
    DiscountAttrs,
    DotAttrs,
    PlaceAttrs,
    RangeAttrs,
    ReindexAttrs,
    RngAttrs,
    SlidingAttrs,
    ValueAttrs,
)
from timerl_nb.ir.ops import Op
from timerl_nb.ir.reference_rules import identity
from timerl_nb.ir.shapes import NUMPY, Size
from timerl_nb.symbolic.arrays import values
from timerl_nb.symbolic.evaluate import evaluate
from timerl_nb.symbolic.expr import Cond, Lin, sym

Array = Any  # a JAX array, traced or not


@dataclass(frozen=True)
class Scope:
    """What a kernel knows while it is traced.

    Attributes:
        bounds: the actual bounds.
        point: the traced values of the dimensions that the kernel depends on.
        seed: the two words of the run's seed.
        capacity: the static size of an axis, the greatest it has at any point.
    """

    bounds: Mapping[str, int]
    point: Mapping[str, Array]
    seed: tuple[Array, Array]
    capacity: Callable[[Size], int]

    def value(self, e: Lin | Cond, also: Mapping[str, Array] | None = None) -> Array:
        """A traced index expression or condition."""
        return values(e, {**self.bounds, **self.point, **(also or {})}, jnp)

    def shape(self, sizes: Sequence[Size]) -> tuple[int, ...]:
        return tuple(self.capacity(s) for s in sizes)

    def length(self, size: Size) -> Array | None:
        """The valid length of an axis where it can be less than its capacity."""
        if isinstance(size, int) or not size.symbols.intersection(self.point):
            return None
        return jnp.maximum(self.value(size), 0)


Rule = Callable[[Scope, Op, Sequence[Array], Sequence[Sequence[Size]]], Array]


def _plain(f: Callable[..., Any]) -> Rule:
    """A rule that needs the operands alone."""
    return lambda scope, op, args, sizes: f(*args)


def _mask(scope: Scope, x: Array, sizes: Sequence[Size], axes: Sequence[int], fill: Any) -> Array:
    """The operand with what lies beyond the valid lengths of `axes` replaced by `fill`."""
    for axis in axes:
        length = scope.length(sizes[axis])
        if length is not None:
            along = jnp.arange(x.shape[axis]).reshape(
                [-1 if k == axis else 1 for k in range(x.ndim)]
            )
            x = jnp.where(along < length, x, jnp.asarray(fill, x.dtype))
    return x


def _grid(
    scope: Scope, axes: Sequence[str], sizes: Sequence[Size], starts: Sequence[Lin] = ()
) -> dict[str, Array]:
    """The dimensions in `axes` as arrays that vary along their own axes, from `starts` on."""
    shape = scope.shape(sizes)
    found: dict[str, Array] = {}
    for k, (name, n) in enumerate(zip(axes, shape, strict=True)):
        along = [-1 if j == k else 1 for j in range(len(shape))]
        steps = jnp.arange(n, dtype=jnp.int32).reshape(along)
        found[name] = steps + scope.value(starts[k]) if starts else steps
    return found


def _const(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: ConstAttrs = op.attrs
    array = jnp.asarray(attrs.value.array)
    if not attrs.dims:
        return array
    grid = _grid(scope, attrs.axes, attrs.sizes, attrs.starts)
    return array[tuple(grid[d] if d in grid else scope.value(sym(d)) for d in attrs.dims)]


def _value(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: ValueAttrs = op.attrs
    made = scope.value(attrs.expr, _grid(scope, attrs.axes, attrs.sizes))
    return jnp.broadcast_to(jnp.asarray(made, NUMPY[attrs.dtype]), scope.shape(attrs.sizes))


def _rng(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: RngAttrs = op.attrs
    lead, shape = scope.shape(attrs.sizes), scope.shape(attrs.shape)
    grid = _grid(scope, attrs.axes, attrs.sizes, attrs.starts)
    coords: list[Array] = []
    for d in attrs.dims:
        coord = grid[d] if d in grid else scope.value(sym(d))
        coord = jnp.asarray(coord).astype(jnp.uint32)
        coords.append(coord[..., None] if coord.ndim else coord.reshape((1,) * (len(lead) + 1)))
    words = (np.uint32(w) for w in randomness.stream_words(attrs.stream))
    high, low = (jnp.full((1,), w) for w in words)
    elements = jnp.arange(prod(shape), dtype=jnp.uint32)
    drawn = randomness.bits(scope.seed, (high, low), coords, elements, prod(shape))
    return jnp.broadcast_to(drawn, (*lead, prod(shape))).reshape((*lead, *shape))


def _unit(drawn: Array) -> Array:
    return ((drawn >> np.uint32(9)).astype(jnp.float32) + np.float32(0.5)) * np.float32(2.0**-23)


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


def _reduction(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: AxesAttrs = op.attrs
    x = args[0].astype(jnp.int32) if op.kind in ("sum", "prod") and op.dtype == "i32" else args[0]
    nothing = np.asarray(identity(op.kind, np.dtype(x.dtype)), x.dtype)
    x = _mask(scope, x, sizes[0], attrs.axes, nothing)
    start = nothing if op.kind in ("max", "min") else None
    return _FOLD[op.kind](x, axis=attrs.axes, initial=start)


def _argmax(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    axis = op.attrs.axis
    low = identity("max", np.dtype(args[0].dtype))
    return jnp.argmax(_mask(scope, args[0], sizes[0], (axis,), low), axis).astype(jnp.int32)


def _discounted(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: DiscountAttrs = op.attrs
    x = _mask(scope, args[0], sizes[0], (attrs.axis,), 0)
    n = x.shape[attrs.axis]
    length = scope.length(sizes[0][attrs.axis])
    powers = jnp.arange(n)
    if attrs.reverse:
        powers = (n if length is None else length) - 1 - powers
    weights = jnp.asarray(attrs.gamma, x.dtype) ** jnp.maximum(powers, 0).astype(x.dtype)
    along = weights.reshape([-1 if k == attrs.axis else 1 for k in range(x.ndim)])
    return (along * x).sum(attrs.axis)


def _sliding(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: SlidingAttrs = op.attrs
    x = _mask(scope, args[0], sizes[0], (attrs.axis,), 0)
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


def _dot(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: DotAttrs = op.attrs
    summed = [k for k, label in enumerate(attrs.left) if label not in attrs.out]
    left = _mask(scope, args[0], sizes[0], summed, 0)
    summed = [k for k, label in enumerate(attrs.right) if label not in attrs.out]
    right = _mask(scope, args[1], sizes[1], summed, 0)
    return jnp.einsum(str(attrs), left, right)


def _range(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: RangeAttrs = op.attrs
    n, x = scope.capacity(op.shape[attrs.axis]), args[0]
    if not attrs.lo.symbols.intersection(scope.point):
        lo = min(evaluate(attrs.lo, scope.bounds), x.shape[attrs.axis] - n)  # where n is 0
        return jax.lax.slice_in_dim(x, lo, lo + n, axis=attrs.axis)
    at = jnp.clip(scope.value(attrs.lo) + jnp.arange(n), 0, x.shape[attrs.axis] - 1)
    return jnp.take(x, at, axis=attrs.axis)


def _place(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: PlaceAttrs = op.attrs
    x, axis, size = args[0], attrs.axis, scope.capacity(op.shape[attrs.axis])
    n, length = x.shape[axis], scope.length(sizes[0][axis])
    if length is None and not attrs.lo.symbols.intersection(scope.point):
        lo = evaluate(attrs.lo, scope.bounds)
        widths = [(lo, size - lo - n, 0) if k == axis else (0, 0, 0) for k in range(x.ndim)]
        return jax.lax.pad(x, jnp.zeros((), x.dtype), widths)
    if n == 0:
        return jnp.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
    at = jnp.arange(size) - scope.value(attrs.lo)
    inside = ((at >= 0) & (at < (n if length is None else length))).reshape(
        [-1 if k == axis else 1 for k in range(x.ndim)]
    )
    return jnp.where(inside, jnp.take(x, jnp.clip(at, 0, n - 1), axis=axis), 0).astype(x.dtype)


def _at(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: AtAttrs = op.attrs
    return jax.lax.dynamic_index_in_dim(
        args[0], scope.value(attrs.at), axis=attrs.axis, keepdims=False
    )


def _reindex(scope: Scope, op: Op, args: Sequence[Array], sizes: Any) -> Array:
    attrs: ReindexAttrs = op.attrs
    x, axis, n = args[0], attrs.axis, scope.capacity(op.shape[attrs.axis])
    last = x.shape[axis] - 1
    if attrs.at.symbols.intersection(scope.point) - {attrs.dim}:
        at = scope.value(attrs.at, {attrs.dim: jnp.arange(n)})
        return jnp.take(x, jnp.clip(at, 0, last), axis=axis)
    positions = np.clip(values(attrs.at, {**scope.bounds, attrs.dim: np.arange(n)}), 0, last)
    positions = np.broadcast_to(positions, (n,))
    start, end = int(positions[0]), int(positions[-1])
    if np.array_equal(positions, np.arange(n) + start):
        return jax.lax.slice_in_dim(x, start, start + n, axis=axis)
    # a shift that stays at an end is a slice beside repetitions of that end
    steps = np.flatnonzero(np.diff(positions))
    lo, hi = (int(steps[0]), int(steps[-1]) + 2) if len(steps) else (0, 1)
    if np.array_equal(positions[lo:hi], np.arange(hi - lo) + start):
        widths = [(lo, n - hi) if k == axis else (0, 0) for k in range(x.ndim)]
        part = jax.lax.slice_in_dim(x, start, end + 1, axis=axis)
        return jnp.pad(part, widths, mode="edge")
    return jnp.take(x, positions, axis=axis)


RULES: Final[Mapping[str, Rule]] = {
    "const": _const,
    "data": _const,
    "value": _value,
    "rng": _rng,
    "neg": _plain(jnp.negative),
    "abs": _plain(jnp.abs),
    "sign": _plain(jnp.sign),
    "exp": _plain(jnp.exp),
    "log": _plain(jnp.log),
    "sqrt": _plain(jnp.sqrt),
    "sin": _plain(jnp.sin),
    "cos": _plain(jnp.cos),
    "tanh": _plain(jnp.tanh),
    "sigmoid": _plain(jax.nn.sigmoid),
    "erf_inv": _plain(jax.lax.erf_inv),
    "floor": _plain(jnp.floor),
    "not": _plain(jnp.logical_not),
    "cast": lambda scope, op, args, sizes: args[0].astype(NUMPY[op.dtype]),
    "unit": _plain(_unit),
    "copy": _plain(lambda x: x),
    "detach": _plain(lambda x: x),
    "add": _plain(jnp.add),
    "sub": _plain(jnp.subtract),
    "mul": _plain(jnp.multiply),
    "div": _plain(jnp.divide),
    "pow": _plain(jnp.power),
    "max2": _plain(jnp.maximum),
    "min2": _plain(jnp.minimum),
    "floordiv": _plain(jnp.floor_divide),
    "mod": _plain(jnp.mod),
    "eq": _plain(jnp.equal),
    "ne": _plain(jnp.not_equal),
    "lt": _plain(jnp.less),
    "le": _plain(jnp.less_equal),
    "and": _plain(jnp.logical_and),
    "or": _plain(jnp.logical_or),
    "where": _plain(jnp.where),
    "sum": _reduction,
    "prod": _reduction,
    "max": _reduction,
    "min": _reduction,
    "argmax": _argmax,
    "discounted_sum": _discounted,
    "sliding_sum": _sliding,
    "dot": _dot,
    "reshape": lambda scope, op, args, sizes: args[0].reshape(scope.shape(op.shape)),
    "transpose": lambda scope, op, args, sizes: jnp.transpose(args[0], op.attrs.perm),
    "expand": lambda scope, op, args, sizes: jnp.broadcast_to(args[0], scope.shape(op.shape)),
    "concat": lambda scope, op, args, sizes: jnp.concatenate(args, op.attrs.axis),
    "range": _range,
    "at": _at,
    "place": _place,
    "reindex": _reindex,
    "flip": lambda scope, op, args, sizes: jnp.flip(args[0], op.attrs.axis),
}
NO_RULE: Final[Mapping[str, str]] = {
    "merge": "a name for one of its branches' values; never executed",
    "accumulate": "its operand is added to a slot by the dataflow that makes it",
    "dataflow": "traced operation by operation",
    "output": "a sink",
    "checkpoint": "a sink that the host runs",
    "call": "a sink that the host runs",
    "udf": "a function that the host runs",
}

# What a kind does with the elements of an axis beyond its valid length.
PADDING: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sum", "discounted_sum", "sliding_sum", "dot"), "zeros"),
    "prod": "ones",
    **dict.fromkeys(("max", "argmax"), "the least value"),
    "min": "the greatest value",
    "place": "left out",
    **dict.fromkeys(("transpose", "expand", "range", "at"), "carried along"),
}
# Kinds that move elements along an axis, and so cannot run on one whose valid length varies.
NO_PADDING: Final[Mapping[str, str]] = {
    "flip": "the valid elements would move to the end",
    "reindex": "the end that is read beyond it would be the padding's",
    "concat": "the padding would come to lie inside",
    "reshape": "elements would move between the axis and others (axes of size 1 aside)",
}
