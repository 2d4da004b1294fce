"""Where the values of a lowered program live: a buffer per store, a place in it per point.

A buffer has the size that the memory plan proves: one value for a slot, `size` of them for a ring or a
block; one for a ring, too, where each value is made of the one before as a whole. Point maps get the smallest box that keeps live values apart, dimension by dimension.

A merge chooses between an initial value and what a recurrence made before. Where the two never live
at once, the initial value is put into the recurrence's buffer, at the place ahead of its first: the
merge is then read without a choice (a φ-node without its copy), and nothing is concatenated where all
of it is read.

What a kernel reads of the buffer that it writes is, as a rule, what it wrote the turn before. That value
is kept beside the buffer: else XLA, which lets no buffer be written while fused code still reads it,
would copy the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any, TypeVar

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.analysis.resolved_reads import accesses
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import DataflowAttrs, Op, Read, Tensor, is_sliced
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.memory.liveness.slot_live_ranges import LiveRanges, Written, while_there
from timerl_nb.compiler.memory.liveness.use_sequence import used_pairs
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.data_buffers import held_by, whole
from timerl_nb.compiler.memory.placement.donation_records import Slot
from timerl_nb.compiler.memory.placement.ring_sizes import Axis, apart, fit, widen_axes
from timerl_nb.compiler.memory.placement.storage_kinds import Store
from timerl_nb.compiler.scheduling.statements import statement_name
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import And, Cmp, Cond, Lin, const, sym
from timerl_nb.compiler.symbolic.substitution import subst

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Home:
    """Where a tensor's values are: the buffer, and its coordinates as functions of the point."""

    buffer: Buffer
    coordinates: tuple[Lin, ...]


@dataclass(frozen=True)
class _Join:
    """A merge that could be read from one buffer: the recurrence's, with what it starts from.

    Attributes:
        anchor: the tensor that the recurrence makes.
        at: where the merge's value is among the anchor's, in the merge's dimensions.
        starts: the initial tensors; where their values go among the anchor's, in their dimensions.
    """

    merge: int
    anchor: Tensor
    at: tuple[Lin, ...]
    starts: tuple[tuple[Tensor, tuple[Lin, ...]], ...]


class Layout:
    """The buffers of a memory plan.

    Args:
        found: what was found out for plans that differ from this one in their swaps alone.

    Attributes:
        homes: by tensor, where its values are put: once, or once for each recurrence they start.
        merges: by merge, where what it yields is found without a choice.
        latest: by operation and operand, the buffers of which it reads what was written last, and
            where that is beside them.
    """

    def __init__(self, plan: MemoryPlan, found: dict[Hashable, Any] | None = None) -> None:
        self.plan, self.pdg = plan, plan.pdg
        self._shared: dict[Hashable, Any] = {} if found is None else found
        self.homes: dict[Tensor, tuple[Home, ...]] = {}
        self.merges: dict[int, Home] = {}
        self.latest: dict[Slot, dict[str, Home]] = {}
        self._find()

    def _find(self) -> None:
        """Give all tensors their homes."""
        plan = self.plan
        self._spans = plan.spans
        self._ranges = {tensor: self._of_place(self._own_ranges, tensor) for tensor in plan.stores}
        self._boxes = {tensor: self._of_place(self._axes, tensor) for tensor in plan.stores}
        merges = [op for op in self.pdg if op.kind == "merge"]
        found = [self._memoize(("join", op.id), partial(self._join, op)) for op in merges]
        joins = [join for join in found if join is not None and self._is_unmoved(join)]
        accepted, axes, ranges = self._select_joins(joins)
        direct, read = self._collect_direct_reads({join.merge for join in accepted})
        if len(read) < len(accepted):  # the others are read through these alone
            accepted, axes, ranges = self._select_joins([j for j in accepted if j.merge in read])
        self._build(axes, accepted, direct)
        for tensor in self.plan.stores:
            if axes[tensor] and not self._moves(tensor):
                self._keep_latest(tensor, ranges[tensor])
        # layouts are kept, and these take more
        del self._spans, self._ranges, self._boxes, self._shared

    def _memoize(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        """What swaps do not change, found out once for all of them."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def _of_place(self, find: Callable[[Tensor], _Made], tensor: Tensor) -> _Made:
        """What is found out of a tensor, once where its values stay."""
        if self._moves(tensor):
            return find(tensor)
        return self._memoize((find.__name__, tensor), partial(find, tensor))

    def _is_unmoved(self, join: _Join) -> bool:
        return not any(map(self._moves, (join.anchor, *dict(join.starts))))

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self.buffers.values())

    @cached_property
    def buffers(self) -> Mapping[str, Buffer]:
        """All buffers, by name."""
        homes = [home for found in self.homes.values() for home in found]
        return {home.buffer.name: home.buffer for home in homes}

    @cached_property
    def input_arrays(self) -> Mapping[Tensor, Array]:
        """The tensors whose buffer is a given array, or a part of one, which nothing else is put into."""
        alone = Counter(home.buffer.name for homes in self.homes.values() for home in homes)
        found: dict[Tensor, Array] = {}
        for tensor, homes in self.homes.items():
            if len(homes) == 1 and alone[homes[0].buffer.name] == 1:
                array = whole(self.plan, tensor, homes[0].buffer)
                if array is not None:
                    found[tensor] = array
        return found

    @cached_property
    def given_bytes(self) -> int:
        """The bytes of given arrays that are buffers, and nothing besides."""
        return held_by(self.plan, self.input_arrays, self.plan.statements.ops.values())

    def home_of(self, tensor: Tensor) -> Home:
        """Where a tensor is read that is not read through a merge: the first of its homes."""
        return self.homes[tensor][0]

    def _select_joins(
        self, joins: Sequence[_Join]
    ) -> tuple[list[_Join], dict[Tensor, tuple[Axis, ...]], dict[Tensor, list[LiveRanges]]]:
        """The joins whose values never meet; by tensor, the places of a buffer, and what they hold."""
        axes = dict(self._boxes)
        ranges = {tensor: [own] for tensor, own in self._ranges.items()}
        accepted: list[_Join] = []
        for join in joins:
            with_it = tuple(one.merge for one in accepted if one.anchor == join.anchor)
            key = "started", join.merge, with_it
            had = axes[join.anchor], ranges[join.anchor]
            started = self._memoize(key, partial(self._with_starts, join, *had))
            if started is not None:
                axes[join.anchor], ranges[join.anchor] = started
                accepted.append(join)
        return accepted, axes, ranges

    def _with_starts(
        self, join: _Join, axes: tuple[Axis, ...], ranges: Sequence[LiveRanges]
    ) -> tuple[tuple[Axis, ...], list[LiveRanges]] | None:
        """A recurrence's places with what it starts from in them; None where some of it meets."""
        new = [self._initial_live_ranges(join, tensor, at) for tensor, at in join.starts]
        wider, together = widen_axes(axes, new), [*ranges, *new]
        return (wider, together) if apart(wider, together) else None

    def _build(
        self,
        axes: Mapping[Tensor, tuple[Axis, ...]],
        joins: Sequence[_Join],
        direct: set[Tensor],
    ) -> None:
        started: dict[Tensor, list[_Join]] = {}
        names: dict[Tensor, list[str]] = {}
        for join in joins:
            for tensor, _ in join.starts:
                started.setdefault(tensor, []).append(join)
                names.setdefault(join.anchor, []).append(self.plan.stores[tensor].name)
        own = direct | {join.anchor for join in joins}
        buffers = {
            tensor: self._buffer(tensor, axes[tensor], names.get(tensor, []))
            for tensor in self.plan.stores
            if tensor in own or tensor not in started
        }
        for tensor in self.plan.stores:
            domain = self.plan.stores[tensor].domain
            found = [Home(b, tuple(map(sym, domain))) for b in [buffers.get(tensor)] if b]
            for join in started.get(tensor, []):
                at = dict(join.starts)[tensor]
                found.append(Home(buffers[join.anchor], at))
            self.homes[tensor] = tuple(dict.fromkeys(found))
        self.merges = {join.merge: Home(buffers[join.anchor], join.at) for join in joins}

    def _buffer(self, tensor: Tensor, axes: tuple[Axis, ...], starts: Sequence[str]) -> Buffer:
        op, store = self.pdg[tensor[0]], self.plan.stores[tensor]
        output = op.outputs[tensor[1]]
        kind = output.type
        fill = 0 if output.reduce is None else identity(output.reduce, NUMPY[kind.dtype])
        held = (store.name, *dict.fromkeys(starts))
        shape = self.plan.sizes.shape(op, kind.shape)
        name, more = buffer_name(tensor), excess_slots_reason(store, axes)
        return Buffer(name, axes, shape, kind.dtype, fill, held, kind.shape, more)

    def _collect_direct_reads(self, joined: set[int]) -> tuple[set[Tensor], set[int]]:
        """The tensors that something reads without a joined merge between, and such merges that it reads."""
        found: set[Tensor] = set()
        seen: set[int] = set()
        stack = [read for op in self.pdg if op.kind != "merge" for read in op.inputs]
        while stack:
            read = stack.pop()
            if self.pdg[read.source].kind != "merge":
                found.add(read.tensor)
            elif read.source not in seen:
                seen.add(read.source)
                if read.source not in joined:
                    stack += self.pdg[read.source].inputs
        return found, seen & joined

    def _keep_latest(self, tensor: Tensor, ranges: Sequence[LiveRanges]) -> None:
        """Keep the value beside the buffer that its own kernel reads again, if it is the last written."""
        buffer = next(
            (h.buffer for h in self.homes[tensor] if h.buffer.name == buffer_name(tensor)), None
        )
        if buffer is None:
            return
        key = "latest", tensor, frozenset(self.merges)
        slots = self._memoize(key, partial(self._latest_read, self.pdg[tensor[0]], buffer, ranges))
        if not slots:
            return
        why = "beside it, what was written last"
        last = replace(buffer, name=latest_name(buffer.name), axes=(), fill=0, beyond=why)
        for found, homes in self.homes.items():
            if any(home.buffer == buffer for home in homes):
                self.homes[found] = (*homes, Home(last, ()))
        for slot in slots:
            self.latest.setdefault((tensor[0], slot), {})[buffer.name] = Home(last, ())

    def _latest_read(self, op: Op, buffer: Buffer, ranges: Sequence[LiveRanges]) -> list[int]:
        """The operands that are of a buffer, and what was written there last."""
        reads = [(k, read) for k, read in enumerate(op.inputs) if not is_sliced(read)]
        found = [(k, inside) for k, read in reads if (inside := self._buffer_reads(read, buffer))]
        written = Written.from_ranges(ranges, len(self.plan.clock)) if found else None
        if written is None:
            return []
        return [k for k, inside in found if self._is_latest(op, inside, written)]

    def _buffer_reads(self, read: Read, buffer: Buffer) -> list[tuple[Read, Home]]:
        """The reads behind an operand that are of a buffer, and where in it."""
        behind = [access.read for access in accesses(self.pdg, read, self.merges)]
        return [(leaf, home) for leaf in behind if (home := self._home_of(leaf)).buffer == buffer]

    def _is_latest(self, op: Op, found: Sequence[tuple[Read, Home]], written: Written) -> bool:
        """Whether what reads find in a buffer is what was written there last, at every point."""
        clock, name = self.plan.clock, statement_name(op)
        env = clock.env(op.domain, clock.points[name])
        before = written.earlier[clock.ranks[name]] - 1
        for leaf, home in found:
            there = np.broadcast_to(clock.evaluate_condition(leaf.cond, env), len(before))
            if not there.any():
                continue
            if (there & (before < 0)).any():
                return False
            domain = self.pdg[leaf.source].outputs[leaf.out].domain
            index = [values(e, env) for e in leaf.index if isinstance(e, Lin)]
            inner = {**self.plan.bounds, **dict(zip(domain, index, strict=True))}
            wanted = [values(e, inner) for e in home.coordinates]
            for column, want in zip(written.coordinates.T, wanted, strict=True):
                if (there & (column[before] != want)).any():
                    return False
        return True

    def _home_of(self, leaf: Read) -> Home:
        """Where what a read yields is found: a merge's value, or a tensor's."""
        return self.merges.get(leaf.source) or self.homes[leaf.tensor][0]

    # --- which merges are read from one buffer ---------------------------------------------------

    def _join(self, op: Op) -> _Join | None:
        """How a merge could be read from the buffer of its recurrence, if none of it moves."""
        points = tuple(map(sym, op.domain))
        found = [access.read for access in accesses(self.pdg, Read(op.id, 0, points))]
        if not all(self._is_made_once(leaf.tensor) for leaf in found):
            return None
        full = [k for k, leaf in enumerate(found) if _moves_with(op.domain, leaf)]
        if len(full) != 1:
            return None
        anchor = found.pop(full[0])
        at = tuple(e for e in anchor.index if isinstance(e, Lin))
        tensor = anchor.tensor
        starts: list[tuple[Tensor, tuple[Lin, ...]]] = []
        for leaf in found:
            start = leaf.tensor
            place = _place(op.domain, leaf, self.plan.stores[start].domain)
            if place is None or start == tensor or self._array(start) != self._array(tensor):
                return None
            starts.append((start, tuple(subst(e, place) for e in at)))
        return _Join(op.id, tensor, at, tuple(starts)) if starts else None

    def _is_made_once(self, tensor: Tensor) -> bool:
        """Whether each value is made once, by a kernel: sums start anew where they end."""
        op = self.pdg[tensor[0]]
        if tensor not in self.plan.stores or not isinstance(op.attrs, DataflowAttrs):
            return False
        return op.outputs[tensor[1]].reduce is None

    def _array(self, tensor: Tensor) -> tuple[tuple[int, ...], str]:
        kind = self.pdg[tensor[0]].outputs[tensor[1]].type
        return self.plan.sizes.shape(self.pdg[tensor[0]], kind.shape), kind.dtype

    # --- places ----------------------------------------------------------------------------------

    def _own_ranges(self, tensor: Tensor) -> LiveRanges:
        span = self._spans[tensor]
        points = span.points
        if self.plan.stores[tensor].traits.has_rows:
            points = self._in_row(tensor, span.points, self.plan.stores[tensor].first_row)
        ranges = LiveRanges(points, span.birth_times, span.last_use_times)
        if not self._moves(tensor):
            return ranges
        clock, life = self.plan.clock, self.plan.lifetimes[self.plan.stores[tensor].lifetime]
        codes = clock.codes(life.domain, span.points)
        return while_there(ranges, codes, span.away, len(clock))

    def _moves(self, tensor: Tensor) -> bool:
        """Whether its values wait on the host in between."""
        return tensor in self.plan.swaps.tensors

    def _in_row(self, tensor: Tensor, points: Array, row: int) -> Array:
        """Return the points of values in one row of blocks, given by the points of the blocks."""
        at = self.plan.stores[tensor].position
        return np.insert(points, at, row, axis=1)

    def _initial_live_ranges(self, join: _Join, tensor: Tensor, at: tuple[Lin, ...]) -> LiveRanges:
        """Return the values of an initial tensor among the recurrence's, while the merge is read."""
        own, store, clock = self._ranges[tensor], self.plan.stores[tensor], self.plan.clock
        life, points = self.plan.lifetimes[store.lifetime], self._spans[tensor].points
        born, last = own.born, own.last
        readers = self._readers(join.merge)
        if not any(op.kind in SINKS for op in readers):
            last = born.copy()
            codes = clock.codes(life.domain, points)
            order = np.argsort(codes)
            names = {statement_name(op) for op in readers}
            for use in life.uses:
                if use.sink in names:
                    made, read = used_pairs(clock, use)
                    found = np.searchsorted(codes, clock.codes(life.domain, made), sorter=order)
                    np.maximum.at(last, order[found], clock.rank(use.sink, read))
        rows = 1
        if store.traits.has_rows:  # all its rows are placed, and live as the block does
            rows = store.size
            each = [self._in_row(tensor, points, store.first_row + k) for k in range(rows)]
            points = np.concatenate(each)
        env = dict(zip(store.domain, points.T, strict=True))
        columns = [np.broadcast_to(values(e, {**self.plan.bounds, **env}), len(points)) for e in at]
        placed = np.stack(columns, axis=1) if columns else np.zeros((len(points), 0), np.int64)
        return LiveRanges(placed, np.tile(born, rows), np.tile(last, rows))

    def _readers(self, merge: int) -> list[Op]:
        """The operations that read a merge, through other merges or not."""
        found: list[Op] = []
        for reader, _ in self.pdg.readers[merge]:
            op = self.pdg[reader]
            found += self._readers(reader) if op.kind == "merge" else [op]
        return found

    def _axes(self, tensor: Tensor) -> tuple[Axis, ...]:
        """The places that the tensor's store has, or fewer where its values wait on the host."""
        store, own = self.plan.stores[tensor], self._ranges[tensor]
        if store.traits.is_cyclic and apart((), [own]):
            return ()  # each is made of the one before: as a whole, in its place
        if not self._moves(tensor):
            return store.axes
        moving = {
            store.domain.index(d): k
            for d, k in self.plan.swaps.first_coordinates(store.lifetime).items()
        }
        if store.traits.has_rows:
            others = [k for k in range(len(store.domain)) if k != store.position]
            return (*(fit(own, others, moving) if store.most > 1 else ()), store.axes[-1])
        return () if store.traits.is_single else fit(own, range(len(store.domain)), moving)


def buffer_name(tensor: Tensor) -> str:
    """What the buffer of a tensor's own is called."""
    return f"v{tensor[0]}_{tensor[1]}"


def latest_name(name: str) -> str:
    """What is kept beside a buffer is called."""
    return f"{name}_last"


def excess_slots_reason(store: Store, axes: Sequence[Axis]) -> str:
    """Why a buffer has more places than the plan holds values, if it has."""
    if store.traits.has_slots or prod(axis.size for axis in axes) <= store.most:
        return ""
    return f"the plan holds {store.most}: no smaller box keeps live values apart"


def _moves_with(domain: Domain, leaf: Read) -> bool:
    """Whether a read is at a point's own coordinates, up to constants."""
    if len(leaf.index) != len(domain):
        return False
    pairs = zip(leaf.index, domain, strict=True)
    return all(isinstance(e, Lin) and (e - sym(d)).is_const for e, d in pairs)


def _place(domain: Domain, leaf: Read, own: Domain) -> dict[str, Lin] | None:
    """The point of a merge at which each value of a leaf is read, in the leaf's own dimensions.

    None where a value is read at several points.
    """
    found = _fixed_dims(leaf.cond)
    for e, d in zip(leaf.index, own, strict=True):
        moving = [m for m in domain if isinstance(e, Lin) and m in e.symbols]
        if not isinstance(e, Lin) or len(moving) != 1 or moving[0] in found:
            return None
        shift = e - sym(moving[0])
        if not shift.is_const:
            return None
        found[moving[0]] = sym(d) - shift
    return found if set(found) >= set(domain) else None


def _fixed_dims(cond: Cond) -> dict[str, Lin]:
    """The dimensions that a condition gives one value."""
    found: dict[str, Lin] = {}
    for one in cond.args if isinstance(cond, And) else (cond,):
        if isinstance(one, Cmp) and one.rel == "==" and len(one.arg.symbols) == 1:
            (name,) = one.arg.symbols
            for sign in (1, -1):
                rest = sym(name) - one.arg * sign
                if rest.is_const:
                    found[name] = const(rest.const)
    return found
