"""Buffer layout of lowered programs: assigns every tensor to a buffer and every point to a slot.

The sizes of buffers come from the memory plan: one value for a slot, `size` values for a ring or
block. A ring shrinks to one value if each value is born no earlier than the last read of the
previous one, since a kernel reads before it writes. A point
map becomes a small box of slots without collisions of live values, found dimension by dimension.

A merge chooses between an initial value and a previous value of a recurrence. If these are never
live simultaneously, the initial value is stored in the recurrence's buffer, in the slot before the
first value. Reads of the merge then need no choice (a φ-node without a copy), and reads of all its
values need no concatenation.

Kernels in the loop of a buffer's writer usually read its value of the previous iteration. The latest
value is therefore stored outside the buffer as well. Otherwise XLA would copy the whole buffer,
since it does not overwrite a buffer while fused code still reads it.
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
from timerl_nb.compiler.memory.liveness.slot_live_ranges import (
    LiveRanges,
    Written,
    split_at_absences,
)
from timerl_nb.compiler.memory.liveness.use_sequence import used_pairs
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.data_buffers import held_by, whole
from timerl_nb.compiler.memory.placement.donation_records import Slot
from timerl_nb.compiler.memory.placement.ring_sizes import (
    Axis,
    fit,
    have_disjoint_slots,
    widen_axes,
)
from timerl_nb.compiler.memory.placement.storage_kinds import Store
from timerl_nb.compiler.scheduling.statements import statement_name
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import And, Cmp, Cond, Lin, const, sym
from timerl_nb.compiler.symbolic.substitution import subst

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Home:
    """Location of a tensor's values: a buffer, and coordinates in it as functions of the point."""

    buffer: Buffer
    coordinates: tuple[Lin, ...]


@dataclass(frozen=True)
class _Join:
    """A merge that could be read from the buffer of its recurrence.

    Attributes:
        merge: the operation.
        anchor: the tensor computed by the recurrence.
        at: the coordinates of the merge's value among the anchor's, in the merge's dimensions.
        starts: the initial tensors, and the coordinates of their values among the anchor's, in
            their own dimensions.
        needs_one_slot: whether other branches read the anchor at other coordinates, as in nested
            loops. All branches then agree only in a buffer with a single slot.
    """

    merge: int
    anchor: Tensor
    at: tuple[Lin, ...]
    starts: tuple[tuple[Tensor, tuple[Lin, ...]], ...]
    needs_one_slot: bool


class Layout:
    """Buffers of a memory plan.

    Args:
        plan: the memory plan.
        found: a cache shared by layouts of plans with different swaps, but otherwise equal.

    Attributes:
        homes: the locations of each tensor's values: its own, or one in each recurrence with these
            initial values.
        merges: the location of each merge without a choice.
        starts: by such a merge, its initial tensors, and the coordinates of their values in its buffer.
        latest: by operation and operand, the location of the latest value outside each buffer. The
            operand then reads only this value of the buffer.
    """

    def __init__(self, plan: MemoryPlan, found: dict[Hashable, Any] | None = None) -> None:
        self.plan, self.pdg = plan, plan.pdg
        self._shared: dict[Hashable, Any] = {} if found is None else found
        self.homes: dict[Tensor, tuple[Home, ...]] = {}
        self.merges: dict[int, Home] = {}
        self.starts: dict[int, tuple[tuple[Tensor, tuple[Lin, ...]], ...]] = {}
        self.latest: dict[Slot, dict[str, Home]] = {}
        self._find()

    def _find(self) -> None:
        """Assign a location to all tensors."""
        plan = self.plan
        self._spans = plan.spans
        self._ranges = {tensor: self._of_place(self._own_ranges, tensor) for tensor in plan.stores}
        self._boxes = {tensor: self._of_place(self._axes, tensor) for tensor in plan.stores}
        merges = [op for op in self.pdg if op.kind == "merge"]
        found = [self._memoize(("join", op.id), partial(self._join, op)) for op in merges]
        joins = [join for join in found if join is not None and self._is_unmoved(join)]
        accepted, axes, ranges = self._select_joins(joins)
        direct, read = self._collect_direct_reads({join.merge for join in accepted})
        if len(read) < len(accepted):  # other merges are only read through these
            accepted, axes, ranges = self._select_joins([j for j in accepted if j.merge in read])
        self._build(axes, accepted, direct)
        for tensor in self.plan.stores:
            # an accumulated value changes after its first write
            if axes[tensor] and not self._moves(tensor) and self._is_made_once(tensor):
                self._keep_latest(tensor, ranges[tensor])
        # Layouts are long-lived, and these data take more memory.
        del self._spans, self._ranges, self._boxes, self._shared

    def _memoize(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        """Return a result independent of swaps, cached for all of them."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def _of_place(self, find: Callable[[Tensor], _Made], tensor: Tensor) -> _Made:
        """Return a result for a tensor, cached if its values are not swapped."""
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
        """All buffers by name."""
        homes = [home for found in self.homes.values() for home in found]
        return {home.buffer.name: home.buffer for home in homes}

    @cached_property
    def input_arrays(self) -> Mapping[Tensor, Array]:
        """The tensors whose buffer is (a part of) a given array and holds nothing else."""
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
        """The bytes of given arrays used only as buffers."""
        return held_by(self.plan, self.input_arrays, self.plan.statements.ops.values())

    def home_of(self, tensor: Tensor) -> Home:
        """Return the location for reads of a tensor outside merges: the first of its locations."""
        return self.homes[tensor][0]

    def _select_joins(
        self, joins: Sequence[_Join]
    ) -> tuple[list[_Join], dict[Tensor, tuple[Axis, ...]], dict[Tensor, list[LiveRanges]]]:
        """Return the joins without collisions.

        Returns:
            The joins, the axes of each tensor's buffer, and the live ranges in it.
        """
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
        """Return a recurrence's axes and live ranges with its initial values.

        None if they collide.
        """
        if join.needs_one_slot and axes:
            return None
        new = [self._initial_live_ranges(join, tensor, at) for tensor, at in join.starts]
        wider, together = widen_axes(axes, new), [*ranges, *new]
        return (wider, together) if have_disjoint_slots(wider, together) else None

    def _build(
        self,
        axes: Mapping[Tensor, tuple[Axis, ...]],
        joins: Sequence[_Join],
        direct: set[Tensor],
    ) -> None:
        """Create the buffers, and the locations of all tensors and merges in them.

        Args:
            axes: the axes of each tensor's buffer.
            joins: the recurrences whose initial values lie in the recurrence's buffer.
            direct: tensors with a dedicated buffer.
        """
        # one initial tensor can fill several slots, as in `f[0] = f[1] = x`
        started: dict[Tensor, list[Home]] = {}
        names: dict[Tensor, list[str]] = {}
        for join in joins:
            for tensor, _ in join.starts:
                names.setdefault(join.anchor, []).append(self.plan.stores[tensor].name)
        own = direct | {join.anchor for join in joins}
        initial = {tensor for join in joins for tensor, _ in join.starts}
        buffers = {
            tensor: self._buffer(tensor, axes[tensor], names.get(tensor, []))
            for tensor in self.plan.stores
            if tensor in own or tensor not in initial
        }
        for join in joins:
            for tensor, at in join.starts:
                started.setdefault(tensor, []).append(Home(buffers[join.anchor], at))
        for tensor in self.plan.stores:
            domain = self.plan.stores[tensor].domain
            found = [Home(b, tuple(map(sym, domain))) for b in [buffers.get(tensor)] if b]
            self.homes[tensor] = tuple(dict.fromkeys([*found, *started.get(tensor, [])]))
        self.merges = {join.merge: Home(buffers[join.anchor], join.at) for join in joins}
        self.starts = {join.merge: join.starts for join in joins}

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
        """Return the tensors with reads outside joined merges, and the joined merges with reads."""
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
        """Store a tensor's latest value outside its buffer too.

        Kernels over the tensor's domain read it there if they read no other value of the buffer.
        """
        buffer = next(
            (h.buffer for h in self.homes[tensor] if h.buffer.name == buffer_name(tensor)), None
        )
        if buffer is None:
            return
        key = "latest", tensor, frozenset(self.merges)
        slots = self._memoize(key, partial(self._latest_reads, tensor, buffer, ranges))
        if not slots:
            return
        why = "the latest value, outside the buffer"
        last = replace(buffer, name=latest_name(buffer.name), axes=(), fill=0, beyond=why)
        for found, homes in self.homes.items():
            if any(home.buffer == buffer for home in homes):
                self.homes[found] = (*homes, Home(last, ()))
        for slot in slots:
            self.latest.setdefault(slot, {})[buffer.name] = Home(last, ())

    def _latest_reads(
        self, tensor: Tensor, buffer: Buffer, ranges: Sequence[LiveRanges]
    ) -> list[Slot]:
        """Return the operands that read only a buffer's latest value, in the tensor's loops."""
        domain = self.pdg[tensor[0]].domain
        found = [
            (op, k, inside)
            for op in dict.fromkeys(self._readers(tensor[0]))
            if op.domain == domain and op.kind not in SINKS
            for k, read in enumerate(op.inputs)
            if not is_sliced(read) and (inside := self._buffer_reads(read, buffer))
        ]
        written = Written.from_ranges(ranges, len(self.plan.clock)) if found else None
        if written is None:
            return []
        return [(op.id, k) for op, k, inside in found if self._is_latest(op, inside, written)]

    def _buffer_reads(self, read: Read, buffer: Buffer) -> list[tuple[Read, Home]]:
        """Return the reads behind an operand that access a buffer, and their locations."""
        behind = [access.read for access in accesses(self.pdg, read, self.merges)]
        return [(leaf, home) for leaf in behind if (home := self._home_of(leaf)).buffer == buffer]

    def _is_latest(self, op: Op, found: Sequence[tuple[Read, Home]], written: Written) -> bool:
        """Return whether reads access the latest value of a buffer, at every point."""
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
        """Return the location of a read's value: of a merge, or of a tensor."""
        return self.merges.get(leaf.source) or self.homes[leaf.tensor][0]

    # --- merges read from one buffer -------------------------------------------------------------

    def _join(self, op: Op) -> _Join | None:
        """Return how to read a merge from the buffer of its recurrence, or None.

        Swapping is ignored.
        """
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
        initial = [leaf for leaf in found if leaf.tensor != tensor]
        starts: list[tuple[Tensor, tuple[Lin, ...]]] = []
        for leaf in initial:
            start = leaf.tensor
            place = _place(op.domain, leaf, self.plan.stores[start].domain)
            if place is None or self._array(start) != self._array(tensor):
                return None
            starts.append((start, tuple(subst(e, place) for e in at)))
        one_slot = len(initial) < len(found)
        return _Join(op.id, tensor, at, tuple(starts), one_slot) if starts else None

    def _is_made_once(self, tensor: Tensor) -> bool:
        """Return whether a kernel computes each value in one step, without accumulation."""
        op = self.pdg[tensor[0]]
        if tensor not in self.plan.stores or not isinstance(op.attrs, DataflowAttrs):
            return False
        return op.outputs[tensor[1]].reduce is None

    def _array(self, tensor: Tensor) -> tuple[tuple[int, ...], str]:
        kind = self.pdg[tensor[0]].outputs[tensor[1]].type
        return self.plan.sizes.shape(self.pdg[tensor[0]], kind.shape), kind.dtype

    # --- slots -----------------------------------------------------------------------------------

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
        return split_at_absences(ranges, codes, span.away, len(clock))

    def _moves(self, tensor: Tensor) -> bool:
        """Return whether a tensor is swapped to the host between uses."""
        return tensor in self.plan.swaps.tensors

    def _in_row(self, tensor: Tensor, points: Array, row: int) -> Array:
        """Return the points of values in one row of blocks, given the points of the blocks."""
        at = self.plan.stores[tensor].position
        return np.insert(points, at, row, axis=1)

    def _initial_live_ranges(self, join: _Join, tensor: Tensor, at: tuple[Lin, ...]) -> LiveRanges:
        """Return the live ranges of an initial tensor in the recurrence's buffer.

        The ranges end with the last read of the merge.
        """
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
        if store.traits.has_rows:  # all rows of a block are live as long as the block
            rows = store.size
            each = [self._in_row(tensor, points, store.first_row + k) for k in range(rows)]
            points = np.concatenate(each)
        env = dict(zip(store.domain, points.T, strict=True))
        columns = [np.broadcast_to(values(e, {**self.plan.bounds, **env}), len(points)) for e in at]
        placed = np.stack(columns, axis=1) if columns else np.zeros((len(points), 0), np.int64)
        return LiveRanges(placed, np.tile(born, rows), np.tile(last, rows))

    def _readers(self, op_id: int) -> list[Op]:
        """Return the operations that read an operation, directly or through merges."""
        found: list[Op] = []
        for reader, _ in self.pdg.readers[op_id]:
            op = self.pdg[reader]
            found += self._readers(reader) if op.kind == "merge" else [op]
        return found

    def _axes(self, tensor: Tensor) -> tuple[Axis, ...]:
        """Return the axes of the tensor's store, or smaller ones if its values are swapped."""
        store, own = self.plan.stores[tensor], self._ranges[tensor]
        if store.traits.is_cyclic and have_disjoint_slots((), [own]):
            return ()  # each value replaces the previous one at its last read or later
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
    """Return the name of a tensor's own buffer."""
    return f"v{tensor[0]}_{tensor[1]}"


def latest_name(name: str) -> str:
    """Return the name of the latest value outside a buffer."""
    return f"{name}_last"


def excess_slots_reason(store: Store, axes: Sequence[Axis]) -> str:
    """Return why a buffer has more slots than the plan needs; empty if it has not."""
    if store.traits.has_slots or prod(axis.size for axis in axes) <= store.most:
        return ""
    return f"the plan needs {store.most} slots, but no smaller box without collisions was found"


def _moves_with(domain: Domain, leaf: Read) -> bool:
    """Return whether a read is at a point's own coordinates, up to constants."""
    if len(leaf.index) != len(domain):
        return False
    pairs = zip(leaf.index, domain, strict=True)
    return all(isinstance(e, Lin) and (e - sym(d)).is_const for e, d in pairs)


def _place(domain: Domain, leaf: Read, own: Domain) -> dict[str, Lin] | None:
    """Return for each value of a leaf the merge's point with this value, in the leaf's dimensions.

    None if several points read the same value.
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
    """Return the dimensions with a single value under a condition."""
    found: dict[str, Lin] = {}
    for one in cond.args if isinstance(cond, And) else (cond,):
        if isinstance(one, Cmp) and one.rel == "==" and len(one.arg.symbols) == 1:
            (name,) = one.arg.symbols
            for sign in (1, -1):
                rest = sym(name) - one.arg * sign
                if rest.is_const:
                    found[name] = const(rest.const)
    return found
