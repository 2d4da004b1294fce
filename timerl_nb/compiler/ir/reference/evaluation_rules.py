"""Evaluation rules in NumPy: the value of each operation kind at one point.

`RULES` is the executable specification of the kinds. `NO_RULE` gives the reason for kinds without a rule.
`evaluator` evaluates whole graphs with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import copysign, erf, exp, inf, log, nan, pi, prod, sqrt
from typing import Any, Final, Protocol

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.ir import random_bits
from timerl_nb.compiler.ir.operation_attributes import (
    AxesAttrs,
    ConstAttrs,
    ConvAttrs,
    DiscountAttrs,
    GatherAttrs,
    JaxedAttrs,
    ReindexAttrs,
    RngAttrs,
    ScanAttrs,
    ScatterAttrs,
    SetAttrs,
    SlidingAttrs,
    SortAttrs,
    ValueAttrs,
)
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import NUMPY, concrete
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate

Env = Mapping[str, int]


class Evaluator(Protocol):
    """The parts of an evaluator that rules use: seed, seed dimension, unbounded dimension, and types."""

    seed: tuple[Array, Array]
    seeds: str | None
    endless: str | None

    def dtype(self, dtype: str) -> np.dtype[Any]: ...


Rule = Callable[[Evaluator, Op, Sequence[Array], Env], Array]


def _plain(f: Callable[..., Any]) -> Rule:
    """Return a rule that needs the operands only."""
    return lambda ref, op, args, env: f(*args)


def _copy(x: Array) -> Array:
    return x


def _cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """Integers wrap around. Floating-point numbers are clipped to the range of an integer type; NaN becomes
    0.
    """
    if x.dtype.kind in "biu" or dtype.kind not in "iu":
        return x.astype(dtype)
    ends, wide = np.iinfo(dtype), np.asarray(x, np.float64)
    inside = (wide > float(ends.min)) & (wide < float(ends.max))
    beyond = np.where(wide > 0, ends.max, np.where(np.isnan(wide), 0, ends.min))
    return np.where(inside, np.where(inside, wide, 0).astype(dtype), beyond.astype(dtype))


def _pow(x: Array, y: Array) -> Array:
    """An integer to a negative power is 1 / x**-y without its fraction; 0 for x = 0."""
    if y.dtype.kind == "f":  # for a single exponent 0.5, np.power is np.sqrt, which differs at -inf
        return np.float_power(x, y).astype(np.result_type(x, y))
    if y.dtype.kind != "i":
        return np.power(x, y)
    whole = np.where(x == -1, np.where(y % 2 == 0, 1, -1), x == 1)
    return np.where(y < 0, whole, np.power(x, np.maximum(y, 0))).astype(np.result_type(x, y))


def _const(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: ConstAttrs = op.attrs
    grid = _grid(attrs, concrete(attrs.sizes, env), env)
    return attrs.value.array[tuple(grid[d] for d in attrs.dims)]


class _Also(dict[str, Any]):
    """Additional symbols of an environment, which may compute missing values on request."""

    def __init__(self, env: Env, more: Mapping[str, Any] | None = None) -> None:
        super().__init__(more or {})
        self._env = env

    def __missing__(self, name: str) -> Any:
        return self._env[name]


def _grid(attrs: ConstAttrs | RngAttrs, sizes: Sequence[int], env: Env) -> dict[str, Any]:
    """Return `env` with each dimension of `axes` as an array that varies along its own axis."""
    found = _Also(env)
    for k, (name, n) in enumerate(zip(attrs.axes, sizes, strict=True)):
        start = evaluate(attrs.starts[k], env) if attrs.starts else 0
        along = [-1 if j == k else 1 for j in range(len(sizes))]
        found[name] = (start + np.arange(n)).reshape(along)
    return found


def _value(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: ValueAttrs = op.attrs
    sizes = concrete(attrs.sizes, env)
    result = np.zeros(sizes)
    for position in np.ndindex(*sizes):
        at = dict(zip(attrs.axes, position, strict=True))
        result[position] = evaluate(attrs.expr, _Also(env, at))
    return result


def _rng(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: RngAttrs = op.attrs
    sizes, shape = concrete(attrs.sizes, env), concrete(attrs.shape, env)
    grid = _grid(attrs, sizes, env)
    rank = len(sizes) + 1  # the axes, then the elements of one point's value

    def at(d: str, word: int = 0) -> Array:
        coord = (np.array(grid[d], np.int64) >> 32 * word).astype(np.uint32)
        return coord[..., None] if coord.ndim else coord.reshape((1,) * rank)

    seed = ref.seed if ref.seeds is None else random_bits.advance_seed(ref.seed, at(ref.seeds))
    coords = [at(d) for d in attrs.dims]
    far = at(ref.endless, 1) if ref.endless in attrs.dims else None
    high, low = (np.array([w], np.uint32) for w in random_bits.stream_words(attrs.stream))
    elements = np.arange(prod(shape), dtype=np.uint32)
    drawn = random_bits.bits(
        seed, (high, low), coords, elements, prod(shape), generator=attrs.generator, far=far
    )
    return np.broadcast_to(drawn, (*sizes, prod(shape))).reshape((*sizes, *shape))


def unit(drawn: Array) -> Array:
    """Return bits as float32 numbers strictly between 0 and 1: the midpoints of 2**23 equal intervals."""
    return ((drawn >> np.uint32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)


def erf_inv(x: Array) -> Array:
    """Return the inverse error function, by Newton's method on `math.erf`."""

    def invert(y: float) -> float:
        if abs(y) >= 1:
            return inf * y if abs(y) == 1 else nan
        # Winitzki's closed form has an error of 2e-3; each Newton step doubles the digits.
        w = log(1 - y * y)
        a = 2 / (pi * 0.147) + w / 2
        z = copysign(sqrt(sqrt(a * a - w / 0.147) - a), y)
        for _ in range(4):
            z -= (erf(z) - y) * sqrt(pi) / 2 * exp(z * z)
        return z

    return np.vectorize(invert, otypes=[float])(x)


def _discounted_sum(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: DiscountAttrs = op.attrs
    x = np.moveaxis(args[0], attrs.axis, 0)
    n = len(x)
    powers = range(n - 1, -1, -1) if attrs.reverse else range(n)
    terms = [x[k] * x.dtype.type(attrs.gamma) ** power for k, power in enumerate(powers)]
    return sum(terms, np.zeros(x.shape[1:], x.dtype))


def _sliding(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: SlidingAttrs = op.attrs
    x = np.moveaxis(args[0], attrs.axis, 0)
    n = len(x)
    window = n if attrs.window is None else concrete((attrs.window,), env)[0]
    result = np.zeros_like(x)
    for k in range(n):
        for j in range(window):
            at = k + j if attrs.forward else k - j
            if 0 <= at < n:
                result[k] += x[at] * x.dtype.type(attrs.gamma) ** j
    return np.moveaxis(result, 0, attrs.axis)


def _conv(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    a: ConvAttrs = op.attrs
    x, w = args
    sizes = concrete(tuple(s.size for s in a.sweeps), env)
    made = np.zeros(concrete(op.shape, env), np.result_type(x, w))
    rest = "".join(label for label in a.right if label not in {s.label for s in a.sweeps})
    for position in product(*(range(w.shape[a.right.index(s.label)]) for s in a.sweeps)):
        part, of = x, dict(zip([s.label for s in a.sweeps], position, strict=True))
        for sweep, n in zip(a.sweeps, sizes, strict=True):
            step = sweep.dilation * of[sweep.label] * (-1 if a.mirrored else 1)
            at = sweep.stride * np.arange(n) + step - sweep.offset
            part = _spread(part, a.left.index(sweep.label), at, sweep.spread)
        piece = w[tuple(of.get(label, slice(None)) for label in a.right)]
        made += np.einsum(f"{a.left},{rest}->{a.out}", part, piece)
    return made


def _spread(x: Array, axis: int, at: Array, spread: int) -> Array:
    """Return the elements at positions `at` of an axis with spacing `spread`, and zeros elsewhere."""
    made = np.zeros((*x.shape[:axis], len(at), *x.shape[axis + 1 :]), x.dtype)
    for p, k in enumerate(at):
        if k % spread == 0 and 0 <= k // spread < x.shape[axis]:
            made[(slice(None),) * axis + (p,)] = np.take(x, k // spread, axis)
    return made


def _position_grids(labels: str, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return each label's positions, varying along the label's own axis of a result with `labels`."""
    return {
        label: np.arange(sizes[label]).reshape([-1 if x == label else 1 for x in labels])
        for label in labels
    }


def _gather(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    a: GatherAttrs = op.attrs
    x, at = args
    sizes = dict(zip(a.left + a.right, x.shape + at.shape, strict=True))
    grid, length = _position_grids(a.out, sizes), sizes[a.axis]
    position = np.asarray(at[tuple(grid[label] for label in a.right)]).astype(np.int64)
    shape = tuple(sizes[label] for label in a.out)
    if not length:
        return np.zeros(shape, x.dtype)
    grid[a.axis] = np.clip(position, 0, length - 1)
    found = x[tuple(grid[label] for label in a.left)]
    zero = np.zeros((), x.dtype)
    return np.broadcast_to(np.where((position >= 0) & (position < length), found, zero), shape)


def _scatter(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    a: ScatterAttrs = op.attrs
    x, at = args
    sizes = dict(zip(a.left, x.shape, strict=True))
    (sizes[a.axis],) = concrete((a.size,), env)
    made = np.zeros([sizes[label] for label in a.out], x.dtype)
    for point in np.ndindex(*x.shape):
        where = dict(zip(a.left, point, strict=True))
        where[a.axis] = int(at[tuple(where[label] for label in a.right)])
        if 0 <= where[a.axis] < sizes[a.axis]:
            made[tuple(where[label] for label in a.out)] += x[point]
    return made


def _scatter_set(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    a: SetAttrs = op.attrs
    made, values, at = args[0].copy(), args[1], args[2]
    length = made.shape[a.out.index(a.axis)]
    # row-major order of the positions, so that the last one wins
    order = a.right + "".join(label for label in a.left if label not in a.right)
    values = np.transpose(values, [a.left.index(label) for label in order])
    for point in np.ndindex(*values.shape):
        where = dict(zip(order, point, strict=True))
        where[a.axis] = int(at[point[: len(a.right)]])
        if 0 <= where[a.axis] < length:
            made[tuple(where[label] for label in a.out)] = values[point]
    return made


def _argsort(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: SortAttrs = op.attrs
    x = args[0] if args[0].dtype.kind == "f" else args[0].astype(np.int64)
    backwards = -x if x.dtype.kind == "f" else ~x  # -x of the least integer overflows to itself
    return np.argsort(backwards if attrs.descending else x, attrs.axis, kind="stable")


def _orthonormal(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    """Return Q of the decomposition Q R = x whose R has no negative diagonal element."""
    q, r = np.linalg.qr(args[0])
    return q * np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1, 1)[..., None, :].astype(q.dtype)


def _sliding_extremum(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: SlidingAttrs = op.attrs
    reduce = op.kind.removeprefix("sliding_")
    x = np.moveaxis(args[0], attrs.axis, 0)
    n = len(x)
    window = n if attrs.window is None else concrete((attrs.window,), env)[0]
    result = np.empty_like(x)
    for k in range(n):
        first, last = (k, k + window) if attrs.forward else (k + 1 - window, k + 1)
        result[k] = REDUCE[reduce](x[max(first, 0) : max(last, 0)])
    return np.moveaxis(result, 0, attrs.axis)


def _linear_scan(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: ScanAttrs = op.attrs
    factor, term = (np.moveaxis(x, attrs.axis, 0) for x in args)
    result = np.zeros_like(term)
    before: int | None = None
    for k in range(len(term))[:: -1 if attrs.reverse else 1]:
        result[k] = term[k]
        if before is not None:
            result[k] = factor[k] * result[before] + term[k]
        if attrs.restarts:
            result[k] = np.where(factor[k] == 0, term[k], result[k])
        before = k
    return np.moveaxis(result, 0, attrs.axis)


def _reindex(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: ReindexAttrs = op.attrs
    if attrs.size is None:
        return np.take(args[0], evaluate(attrs.at, env), attrs.axis)
    (size,) = concrete((attrs.size,), env)
    x = np.moveaxis(args[0], attrs.axis, 0)
    made = np.zeros((size, *x.shape[1:]), x.dtype)
    for k in range(size):
        at = evaluate(attrs.at, _Also(env, dict.fromkeys(attrs.bound_dims, k)))
        if attrs.beyond == "end":
            at = max(0, min(at, len(x) - 1))
        if 0 <= at < len(x):
            made[k] = x[at]
    return np.moveaxis(made, 0, attrs.axis)


def _call_jax_function(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    """Call the function point by point along vectorised dimensions, in its own element types."""
    attrs: JaxedAttrs = op.attrs
    xs = [x.astype(NUMPY[dtype]) for x, dtype in zip(args, attrs.takes, strict=True)]
    sizes = concrete(attrs.sizes, env)
    made = np.zeros((*sizes, *concrete(attrs.type.shape, env)), NUMPY[attrs.type.dtype])
    for at in np.ndindex(*sizes):
        mine = (
            x[tuple(i for i, has in zip(at, attrs.along, strict=True) if has[k])]
            for k, x in enumerate(xs)
        )
        value = np.asarray(attrs.function(*mine)[attrs.out])
        if (value.shape, value.dtype) != (made.shape[len(sizes) :], made.dtype):
            said = f"{attrs.name} returned {value.dtype}{list(value.shape)}"
            raise ExecutionError(f"{said}, which differs from its declaration.", origin=op.origin)
        made[at] = value
    return made


def identity(reduce: str, dtype: np.dtype[Any]) -> Any:
    """Return the value of an empty reduction."""
    if reduce in ("sum", "prod"):
        return 0 if reduce == "sum" else 1
    if dtype.kind == "b":
        return reduce == "min"
    if dtype.kind not in "iu":
        return -np.inf if reduce == "max" else np.inf
    return np.iinfo(dtype).min if reduce == "max" else np.iinfo(dtype).max


def _accumulator_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of sums: int32 for booleans and narrow integers."""
    return np.dtype(np.int32) if dtype.kind in "biu" and dtype.itemsize < 4 else dtype


REDUCE: Final[Mapping[str, Callable[[Array], Any]]] = {
    "sum": lambda x: x.sum(0, dtype=_accumulator_dtype(x.dtype)),
    "prod": lambda x: x.prod(0, dtype=_accumulator_dtype(x.dtype)),
    "max": lambda x: x.max(0, initial=identity("max", x.dtype)),
    "min": lambda x: x.min(0, initial=identity("min", x.dtype)),
}


def _reduction(ref: Evaluator, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: AxesAttrs = op.attrs
    x = np.moveaxis(args[0], attrs.axes, range(len(attrs.axes)))
    flat = x.reshape(prod(x.shape[: len(attrs.axes)]), *x.shape[len(attrs.axes) :])
    return REDUCE[op.kind](flat)


RULES: Final[Mapping[str, Rule]] = {
    "const": _const,
    "data": _const,
    "value": _value,
    "rng": _rng,
    "neg": _plain(np.negative),
    "abs": _plain(np.abs),
    "sign": _plain(np.sign),
    "exp": _plain(np.exp),
    "expm1": _plain(np.expm1),
    "log": _plain(np.log),
    "log1p": _plain(np.log1p),
    "sqrt": _plain(np.sqrt),
    "sin": _plain(np.sin),
    "cos": _plain(np.cos),
    "tanh": _plain(np.tanh),
    "sigmoid": _plain(lambda x: 1 / (1 + np.exp(-x))),
    "erf": _plain(np.vectorize(erf, otypes=[float])),
    "erf_inv": _plain(erf_inv),
    "floor": _plain(np.floor),
    "round": _plain(np.round),
    "not": _plain(np.invert),
    "cast": lambda ref, op, args, env: _cast(args[0], ref.dtype(op.dtype)),
    "unit": _plain(unit),
    "copy": _plain(_copy),
    "detach": _plain(_copy),
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "div": _plain(np.divide),
    "atan2": _plain(np.arctan2),
    "pow": _plain(_pow),
    "max2": _plain(np.maximum),
    "min2": _plain(np.minimum),
    "floordiv": _plain(np.floor_divide),
    "mod": _plain(np.mod),
    "eq": _plain(np.equal),
    "ne": _plain(np.not_equal),
    "lt": _plain(np.less),
    "le": _plain(np.less_equal),
    "and": _plain(np.bitwise_and),
    "or": _plain(np.bitwise_or),
    "xor": _plain(np.bitwise_xor),
    "shl": _plain(np.left_shift),
    "shr": _plain(np.right_shift),
    "where": _plain(np.where),
    "sum": _reduction,
    "prod": _reduction,
    "max": _reduction,
    "min": _reduction,
    "argmin": lambda ref, op, args, env: np.asarray(np.argmin(args[0], op.attrs.axis)),
    "argmax": lambda ref, op, args, env: np.asarray(np.argmax(args[0], op.attrs.axis)),
    "discounted_sum": _discounted_sum,
    "sliding_sum": _sliding,
    "dot": lambda ref, op, args, env: np.einsum(str(op.attrs), *args),
    "conv": _conv,
    "sliding_max": _sliding_extremum,
    "sliding_min": _sliding_extremum,
    "linear_scan": _linear_scan,
    "argsort": _argsort,
    "orthonormal": _orthonormal,
    "gather": _gather,
    "scatter_add": _scatter,
    "scatter_set": _scatter_set,
    "jaxed": _call_jax_function,
    "reshape": lambda ref, op, args, env: args[0].reshape(concrete(op.attrs.shape, env)),
    "transpose": lambda ref, op, args, env: np.transpose(args[0], op.attrs.perm),
    "expand": lambda ref, op, args, env: np.broadcast_to(args[0], concrete(op.attrs.shape, env)),
    "concat": lambda ref, op, args, env: np.concatenate(args, op.attrs.axis),
    "reindex": _reindex,
    "merge": _plain(_copy),
    "accumulate": _plain(_copy),
}
NO_RULE: Final[Mapping[str, str]] = {
    "dataflow": "its body is evaluated operation by operation",
    "output": "it has no value; `outputs` reads its operand",
    "bound": "it has no value; `lengths` reads its operand",
    "checkpoint": "it has no value; `checkpoints` reads its operands",
    "call": "it has no value; `calls` reads its operands",
    "udf": "`Host` calls the function",
}
