"""Translation of operations to `jax.numpy`, a rule per kind.

Axes of symbolic length have a static capacity and a traced valid length, so one kernel serves every point.
Elements beyond the valid length are arbitrary. Rules for reductions along such an axis mask them
(`PADDING` lists the rule per kind).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from timerl_nb.compiler.ir.operation_attributes import (
    ConstAttrs,
    ValueAttrs,
)
from timerl_nb.compiler.ir.operation_kinds import LAYOUT
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import HALF, NUMPY, Size
from timerl_nb.compiler.symbolic.index_expressions import ZERO, sym
from timerl_nb.runtime.jax_backend import gather_scatter_rules as positions
from timerl_nb.runtime.jax_backend import reduction_rules as sums
from timerl_nb.runtime.jax_backend.random_rules import draw
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray, Rule, Scope, grid_of
from timerl_nb.runtime.jax_backend.user_function_calls import evaluate_jax_function


def _plain(f: Callable[..., Any]) -> Rule:
    """Return a rule with access to the operands only."""
    return lambda scope, op, args, sizes: f(*args)


def _direct(f: Callable[..., Any], primitive: Callable[..., Any], kinds: str) -> Rule:
    """Return a rule that applies a primitive if it equals the function `f` of `jax.numpy`.

    This gives the same program, and tracing takes a fraction of the time.

    Args:
        f: Function that also broadcasts and converts its operands.
        primitive: Primitive for operands of one shape and type.
        kinds: NumPy's letters of the types for which both are equal.
    """

    def rule(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
        shape, dtype = args[0].shape, args[0].dtype
        alike = dtype.kind in kinds and all(x.shape == shape and x.dtype == dtype for x in args[1:])
        return (primitive if alike else f)(*args)

    return rule


def _const(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    attrs: ConstAttrs = op.attrs
    argument = scope.given.get(attrs.value)
    array = jnp.asarray(attrs.value.array) if argument is None else argument
    if not attrs.dims:
        return array
    # XLA would write the result of a gather to a new array, but reads a slice in place. In a constant array, it
    # would fold the slices, and replace divisions by multiplications with reciprocals, which are 0 for divisors
    # above 8.5e37.
    parts = None if argument is None else _parts_of(scope, attrs)
    if parts is not None:
        whole = tuple(parts.get(d, slice(None)) for d in attrs.dims)
        array = array[whole]
        if points := [d for d in attrs.dims if d not in parts]:
            at = {d: scope.value(sym(d)) for d in points}
            array = array[tuple(at.get(d, slice(None)) for d in attrs.dims)]
        left = [d for d in attrs.dims if d in parts]
        order = [left.index(d) for d in attrs.axes]
        return jnp.transpose(array, (*order, *range(len(order), array.ndim)))
    along = grid_of(scope, attrs.axes, attrs.sizes, attrs.starts)
    return array[tuple(along[d] if d in along else scope.value(sym(d)) for d in attrs.dims)]


def _parts_of(scope: Scope, attrs: ConstAttrs) -> dict[str, slice] | None:
    """Return the static range of a given array along each axis; None if an axis moves or ends early."""
    found: dict[str, slice] = {}
    for k, (name, n) in enumerate(zip(attrs.axes, scope.shape(attrs.sizes), strict=True)):
        first = attrs.starts[k] if attrs.starts else ZERO
        moves = scope.block is not None and scope.block.is_along(attrs.sizes[k])
        if moves or not first.is_const or name not in attrs.dims:
            return None
        if first.const + n > attrs.value.array.shape[attrs.dims.index(name)]:
            return None
        found[name] = slice(first.const, first.const + n)
    return found


def _value(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    attrs: ValueAttrs = op.attrs
    made = scope.value(attrs.expr, grid_of(scope, attrs.axes, attrs.sizes))
    return jnp.broadcast_to(jnp.asarray(made, NUMPY[attrs.dtype]), scope.shape(attrs.sizes))


def _unit(drawn: JaxArray) -> JaxArray:
    return ((drawn >> np.uint32(9)).astype(jnp.float32) + np.float32(0.5)) * np.float32(2.0**-23)


def _floordiv(x: JaxArray, y: JaxArray) -> JaxArray:
    """Divide; an integer divided by 0 is 0, as in NumPy. XLA leaves it undefined."""
    if jnp.issubdtype(y.dtype, jnp.floating):
        return jnp.floor_divide(x, y)
    return jnp.where(y == 0, 0, jnp.floor_divide(x, jnp.where(y == 0, 1, y)))


def _pow(x: JaxArray, y: JaxArray) -> JaxArray:
    """Raise to a power; an integer to a negative power is 1 / x**-y rounded towards zero, and 0 for x = 0."""
    if jnp.issubdtype(y.dtype, jnp.floating):
        return jnp.power(x, y)
    kind = jnp.promote_types(x.dtype, y.dtype)
    x, y = jnp.broadcast_arrays(x.astype(kind), y.astype(kind))

    def squared(state: tuple[JaxArray, JaxArray, JaxArray]) -> tuple[JaxArray, JaxArray, JaxArray]:
        made, base, left = state
        return jnp.where(left % 2 == 1, made * base, made), base * base, left // 2

    # squaring is exact: `jnp.power` uses only the low bits of an exponent
    start = (jnp.ones_like(x), x, jnp.maximum(y, 0))
    made = lax.while_loop(lambda state: (state[2] > 0).any(), squared, start)[0]
    sign = jnp.where(y % 2 == 0, 1, x)  # for x = 1 and x = -1, with integer reciprocals
    return jnp.where(y < 0, jnp.where(jnp.abs(x) == 1, sign, 0), made).astype(x.dtype)


def _orthonormal(x: JaxArray) -> JaxArray:
    """Orthonormalise column by column, without LAPACK, as only such a program can be loaded by another process.

    The projection on earlier columns is subtracted twice, which is enough for rounding errors (Giraud et
    al. 2005).
    """

    def column(k: JaxArray, q: JaxArray) -> JaxArray:
        v = lax.dynamic_index_in_dim(x, k, -1)
        for _ in range(2):
            v = v - q @ (q.mT @ v)
        v = v / jnp.linalg.norm(v, axis=-2, keepdims=True)
        return lax.dynamic_update_slice_in_dim(q, v, k, -1)

    return lax.fori_loop(0, x.shape[-1], column, jnp.zeros_like(x))


RULES: Final[Mapping[str, Rule]] = {
    "const": _const,
    "data": _const,
    "value": _value,
    "rng": draw,
    "neg": _direct(jnp.negative, lax.neg, "iuf"),
    "abs": _plain(jnp.abs),
    "sign": _plain(jnp.sign),
    "exp": _direct(jnp.exp, lax.exp, "f"),
    "expm1": _direct(jnp.expm1, lax.expm1, "f"),
    "log": _direct(jnp.log, lax.log, "f"),
    "log1p": _direct(jnp.log1p, lax.log1p, "f"),
    "sqrt": _direct(jnp.sqrt, lax.sqrt, "f"),
    "sin": _plain(jnp.sin),
    "cos": _plain(jnp.cos),
    "tanh": _direct(jnp.tanh, lax.tanh, "f"),
    "sigmoid": _plain(jax.nn.sigmoid),
    "erf": _plain(lax.erf),
    "erf_inv": _plain(lax.erf_inv),
    "floor": _plain(jnp.floor),
    "round": _plain(jnp.round),
    "not": _plain(jnp.invert),
    "cast": lambda scope, op, args, sizes: args[0].astype(NUMPY[op.dtype]),
    "unit": _plain(_unit),
    "copy": _plain(lambda x: x),
    "detach": _plain(lambda x: x),
    "add": _direct(jnp.add, lax.add, "iuf"),
    "sub": _direct(jnp.subtract, lax.sub, "iuf"),
    "mul": _direct(jnp.multiply, lax.mul, "iuf"),
    "div": _direct(jnp.divide, lax.div, "f"),
    "atan2": _plain(jnp.arctan2),
    "pow": _plain(_pow),
    "max2": _direct(jnp.maximum, lax.max, "iuf"),
    "min2": _direct(jnp.minimum, lax.min, "iuf"),
    "floordiv": _plain(_floordiv),
    "mod": _plain(jnp.mod),
    "eq": _direct(jnp.equal, lax.eq, "biuf"),
    "ne": _direct(jnp.not_equal, lax.ne, "biuf"),
    "lt": _direct(jnp.less, lax.lt, "biuf"),
    "le": _direct(jnp.less_equal, lax.le, "biuf"),
    "and": _direct(jnp.bitwise_and, lax.bitwise_and, "biuf"),
    "or": _direct(jnp.bitwise_or, lax.bitwise_or, "biuf"),
    "xor": _direct(jnp.bitwise_xor, lax.bitwise_xor, "biuf"),
    "shl": _plain(jnp.left_shift),
    "shr": _plain(jnp.right_shift),
    "where": _plain(jnp.where),
    "sum": sums.reduction,
    "prod": sums.reduction,
    "max": sums.reduction,
    "min": sums.reduction,
    "argmax": positions.arg_extremum,
    "argmin": positions.arg_extremum,
    "argsort": positions.argsort,
    "orthonormal": _plain(_orthonormal),
    "jaxed": evaluate_jax_function,
    "gather": positions.gather,
    "scatter_add": positions.scatter_add,
    "scatter_set": positions.scatter_set,
    "discounted_sum": sums.discounted_sum,
    **dict.fromkeys(("sliding_sum", "sliding_max", "sliding_min"), sums.sliding),
    "conv": sums.conv,
    "linear_scan": sums.linear_scan,
    "dot": sums.dot,
    "reshape": lambda scope, op, args, sizes: args[0].reshape(scope.shape(op.shape)),
    "transpose": lambda scope, op, args, sizes: jnp.transpose(args[0], op.attrs.perm),
    "expand": lambda scope, op, args, sizes: jnp.broadcast_to(args[0], scope.shape(op.shape)),
    "concat": positions.concat,
    "reindex": positions.reindex,
}
# Kinds without arithmetic in half precision. `dot` multiplies such values and accumulates in float32.
_AS_IT_IS: Final = frozenset(
    LAYOUT
    | {
        "const",
        "data",
        "copy",
        "detach",
        "cast",
        "where",
        "concat",
        "gather",
        "scatter_set",
        "dot",
        "jaxed",
    }
)


def compute(
    scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Sequence[Sequence[Size]]
) -> JaxArray:
    """Compute an operation. Half precision is computed in float32 and rounded once."""
    half = [NUMPY[name] for name in HALF]
    if op.kind not in _AS_IT_IS and (op.dtype in HALF or any(x.dtype in half for x in args)):
        args = [x.astype(jnp.float32) if x.dtype in half else x for x in args]
        return RULES[op.kind](scope, op, args, sizes).astype(NUMPY[op.dtype])
    # with 64-bit types enabled, JAX returns some positions and sums in 64 bits
    found = RULES[op.kind](scope, op, args, sizes).astype(NUMPY[op.dtype])
    return found if op.inputs else scope.constrain_sharding(found, op.shape)


NO_RULE: Final[Mapping[str, str]] = {
    "merge": "a name for the values of its branches; never executed",
    "accumulate": "the kernel that computes its operand adds it to an accumulator",
    "dataflow": "traced operation by operation",
    "output": "a sink",
    "bound": "a sink that runs on the host",
    "checkpoint": "a sink that runs on the host",
    "call": "a sink that runs on the host",
    "udf": "a function that runs on the host",
}

# Treatment of elements beyond the valid length of an axis, per kind.
PADDING: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sum", "discounted_sum", "sliding_sum", "dot"), "zeros"),
    **dict.fromkeys(("conv", "linear_scan", "scatter_add"), "zeros"),
    "prod": "ones",
    **dict.fromkeys(("max", "argmax", "sliding_max"), "the smallest value"),
    **dict.fromkeys(("min", "argmin", "sliding_min"), "the largest value"),
    "argsort": "sorted last",
    "gather": "zeros, as beyond the axis",
    "scatter_set": "ignored: beyond the axis, and beyond the positions",
    "concat": "skipped: each operand starts at the end of the previous one",
    **dict.fromkeys(("transpose", "expand"), "carried along"),
    "orthonormal": "carried along: its own axes have fixed sizes",
    "reindex": "skipped if zeros replace it; else carried along, as nothing reads it",
}
# Kinds that move elements along an axis. Its valid length cannot vary.
NO_PADDING: Final[Mapping[str, str]] = {
    "reshape": "elements would move between this axis and others",
    "jaxed": "the function would read values beyond the end",
}
