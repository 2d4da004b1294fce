"""The reference evaluator: what a graph means, evaluated by demand.

To know a tensor at a point, evaluate what its equation names first, and remember it. NumPy, in
float64 on request, no pass, no schedule, true lengths: slow and obviously right. Every other way to
run a program is tested against it. An explicit stack serves, since T = 500 is deeper than Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import copysign, erf, exp, inf, log, nan, pi, prod, sqrt
from typing import Any, Final

import numpy as np

from timerl_nb.errors import ScheduleError, VerificationError
from timerl_nb.ir import randomness
from timerl_nb.ir.attrs import (
    AtAttrs,
    AxesAttrs,
    CheckpointAttrs,
    ConstAttrs,
    DiscountAttrs,
    OutputAttrs,
    PlaceAttrs,
    RangeAttrs,
    RngAttrs,
    SlidingAttrs,
    ValueAttrs,
)
from timerl_nb.ir.host import CallAttrs, Host, UdfAttrs
from timerl_nb.ir.ops import OPERAND, DataflowAttrs, Op, Read
from timerl_nb.ir.pdg import Pdg
from timerl_nb.ir.shapes import NUMPY, concrete, is_float
from timerl_nb.symbolic.evaluate import evaluate
from timerl_nb.symbolic.expr import Slice

Array = np.ndarray[Any, np.dtype[Any]]
Env = Mapping[str, int]
Key = tuple[int, tuple[int, ...]]  # an operation at a point of its own domain
Rule = Callable[["Reference", Op, Sequence[Array], Env], Array]


class Reference:
    """A graph's values under given bounds and seed.

    `precise` computes all floating-point operations in float64 (random numbers are still made in
    float32 first, so that they are the same draws).
    """

    def __init__(self, pdg: Pdg, bounds: Env, seed: int = 0, *, precise: bool = False) -> None:
        self.pdg, self.bounds, self.precise = pdg, dict(bounds), precise
        high, low = (np.array([w & 0xFFFFFFFF], np.uint32) for w in (seed >> 32, seed))
        self.seed = (high, low)
        self._memo: dict[Key, tuple[Array, ...]] = {}
        self._host = Host(pdg.dims, bounds, seed)
        self._sizes = {d.name: self.bounds[d.bound] for d in pdg.dims}

    # --- what a user asks for --------------------------------------------------------------------

    def outputs(self, role: str = "output") -> dict[str, Array]:
        """Every output, or (`role="parameter"`) last value of a parameter, stacked, by name."""
        return {
            op.attrs.name: in_order(self.stacked(op.inputs[0], op), op)
            for op in self.pdg.sinks
            if isinstance(op.attrs, OutputAttrs) and op.attrs.role == role
        }

    def checkpoints(self) -> list[tuple[str, dict[str, int], dict[str, Array]]]:
        """Every checkpoint that the program writes: path, point, arrays by name."""
        found: list[tuple[str, dict[str, int], dict[str, Array]]] = []
        for op in self.pdg.sinks:
            if isinstance(op.attrs, CheckpointAttrs):
                for point in self.points(op):
                    env = self._env(op, point)
                    arrays = [self.read(read, env) for read in op.inputs]
                    named = dict(zip(op.attrs.names, arrays, strict=True))
                    found.append((op.attrs.path, dict(zip(op.domain, point, strict=True)), named))
        return found

    def calls(self) -> list[tuple[str, dict[str, int], list[Array]]]:
        """Every call that the program makes for its effect: name, point, operands; none is made."""
        found: list[tuple[str, dict[str, int], list[Array]]] = []
        for op in self.pdg.sinks:
            if isinstance(op.attrs, CallAttrs):
                for point in self.points(op):
                    env = self._env(op, point)
                    named = dict(zip(op.domain, point, strict=True))
                    found.append((op.attrs.name, named, [self.read(r, env) for r in op.inputs]))
        return found

    def stacked(self, read: Read, reader: Op) -> Array:
        """What `reader` reads, at all points of its domain, stacked in the domain's order."""
        lengths = [self._sizes[d] for d in reader.domain]
        values = [self.read(read, self._env(reader, p)) for p in product(*map(range, lengths))]
        return np.stack(values).reshape((*lengths, *values[0].shape))

    def read(self, read: Read, env: Env) -> Array:
        """The value of one read at the reader's point `env`."""
        self._demand(self._keys(read, env))
        return self._gather(read, env)

    # --- demand ------------------------------------------------------------------------------

    def points(self, op: Op) -> list[tuple[int, ...]]:
        """The points of an operation's domain, in lexicographic order."""
        ranges = [range(self._sizes[d]) for d in op.domain]
        return [p for p in product(*ranges) if evaluate(op.where, self._env(op, p))]

    def _env(self, op: Op, point: Sequence[int]) -> dict[str, int]:
        return {**self.bounds, **dict(zip(op.domain, point, strict=True))}

    def _demand(self, wanted: list[Key]) -> None:
        stack = [(key, False) for key in wanted]
        open_: set[Key] = set()
        while stack:
            key, ready = stack.pop()
            if key in self._memo:
                continue
            op = self.pdg[key[0]]
            env = self._env(op, key[1])
            reads = self._active(op, env)
            if ready:
                open_.discard(key)
                self._memo[key] = self._compute(op, env, reads)
                continue
            if key in open_:
                raise ScheduleError(
                    f"{op.name} at {dict(zip(op.domain, key[1], strict=True))} depends on itself.",
                    origin=op.origin,
                    hint="break the cycle: let one of the tensors read an earlier point.",
                )
            open_.add(key)
            stack.append((key, True))
            needed = [k for read in reads for k in self._keys(read, env)]
            stack += [(k, False) for k in needed if k not in self._memo]

    def _active(self, op: Op, env: Env) -> Sequence[Read]:
        if op.kind != "merge":
            return op.inputs
        chosen = [read for read in op.inputs if evaluate(read.cond, env)]
        if len(chosen) != 1:
            raise VerificationError(f"{len(chosen)} branches at {dict(env)}", origin=op.origin)
        return chosen

    def _source_points(self, read: Read, env: Env) -> tuple[list[tuple[int, ...]], list[int]]:
        """The points of the tensor that a read names, and the lengths of its slices."""
        ranges: list[range] = []
        lengths: list[int] = []
        for entry in read.index:
            if isinstance(entry, Slice):
                ranges.append(range(evaluate(entry.lo, env), evaluate(entry.hi, env)))
                lengths.append(len(ranges[-1]))
            else:
                at = evaluate(entry, env)
                ranges.append(range(at, at + 1))
        return list(product(*ranges)), lengths

    def _keys(self, read: Read, env: Env) -> list[Key]:
        """The operation points that a read needs; all that contribute, where values accumulate."""
        source, output = self.pdg[read.source], self.pdg.output(read)
        keys: list[Key] = []
        for point in self._source_points(read, env)[0]:
            named = dict(zip(output.domain, point, strict=True))
            if any(not 0 <= v < self._sizes[d] for d, v in named.items()):
                raise VerificationError(f"{source.name} read at {named}", origin=source.origin)
            keys += [(source.id, p) for p in self._contributing(source, named)]
        return keys

    def _contributing(self, op: Op, known: Env) -> list[tuple[int, ...]]:
        ranges = [[known[d]] if d in known else range(self._sizes[d]) for d in op.domain]
        return [p for p in product(*ranges) if evaluate(op.where, self._env(op, p))]

    def _gather(self, read: Read, env: Env) -> Array:
        source, output = self.pdg[read.source], self.pdg.output(read)
        points, lengths = self._source_points(read, env)
        values: list[Array] = []
        for point in points:
            known = dict(zip(output.domain, point, strict=True))
            parts = [self._memo[source.id, p][read.out] for p in self._contributing(source, known)]
            if output.reduce is None:
                values.append(parts[0])
                continue
            shape = concrete(output.type.shape, {**self.bounds, **known})
            kind = np.dtype(self.dtype(output.type.dtype))
            values.append(
                _REDUCE[output.reduce](np.stack(parts))
                if parts
                else np.full(shape, identity(output.reduce, kind), kind)
            )
        if not lengths:
            return values[0]
        shape = values[0].shape if values else concrete(output.type.shape, env)
        dtype = values[0].dtype if values else self.dtype(output.type.dtype)
        return (np.stack(values) if values else np.zeros((0, *shape), dtype)).reshape(
            (*lengths, *shape)
        )

    # --- computing ---------------------------------------------------------------------------

    def dtype(self, dtype: str) -> np.dtype[Any]:
        """The NumPy type that an element type is computed in."""
        return np.dtype(np.float64) if self.precise and is_float(dtype) else NUMPY[dtype]

    def _compute(self, op: Op, env: Env, reads: Sequence[Read]) -> tuple[Array, ...]:
        args = [self._gather(read, env) for read in reads]
        if isinstance(op.attrs, UdfAttrs):
            point = {d: env[d] for d in op.domain}
            data = args[:-1] if op.attrs.resource else args
            return tuple(self._host.call(op.attrs, point, data, op.origin))
        if not isinstance(op.attrs, DataflowAttrs):
            return (self._apply(op, args, env),)
        done: dict[int, tuple[Array, ...]] = {OPERAND: tuple(args)}
        for inner in op.attrs.body:
            operands = [done[r.source][r.out] for r in inner.inputs]
            done[inner.id] = (self._apply(inner, operands, env),)
        return tuple(done[source][out] for source, out in op.attrs.results)

    def _apply(self, op: Op, args: Sequence[Array], env: Env) -> Array:
        with np.errstate(all="ignore"):
            result = RULES[op.kind](self, op, args, env)
        return np.asarray(result, self.dtype(op.dtype))


def in_order(stacked: Array, sink: Op) -> Array:
    """An output's values with its dimensions' axes in the order of the dimensions."""
    attrs: OutputAttrs = sink.attrs
    have = [*sink.domain, *attrs.axes]
    perm = [have.index(d) for d in attrs.dims]
    return np.transpose(stacked, [*perm, *range(len(perm), stacked.ndim)])


# --- what each kind computes -------------------------------------------------------------------


def _plain(f: Callable[..., Any]) -> Rule:
    """A rule that needs the operands alone."""
    return lambda ref, op, args, env: f(*args)


def _copy(x: Array) -> Array:
    return x


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _const(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: ConstAttrs = op.attrs
    grid = _grid(attrs.axes, concrete(attrs.sizes, env), env)
    return attrs.value.array[tuple(grid[d] for d in attrs.dims)]


def _grid(axes: Sequence[str], sizes: Sequence[int], env: Env) -> dict[str, Any]:
    """`env` with each dimension of `axes` as an array that varies along its own axis."""
    found: dict[str, Any] = dict(env)
    for k, (name, n) in enumerate(zip(axes, sizes, strict=True)):
        found[name] = np.arange(n).reshape([-1 if j == k else 1 for j in range(len(axes))])
    return found


def _value(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: ValueAttrs = op.attrs
    sizes = concrete(attrs.sizes, env)
    result = np.zeros(sizes)
    for position in np.ndindex(*sizes):
        at = dict(zip(attrs.axes, position, strict=True))
        result[position] = evaluate(attrs.expr, {**env, **at})
    return result


def _rng(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: RngAttrs = op.attrs
    sizes, shape = concrete(attrs.sizes, env), concrete(attrs.shape, env)
    grid = _grid(attrs.axes, sizes, env)
    rank = len(sizes) + 1  # the axes, then the elements of one point's value
    coords = [np.array(grid[d], np.uint32) for d in attrs.dims]
    coords = [c[..., None] if c.ndim else c.reshape((1,) * rank) for c in coords]
    high, low = (np.array([w], np.uint32) for w in randomness.stream_words(attrs.stream))
    elements = np.arange(prod(shape), dtype=np.uint32)
    drawn = randomness.bits(ref.seed, (high, low), coords, elements, prod(shape))
    return np.broadcast_to(drawn, (*sizes, prod(shape))).reshape((*sizes, *shape))


def unit(drawn: Array) -> Array:
    """Bits as float32 numbers strictly between 0 and 1: the midpoints of 2**23 equal parts."""
    return ((drawn >> np.uint32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)


def erf_inv(x: Array) -> Array:
    """The inverse error function, by Newton's method on the standard library's `erf`."""

    def one(y: float) -> float:
        if abs(y) >= 1:
            return inf * y if abs(y) == 1 else nan
        # Winitzki's closed form is good to 2e-3; each Newton step doubles the digits
        w = log(1 - y * y)
        a = 2 / (pi * 0.147) + w / 2
        z = copysign(sqrt(sqrt(a * a - w / 0.147) - a), y)
        for _ in range(4):
            z -= (erf(z) - y) * sqrt(pi) / 2 * exp(z * z)
        return z

    return np.vectorize(one, otypes=[float])(x)


def _discounted(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: DiscountAttrs = op.attrs
    x = np.moveaxis(args[0], attrs.axis, 0)
    n = len(x)
    powers = range(n - 1, -1, -1) if attrs.reverse else range(n)
    terms = [x[k] * x.dtype.type(attrs.gamma) ** power for k, power in enumerate(powers)]
    return sum(terms, np.zeros(x.shape[1:], x.dtype))


def _sliding(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
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


def _dot(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
    return np.einsum(str(op.attrs), *args)


def _reshape(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
    return args[0].reshape(concrete(op.attrs.shape, env))


def _expand(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
    return np.broadcast_to(args[0], concrete(op.attrs.shape, env))


def _range(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: RangeAttrs = op.attrs
    x = np.moveaxis(args[0], attrs.axis, 0)
    return np.moveaxis(x[evaluate(attrs.lo, env) : evaluate(attrs.hi, env)], 0, attrs.axis)


def _place(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: PlaceAttrs = op.attrs
    x = np.moveaxis(args[0], attrs.axis, 0)
    (size,) = concrete((attrs.size,), env)
    made = np.zeros((size, *x.shape[1:]), x.dtype)
    for k in range(len(x)):
        if 0 <= evaluate(attrs.lo, env) + k < size:
            made[evaluate(attrs.lo, env) + k] = x[k]
    return np.moveaxis(made, 0, attrs.axis)


def _at(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: AtAttrs = op.attrs
    return np.take(args[0], evaluate(attrs.at, env), attrs.axis)


def identity(reduce: str, dtype: np.dtype[Any]) -> Any:
    """The value that a reduction of nothing has."""
    if reduce in ("sum", "prod"):
        return 0 if reduce == "sum" else 1
    if dtype.kind == "b":
        return reduce == "min"
    if dtype.kind == "f":
        return -np.inf if reduce == "max" else np.inf
    return np.iinfo(dtype).min if reduce == "max" else np.iinfo(dtype).max


_REDUCE: Final[Mapping[str, Callable[[Array], Any]]] = {
    "sum": lambda x: x.sum(0, dtype=np.int32 if x.dtype.kind == "b" else x.dtype),
    "prod": lambda x: x.prod(0, dtype=np.int32 if x.dtype.kind == "b" else x.dtype),
    "max": lambda x: x.max(0, initial=identity("max", x.dtype)),
    "min": lambda x: x.min(0, initial=identity("min", x.dtype)),
}


def _reduction(ref: Reference, op: Op, args: Sequence[Array], env: Env) -> Array:
    attrs: AxesAttrs = op.attrs
    x = np.moveaxis(args[0], attrs.axes, range(len(attrs.axes)))
    flat = x.reshape(prod(x.shape[: len(attrs.axes)]), *x.shape[len(attrs.axes) :])
    return _REDUCE[op.kind](flat)


RULES: Final[Mapping[str, Rule]] = {
    "const": _const,
    "data": _const,
    "value": _value,
    "rng": _rng,
    "neg": _plain(np.negative),
    "abs": _plain(np.abs),
    "sign": _plain(np.sign),
    "exp": _plain(np.exp),
    "log": _plain(np.log),
    "sqrt": _plain(np.sqrt),
    "sin": _plain(np.sin),
    "cos": _plain(np.cos),
    "tanh": _plain(np.tanh),
    "sigmoid": _plain(_sigmoid),
    "erf_inv": _plain(erf_inv),
    "floor": _plain(np.floor),
    "not": _plain(np.logical_not),
    "cast": lambda ref, op, args, env: args[0].astype(ref.dtype(op.dtype)),
    "unit": _plain(unit),
    "copy": _plain(_copy),
    "detach": _plain(_copy),
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "div": _plain(np.divide),
    "pow": _plain(np.power),
    "max2": _plain(np.maximum),
    "min2": _plain(np.minimum),
    "floordiv": _plain(np.floor_divide),
    "mod": _plain(np.mod),
    "eq": _plain(np.equal),
    "ne": _plain(np.not_equal),
    "lt": _plain(np.less),
    "le": _plain(np.less_equal),
    "and": _plain(np.logical_and),
    "or": _plain(np.logical_or),
    "where": _plain(np.where),
    "sum": _reduction,
    "prod": _reduction,
    "max": _reduction,
    "min": _reduction,
    "argmax": lambda ref, op, args, env: np.asarray(np.argmax(args[0], op.attrs.axis)),
    "discounted_sum": _discounted,
    "sliding_sum": _sliding,
    "dot": _dot,
    "reshape": _reshape,
    "transpose": lambda ref, op, args, env: np.transpose(args[0], op.attrs.perm),
    "expand": _expand,
    "concat": lambda ref, op, args, env: np.concatenate(args, op.attrs.axis),
    "range": _range,
    "at": _at,
    "place": _place,
    "flip": lambda ref, op, args, env: np.flip(args[0], op.attrs.axis),
    "merge": _plain(_copy),
    "accumulate": _plain(_copy),
}
NO_RULE: Final[Mapping[str, str]] = {
    "dataflow": "its body is evaluated operation by operation",
    "output": "it has no value; `outputs` reads its operand",
    "checkpoint": "it has no value; `checkpoints` reads its operands",
    "call": "it has no value; `calls` reads its operands",
    "udf": "`Host` calls the function",
}
