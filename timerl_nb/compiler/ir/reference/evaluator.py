"""Reference evaluator: computes the values of a graph on demand.

To obtain a tensor at a point, it evaluates the operands of its equation first, and stores all values. It
uses NumPy, true lengths, and float64 on request, without passes or schedules: slow, but simple. All other
executors are tested against it. It uses an explicit stack, since T = 500 exceeds Python's recursion limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ScheduleError, VerificationError
from timerl_nb.compiler.ir.analysis.partial_outputs import Coordinates, attach_coordinates
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.host.host_functions import CallAttrs, Host, UdfAttrs
from timerl_nb.compiler.ir.host.iteration_io import WholeRun, given_of
from timerl_nb.compiler.ir.operation_attributes import (
    CheckpointAttrs,
    OutputAttrs,
)
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op, Read
from timerl_nb.compiler.ir.reference.evaluation_rules import REDUCE, RULES, Env, identity
from timerl_nb.compiler.ir.shapes import HALF, NUMPY, concrete, is_float
from timerl_nb.compiler.symbolic.dimensions import Dim, Domain
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Slice

Key = tuple[int, tuple[int, ...]]  # an operation at a point of its domain
Place = tuple[str, tuple[int, ...]]  # a dynamic dimension, at a point that its bound varies over


class Reference:
    """A graph's values under given bounds and seed.

    Args:
        pdg: the graph.
        bounds: actual bounds.
        seed: the seed.
        precise: whether to compute floating-point operations in float64. Random numbers are still drawn in
            float32, so draws are equal.
        given: arrays for all iterations, by name.
    """

    def __init__(
        self,
        pdg: Pdg,
        bounds: Env,
        seed: int = 0,
        *,
        precise: bool = False,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.pdg, self.bounds, self.precise = pdg, dict(bounds), precise
        high, low = (np.array([w & 0xFFFFFFFF], np.uint32) for w in (seed >> 32, seed))
        self.seed = (high, low)
        self.seeds = pdg.dims.seeds.name if pdg.dims.seeds else None
        self.endless = pdg.dims.endless.name if pdg.dims.endless else None
        self._memo: dict[Key, tuple[Array, ...]] = {}
        # dynamic bounds by name and point of the dimensions they vary over, and lower bounds of them
        self._ends: dict[Place, int] = {}
        self._reached: dict[Place, int] = {}
        supply = None
        if given is not None:
            supply = WholeRun(given_of(pdg.dims, pdg), bounds, given, copied=False)
        self._host = Host(pdg.dims, bounds, seed, supply)
        self._sizes = {d.name: d.count(self.bounds) for d in pdg.dims}

    # --- results ---------------------------------------------------------------------------------

    def lengths(self) -> dict[str, Array]:
        """Return the values of dynamic bounds by name, each stacked over the dimensions it varies over.

        A bound is 0 at points beyond the end of an outer dimension.
        """
        return {dim.bound: self._stacked_lengths(dim) for dim in self.pdg.dims.dynamic}

    def _stacked_lengths(self, dim: Dim) -> Array:
        over = dim.over or ()
        found = np.zeros([self._sizes[d] for d in over], np.int64)
        for p in product(*map(range, found.shape)):
            if self._evaluate_with_bounds(lambda p=p: self._is_within(over, self._env_of(over, p))):
                found[p] = self._evaluate_with_bounds(lambda p=p: self.length_at(dim, p))
        return found

    def outputs(self, role: str = "output") -> dict[str, Array]:
        """Return every output by name, or (`role="parameter"`) the last value of every parameter, stacked.

        Elements beyond a dynamic bound are zero.
        """
        return {
            op.attrs.name: self._output_values(op)[0]
            for op in self.pdg.sinks
            if isinstance(op.attrs, OutputAttrs) and op.attrs.role == role
        }

    def coordinates(self) -> dict[str, Coordinates]:
        """Return the coordinates of the values of conditional outputs."""
        return {
            op.attrs.name: self._output_values(op)[1]
            for op in self.pdg.sinks
            if isinstance(op.attrs, OutputAttrs) and op.where is not TRUE
        }

    def _output_values(self, op: Op) -> tuple[Array, Coordinates]:
        read = op.inputs[0]
        if op.where is TRUE:
            return in_order(self.stacked(read, op), op), {}
        points = self.points(op)
        values = [self.evaluate_read(read, self._env(op, p)) for p in points]
        kind = self.pdg.read_type(read)
        none = np.zeros((0, *concrete(kind.shape, self.bounds)), self.dtype(kind.dtype))
        return attach_coordinates(np.stack(values) if values else none, points, op)

    def checkpoints(self) -> list[tuple[str, dict[str, int], dict[str, Array]]]:
        """Return every checkpoint of the program: path, point, arrays by name."""
        found: list[tuple[str, dict[str, int], dict[str, Array]]] = []
        for op in self.pdg.sinks:
            if isinstance(op.attrs, CheckpointAttrs):
                for point in self.points(op):
                    env = self._env(op, point)
                    arrays = [self.evaluate_read(read, env) for read in op.inputs]
                    named = dict(zip(op.attrs.names, arrays, strict=True))
                    found.append((op.attrs.path, dict(zip(op.domain, point, strict=True)), named))
        return found

    def calls(self) -> list[tuple[str, dict[str, int], list[Array]]]:
        """Return every call for effect: name, point, operands. The functions are not called."""
        found: list[tuple[str, dict[str, int], list[Array]]] = []
        for op in self.pdg.sinks:
            if isinstance(op.attrs, CallAttrs):
                for point in self.points(op):
                    env = self._env(op, point)
                    named = dict(zip(op.domain, point, strict=True))
                    found.append(
                        (op.attrs.name, named, [self.evaluate_read(r, env) for r in op.inputs])
                    )
        return found

    def stacked(self, read: Read, reader: Op) -> Array:
        """Return the values of a read at all points of `reader`, stacked in the order of its domain."""
        lengths = [self._sizes[d] for d in reader.domain]
        if not self.pdg.dims.dynamic:
            values = [
                self.evaluate_read(read, self._env(reader, p))
                for p in product(*map(range, lengths))
            ]
            return np.stack(values).reshape((*lengths, *values[0].shape))
        kind = self.pdg.read_type(read)
        shape = concrete(kind.shape, self.bounds)
        result = np.zeros((*lengths, *shape), self.dtype(kind.dtype))
        for p in self.points(reader):
            value = self.evaluate_read(read, self._env(reader, p))
            result[(*p, *map(slice, value.shape))] = value
        return result

    def evaluate_read(self, read: Read, env: Env) -> Array:
        """Return the value of one read at the reader's point `env`."""
        self._demand(self._evaluate_with_bounds(lambda: self._keys(read, env)))
        return self._gather(read, env)

    # --- dynamic bounds --------------------------------------------------------------------------

    def length_at(self, dim: Dim, point: tuple[int, ...], enough: int | None = None) -> int:
        """Return a dynamic bound at a point, or any known lower bound of at least `enough`.

        Raises:
            _Unknown: the bound has not been computed yet.
        """
        place, enough = (dim.name, point), self._sizes[dim.name] if enough is None else enough
        if not self._is_found(place, enough):
            raise _Unknown((_END, (self.pdg.dims.names.index(dim.name), *point, enough)))
        return self._ends.get(place, self._reached.get(place, 1))

    def _is_found(self, place: Place, enough: int) -> bool:
        return place in self._ends or self._reached.get(place, 1) >= enough

    def _wanted_length(self, key: Key) -> tuple[Dim, Place, int]:
        """Return the dimension, the place and the sufficient value of a key for a dynamic bound."""
        k, *point, enough = key[1]
        dim = self.pdg.dims.all[k]
        return dim, (dim.name, tuple(point)), enough

    def _evaluate_with_bounds(self, ask: Callable[[], Any]) -> Any:
        """Return the result of `ask`, computing the dynamic bounds that it needs."""
        while True:
            try:
                return ask()
            except _Unknown as unknown:
                self._demand([unknown.wanted])

    def _search(self, dim: Dim, place: Place, enough: int) -> list[Key]:
        """Return the keys needed next to find a dynamic bound; empty if it is found or reaches `enough`."""
        bound = self.pdg.ends[dim.name]
        # the dimension ends at the ceiling's last point in any case
        for k in range(self._reached.get(place, 1) - 1, self._sizes[dim.name] - 1):
            self._reached[place] = k + 1
            if k + 1 >= enough:
                return []
            named = {**dict(zip(dim.over or (), place[1], strict=True)), dim.name: k}
            env = _Env(self, bound.domain, [named[d] for d in bound.domain])
            keys = self._keys(bound.inputs[0], env)
            if any(key not in self._memo for key in keys):
                return keys
            if bool(self._gather(bound.inputs[0], env)):
                self._ends[place] = k + 1
                return []
        self._ends[place] = self._sizes[dim.name]
        return []

    # --- demand ------------------------------------------------------------------------------

    def points(self, op: Op) -> list[tuple[int, ...]]:
        """Return the points of an operation's domain, in lexicographic order."""
        ranges = [range(self._sizes[d]) for d in op.domain]
        return [
            p
            for p in product(*ranges)
            if self._evaluate_with_bounds(lambda p=p: self._exists(op, p))
        ]

    def _exists(self, op: Op, point: Sequence[int]) -> bool:
        env = self._env(op, point)
        return self._is_within(op.domain, env) and bool(evaluate(op.where, env))

    def _is_within(self, domain: Domain, env: Env) -> bool:
        """Whether a point of a domain lies within all dynamic bounds, the outer ones first."""
        for dim in self.pdg.dims.ending(domain):
            at = env[dim.name]
            if at >= self.length_at(dim, tuple(env[d] for d in dim.over or ()), at + 1):
                return False
        return True

    def _env(self, op: Op, point: Sequence[int]) -> Env:
        return self._env_of(op.domain, point)

    def _env_of(self, domain: Domain, point: Sequence[int]) -> Env:
        if self.pdg.dims.known(domain):
            return _Env(self, domain, point)
        return {**self.bounds, **dict(zip(domain, point, strict=True))}

    def _demand(self, wanted: list[Key]) -> None:
        stack = [(key, False) for key in wanted]
        open_: set[Key] = set()
        while stack:
            key, ready = stack.pop()
            if key in self._memo or (
                key[0] == _END and self._is_found(*self._wanted_length(key)[1:])
            ):
                open_.discard(key)
                continue
            if key in open_ and not ready:
                raise self._circular(key)
            try:
                needed = self._compute_or_request(key, ready)
            except _Unknown as unknown:
                stack += [(key, ready), (unknown.wanted, False)]
                continue
            if key not in self._memo:
                open_.add(key)
                stack.append((key, True))
            stack += [(k, False) for k in needed if k not in self._memo]

    def _compute_or_request(self, key: Key, ready: bool) -> list[Key]:
        """Compute a key, or return the missing keys that it needs."""
        if key[0] == _END:
            return self._search(*self._wanted_length(key))
        op = self.pdg[key[0]]
        env = self._env(op, key[1])
        reads = self._active(op, env)
        if not ready:
            return [k for read in reads for k in self._keys(read, env)]
        self._memo[key] = self._compute(op, env, reads)
        return []

    def _circular(self, key: Key) -> ScheduleError:
        if key[0] == _END:
            dim = self._wanted_length(key)[0]
            return ScheduleError(
                f"the end of {dim.name} depends on itself.",
                origin=self.pdg.ends[dim.name].origin,
                hint=f"remove {dim.bound} from the condition that ends {dim.name}.",
            )
        op = self.pdg[key[0]]
        return ScheduleError(
            f"{op.name} at {dict(zip(op.domain, key[1], strict=True))} depends on itself.",
            origin=op.origin,
            hint="break the cycle: let one of the tensors read an earlier point.",
        )

    def _active(self, op: Op, env: Env) -> Sequence[Read]:
        if op.kind != "merge":
            return op.inputs
        chosen = [read for read in op.inputs if evaluate(read.cond, env)]
        if len(chosen) != 1:
            at = {d: env[d] for d in op.domain}
            raise VerificationError(f"{len(chosen)} branches at {at}", origin=op.origin)
        return chosen

    def _source_points(self, read: Read, env: Env) -> tuple[list[tuple[int, ...]], list[int]]:
        """Return the points of a read's source, and the lengths of its slices."""
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
        """Return the operation points of a read; for accumulations, all contributing points."""
        source, output = self.pdg[read.source], self.pdg.output(read)
        keys: list[Key] = []
        for point in self._source_points(read, env)[0]:
            named = dict(zip(output.domain, point, strict=True))
            if any(not 0 <= v < self._sizes[d] for d, v in named.items()):
                raise VerificationError(f"{source.name} read at {named}", origin=source.origin)
            parts = self._contributing(source, named)
            if not parts and output.domain == source.domain:
                raise VerificationError(f"{source.name} read at {named}", origin=source.origin)
            keys += [(source.id, p) for p in parts]
        return keys

    def _contributing(self, op: Op, known: Env) -> list[tuple[int, ...]]:
        ranges = [[known[d]] if d in known else range(self._sizes[d]) for d in op.domain]
        return [p for p in product(*ranges) if self._exists(op, p)]

    def _gather(self, read: Read, env: Env) -> Array:
        """Return the value of a read. A read with slices returns the values of all points, stacked along leading axes."""
        source, output = self.pdg[read.source], self.pdg.output(read)
        points, lengths = self._source_points(read, env)
        values: list[Array] = []
        for point in points:
            known = dict(zip(output.domain, point, strict=True))
            parts = [self._memo[source.id, p][read.out] for p in self._contributing(source, known)]
            if output.reduce is None:
                values.append(parts[0])
                continue
            shape = concrete(output.type.shape, self._env_of(output.domain, point))
            kind = np.dtype(self.dtype(output.type.dtype))
            values.append(
                REDUCE[output.reduce](self.widen(np.stack(parts))).astype(kind)
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

    # --- computation -----------------------------------------------------------------------------

    def dtype(self, dtype: str) -> np.dtype[Any]:
        """Return the NumPy type for computations in an element type."""
        return np.dtype(np.float64) if self.precise and is_float(dtype) else NUMPY[dtype]

    def widen(self, x: Array) -> Array:
        """Return half-precision values as float32: operations compute in it, and round once."""
        half = x.dtype in (NUMPY[name] for name in HALF)
        return x.astype(self.dtype("f32")) if half else x

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
        args = [self.widen(x) for x in args]
        with np.errstate(all="ignore"):
            result = RULES[op.kind](self, op, args, env)
        return np.asarray(result, self.dtype(op.dtype))


_END: Final = -2  # in a key, a dynamic bound instead of an operation


class _Unknown(Exception):
    """A dynamic bound is needed before it is computed.

    Attributes:
        wanted: the key of the bound, with a sufficient value.
    """

    def __init__(self, wanted: Key) -> None:
        super().__init__()
        self.wanted = wanted


class _Env(dict[str, Any]):
    """The symbols at a point; a dynamic bound is computed on first use."""

    def __init__(self, ref: Reference, domain: Domain, point: Sequence[int]) -> None:
        known = {dim.bound: dim for dim in ref.pdg.dims.known(domain)}
        bounds = {name: value for name, value in ref.bounds.items() if name not in known}
        super().__init__({**bounds, **dict(zip(domain, point, strict=True))})
        self._ref, self._dim_of_name = ref, known

    def __missing__(self, name: str) -> _Length:
        dim = self._dim_of_name[name]
        self[name] = _Length(self._ref, dim, tuple(self[d] for d in dim.over or ()))
        return self[name]


@dataclass(frozen=True, eq=False)
class _Length:
    """A lazily computed dynamic bound, times a number, plus a number.

    A comparison computes only as much of it as necessary. So the value of `min(t + n, T)` depends on no
    condition beyond t + n.
    """

    ref: Reference
    dim: Dim
    point: tuple[int, ...]
    times: int = 1
    plus: int = 0

    def __index__(self) -> int:
        return self.ref.length_at(self.dim, self.point) * self.times + self.plus

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(int(self), dtype)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, int):
            return replace(self, plus=self.plus + other)
        return int(self) + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int):
            return replace(self, times=self.times * other, plus=self.plus * other)
        return int(self) * other

    def __sub__(self, other: Any) -> Any:
        return self + -1 * other

    def __rsub__(self, other: Any) -> Any:
        return -1 * self + other

    def __floordiv__(self, other: int) -> int:
        return int(self) // other

    def __mod__(self, other: int) -> int:
        return int(self) % other

    def __ge__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return int(self) >= np.asarray(other)
        if self.times < 0:
            return not self._is_at_least((self.plus - other) // -self.times + 1)
        return self._is_at_least(-((self.plus - other) // self.times))

    def __lt__(self, other: Any) -> Any:
        return np.logical_not(self >= other)

    def __eq__(self, other: object) -> Any:
        return int(self) == other

    # min and max alone compare so; they may return either of two equal values
    __gt__ = __ge__
    __radd__, __rmul__ = __add__, __mul__

    def _is_at_least(self, least: int) -> bool:
        return self.ref.length_at(self.dim, self.point, least) >= least


def in_order(stacked: Array, sink: Op) -> Array:
    """Return an output's values with axes in the order of its dimensions."""
    attrs: OutputAttrs = sink.attrs
    have = [*sink.domain, *attrs.axes]
    perm = [have.index(d) for d in attrs.dims]
    return np.transpose(stacked, [*perm, *range(len(perm), stacked.ndim)])
