"""The memory plan: the storage of each tensor, live ranges, and the predicted timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

from timerl_nb.base.display_registry import Inspectable, list_public
from timerl_nb.base.errors import Origin, point_text
from timerl_nb.base.graphviz_text import FUSED, SOURCE, Dot
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_text import about
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op, Tensor
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.memory.budget.kernel_temporaries import (
    UNCERTAIN,
    calls_libraries,
    computes_side_by_side,
    temporaries,
)
from timerl_nb.compiler.memory.budget.swapping import NO_SWAPS, Swap, Swapping, Swaps, time_to_copy
from timerl_nb.compiler.memory.byte_sizes import Sizes, sizes_of
from timerl_nb.compiler.memory.liveness.last_uses import Lifetime
from timerl_nb.compiler.memory.liveness.value_lifetimes import ValueLiveRanges
from timerl_nb.compiler.memory.memory_timeline import Span, Timeline, predict
from timerl_nb.compiler.memory.placement.block_storage import BlockStorage, RowBlock
from timerl_nb.compiler.memory.placement.donation_records import Donation, Slot
from timerl_nb.compiler.memory.placement.passed_data import arrays_of, passes_on
from timerl_nb.compiler.memory.placement.per_device_memory import Share
from timerl_nb.compiler.memory.placement.slice_reads import PointRange
from timerl_nb.compiler.memory.placement.storage_kinds import StorageChoice, Store, choose, rows
from timerl_nb.compiler.memory.steady_state.extrapolated_timeline import AnyTimeline
from timerl_nb.compiler.memory.steady_state.period_detection import Fold
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock
from timerl_nb.compiler.scheduling.statements import Statements
from timerl_nb.compiler.symbolic.dimensions import Domain, bounds_text


@list_public(
    "bounds buffers constants donations find holders needed peak saved_by shares sizes "
    "stores swaps temporaries timeline to_dot to_json to_svg"
)
class MemoryPlan(Inspectable):
    """Stores, lifetimes and the predicted memory use under actual bounds.

    Args:
        constraints: the statements and dependences.
        clock: the order of all points.
        lifetimes: the lifetimes of all tensors.
        placed: the tensors stored as blocks, and the operands read from them.
        smallest: whether to choose the smallest store per tensor; otherwise all are point maps.
        swaps: the values to move to the host between uses.
        donations: for each operand, the output in its memory, or the reason against it; None
            without donation.
        undonated: the same plan without donation.
        fold: a periodic run. The clock then covers a few iterations of it, and sizes are those of
            the whole run.

    Attributes:
        savings: measures of passes against memory use, with their reasons (`with_savings`).
        buffers: bytes of XLA's buffers (`in_buffers`); 0 if unknown.
        given_in_buffers: bytes of given arrays in use as buffers.
        is_lowered: whether XLA runs the program. Its buffers then count as needed memory.
        share: the part of each device if several share the program, else None.
        whole: the reason why a long run was planned point by point, else empty.
        buffer_layout: the `Layout` of XLA's buffers (`in_buffers`), or None if unknown.
    """

    def __init__(
        self,
        constraints: Constraints,
        clock: Clock,
        lifetimes: tuple[Lifetime, ...],
        placed: BlockStorage,
        *,
        smallest: bool = True,
        swaps: Swaps = NO_SWAPS,
        donations: Mapping[Slot, Donation] | None = None,
        undonated: MemoryPlan | None = None,
        fold: Fold | None = None,
    ) -> None:
        self.bounds: Mapping[str, int] = dict(clock.bounds)
        self.lifetimes = {life.name: life for life in lifetimes}
        self.constraints, self.clock, self.placed = constraints, clock, placed
        self.fold = fold
        self.sizes = sizes_of(constraints.pdg, clock.bounds if fold is None else fold.bounds)
        self.smallest, self.swaps = smallest, swaps
        self.donates, self.donations = donations is not None, dict(donations or {})
        self._undonated = undonated
        self._swapping: Swapping | None = None
        self.savings: Mapping[str, str] = {}
        self.buffers, self.is_lowered, self.whole = 0, False, ""
        self.given_in_buffers = 0
        self.share: Share | None = None
        self.buffer_layout: Any = None

    @property
    def saved_by(self) -> Mapping[str, str]:
        """Measures to reduce the peak, with their reasons, such as `in blocks of 50 along t`."""
        waits = {"waiting on the host": "the device is too small"} if self.swaps.all else {}
        return {**self.savings, **waits}

    @property
    def swap_search(self) -> Swapping:
        """The search for swaps. Accumulated tensors are never swapped."""
        if self._undonated is not None:
            return self._undonated.swap_search
        if self._swapping is None:
            lives, blocks = tuple(self.lifetimes.values()), self.placed.blocks
            given = self.value_bytes, self.accumulated_tensors, blocks
            self._swapping = Swapping(self.clock, lives, *given)
        return self._swapping

    @property
    def copy_duration(self) -> int:
        """Duration of a copy to the host, in executed points."""
        return time_to_copy(self.swaps.slack, self.pdg.dims)

    @cached_property
    def accumulated_tensors(self) -> frozenset[Tensor]:
        """The results of accumulations."""
        return frozenset(t for t in self.names if self.pdg[t[0]].outputs[t[1]].reduce is not None)

    def without_extrapolation(self) -> MemoryPlan:
        """Return the plan used for choosing swaps."""
        return self

    def with_swaps_below(self, budget: int) -> MemoryPlan:
        """Return the plan with swaps and a peak below the budget, or as low as possible."""
        if self._undonated is not None:
            return self._undonated.with_swaps_below(budget)
        return self.with_swaps(self.swap_search.choose(self.point_by_point.bytes, budget))

    def with_fewer_swaps(self, swaps: Swaps, budget: int) -> MemoryPlan:
        """Return the plan with the same swaps, restricted to as few values as the budget allows."""
        if self._undonated is not None:
            return self._undonated.with_fewer_swaps(swaps, budget)
        return self.with_swaps(
            self.swap_search.reduce_swaps(swaps, self.point_by_point.bytes, budget)
        )

    def forget(self) -> None:
        """Free the data used by the search for swaps."""
        if self._undonated is not None:
            self._undonated.forget()
        elif self._swapping is not None:
            self._swapping.forget()

    def forget_live_ranges(self) -> None:
        """Free the live ranges; they are computed again on demand."""
        for name in ("point_by_point", "spans", "stores"):
            vars(self).pop(name, None)

    def with_swaps(self, swaps: Swaps) -> MemoryPlan:
        """Return the plan with other swaps. Its kernels reuse no operands except blocks."""
        if self._undonated is not None:
            return self._undonated.with_swaps(swaps)
        return self._remade(self.clock, swaps=swaps)

    def _remade(self, clock: Clock, **more: Any) -> MemoryPlan:
        known = self.constraints, clock, tuple(self.lifetimes.values()), self.placed
        return MemoryPlan(*known, smallest=self.smallest, fold=self.fold, **more)

    def in_buffers(
        self,
        nbytes: int,
        *,
        is_lowered: bool,
        layout: Any = None,
        given: int = 0,
        share: Share | None = None,
    ) -> MemoryPlan:
        """Return the same plan with the size of XLA's buffers.

        Args:
            nbytes: the bytes of all buffers.
            is_lowered: whether XLA runs the program.
            layout: the `Layout` of the buffers.
            given: bytes of given arrays among these buffers.
            share: the part of each device.
        """
        known = nbytes, is_lowered, given, share
        if known == (self.buffers, self.is_lowered, self.given_in_buffers, self.share):
            return self
        return self._copy_with(
            buffers=nbytes,
            is_lowered=is_lowered,
            buffer_layout=layout,
            given_in_buffers=given,
            share=share,
        )

    def with_savings(self, savings: Mapping[str, str]) -> MemoryPlan:
        """Return the same plan with the measures of passes against memory use."""
        return self._copy_with(savings=dict(savings))

    def with_reason_for_complete_plan(self, why: str) -> MemoryPlan:
        """Return the same plan with the reason why it was made point by point."""
        return self._copy_with(whole=why)

    def _copy_with(self, **known: Any) -> MemoryPlan:
        made = copy(self)
        vars(made).update(known)
        return made

    def of_turns(self, clock: Clock) -> MemoryPlan:
        """Return the same plan for another number of iterations of a periodic run."""
        return self._remade(clock, donations=self.donations if self.donates else None)

    @property
    def isl_bounds(self) -> tuple[Point, int]:
        """The fixed bounds for isl, and the least value of the open bound."""
        if self.fold is None:
            return self.bounds, 1
        open_bound = self.fold.dim.bound
        # For each remainder modulo the period, the least open bound is at most that of the short
        # runs.
        least = self.fold.few - self.fold.period + 1
        return {n: b for n, b in self.bounds.items() if n != open_bound}, least

    def swapped_tensors(self, lifetime: str) -> tuple[Tensor, ...]:
        """Return the swapped tensors of a lifetime."""
        return tuple(t for t in self.lifetimes[lifetime].tensors if t in self.swaps.tensors)

    @property
    def statements(self) -> Statements:
        """The statements of the program and their operands."""
        return self.constraints.statements

    @property
    def pdg(self) -> Pdg:
        """The graph after all passes, with separate outputs for blocks."""
        return self.constraints.pdg

    def operand_parts(self, op: Op, slot: int) -> tuple[PointRange, ...]:
        """Return the parts of an operand in blocks; an empty tuple for other operands."""
        return self.placed.parts.get((op.id, slot), ())

    def gathered_bytes(self, op: Op) -> int:
        """Return the bytes of the gathered operands of one point of an operation."""
        return sum(
            self.sizes.gathered_bytes(op, read)
            for slot, read in enumerate(op.inputs)
            if not self.operand_parts(op, slot)
        )

    @cached_property
    def value_bytes(self) -> Mapping[Tensor, int]:
        """The bytes of one allocation of each tensor: a value or a block."""
        return {t: self.unit(t) * self._rows(t) for t in self.names}

    def _rows(self, tensor: Tensor) -> int:
        """Return the number of values in one allocation of a tensor."""
        block = self.placed.blocks.get(tensor)
        return 1 if block is None else block.size

    @cached_property
    def point_by_point(self) -> Timeline:
        """The timeline point by point; for a periodic run, of a few iterations."""
        gathered = {name: self.gathered_bytes(op) for name, op in self.statements.ops.items()}
        return predict(
            self.clock,
            tuple(self.lifetimes.values()),
            self.value_bytes,
            self.names,
            gathered,
            self.swaps.absences,
            self.swaps.tensors,
        )

    def unit(self, tensor: Tensor) -> int:
        """Return the bytes of one value of a tensor."""
        return self.sizes.output_bytes(self.pdg[tensor[0]], tensor[1])

    @cached_property
    def names(self) -> Mapping[Tensor, str]:
        """The unique name of each tensor."""
        tensors = (tensor for life in self.lifetimes.values() for tensor in life.tensors)
        return {tensor: self.pdg.names.output(*tensor) for tensor in tensors}

    @cached_property
    def spans(self) -> Mapping[Tensor, Span]:
        """The live ranges of each tensor's values or blocks."""
        pairs = zip(self.lifetimes.values(), self.point_by_point.spans, strict=True)
        return {tensor: span for life, span in pairs for tensor in life.tensors}

    def timeline(self) -> AnyTimeline:
        """Return the live bytes over schedule time, predicted without running the program.

        Under a dynamic bound the prediction is an upper limit: every run is assumed to reach the
        ceiling.
        """
        return self.point_by_point

    @property
    def peak(self) -> int:
        """The predicted peak of live bytes on the device."""
        return self.timeline().peak

    @cached_property
    def _temporaries_by_statement(self) -> Mapping[str, int]:
        """Bytes of the temporaries in each statement's kernel."""
        return {
            name: self.kernel_temporaries(self.sizes, op)
            for name, op in self.statements.ops.items()
        }

    def kernel_temporaries(self, sizes: Sizes, op: Op) -> int:
        """Return the estimated bytes of the temporaries in a kernel.

        Args:
            sizes: the sizes of values, for example on one device.
            op: the operation of the kernel.
        """
        taken = (d for d in self.donations.values() if d.op_id == op.id)
        return temporaries(sizes, op, self._live_value_count, {d.output for d in taken})

    def _live_value_count(self, tensor: Tensor) -> int:
        """Return the greatest number of simultaneously live values of a tensor.

        It is 2 if unknown, as for merges.
        """
        span = self.spans.get(tensor)
        return 2 if span is None else span.lives.most_at_once * self._rows(tensor)

    @property
    def temporaries(self) -> int:
        """Estimated bytes of the temporaries in the kernel with the most.

        The estimate needs no compilation.
        """
        return max(self._temporaries_by_statement.values(), default=0)

    @property
    def temporaries_in(self) -> str:
        """The kernel with the most temporaries; empty if no kernel has any."""
        if not self.temporaries:
            return ""
        most = max(
            self._temporaries_by_statement, key=lambda name: self._temporaries_by_statement[name]
        )
        return self.pdg.names[self.statements.ops[most].id]

    @property
    def unknown_in(self) -> tuple[str, ...]:
        """The kernels with uncertain temporaries.

        These contain contractions, or have several results.
        """
        names, ops = self.pdg.names, self.statements.ops.values()
        return tuple(
            names[op.id]
            for op in ops
            if calls_libraries(op) or computes_side_by_side(self.sizes, op)
        )

    @property
    def constants(self) -> int:
        """Bytes of given arrays (`trl.data`, initial values) outside stores and buffers."""
        return self._constants_lowered if self.is_lowered else self._constants

    @cached_property
    def _constants(self) -> int:
        ops, rows = self.statements.ops.values(), {op_id for op_id, _ in self.placed.blocks}
        computing = [op for op in ops if op.id in rows or not passes_on(op)]
        return sum(value.array.nbytes for value in arrays_of(computing))

    @property
    def _constants_lowered(self) -> int:
        nbytes = sum(value.array.nbytes for value in arrays_of(self.statements.ops.values()))
        # If the peak exceeds the buffers, the given arrays in them may not be live at the peak.
        return nbytes if self.peak > self.buffers else nbytes - self.given_in_buffers

    @property
    def temporaries_each(self) -> int:
        """Estimated bytes of the temporaries on each device."""
        return self.temporaries if self.share is None else self.share.temporaries

    @property
    def overhead_bytes(self) -> int:
        """Bytes of temporaries and given arrays on each device."""
        return self.temporaries_each + self.constants

    @property
    def needed(self) -> int:
        """The expected memory of each device, in bytes; `details` has its parts.

        A budget (`Options(device_memory=…)`) limits it. XLA may report more after compilation. A
        program with a budget then searches for a smaller plan, and one without warns.
        """
        return self.laid_out if self.is_lowered else self.peak + self.overhead_bytes

    @property
    def details(self) -> Mapping[str, int]:
        """The parts of `needed` in bytes, as far as they are known before the program runs.

        `values` are live values at the peak. `buffers` are XLA's buffers for them, and 0 in the
        interpreter. `temporaries` is the estimate for the largest kernel. `given` are the arrays of
        given data. `moving` are values in transfer to or from the host.
        """
        return MappingProxyType(
            {
                "values": self.peak,
                "buffers": self.buffers,
                "temporaries": self.temporaries_each,
                "given": self.constants,
                "moving": self.bytes_in_transfer,
            }
        )

    @property
    def laid_out(self) -> int:
        """The expected memory of each device with all values in XLA's buffers."""
        beside = self.temporaries_each + self._constants_lowered
        if self.share is None:
            return max(self.peak, self.buffers) + beside
        # live values beyond the buffers are gathered operands, possibly on each device
        return self.share.buffers + max(0, self.peak - self.buffers) + beside

    @property
    def shares(self) -> tuple[int, ...]:
        """The value of `needed` for each device."""
        return (self.needed,) * (1 if self.share is None else self.share.count)

    @property
    def bytes_in_transfer(self) -> int:
        """Bytes in transfer between device and host.

        At most one group of values leaves and one returns at the same time.
        """
        units = (
            sum(self.stores[t].unit for t in self.swapped_tensors(life))
            for life in self.swaps.absences
        )
        return 2 * max(units, default=0)

    @property
    def holders(self) -> tuple[Any, ...]:
        """The holders of the bytes at the predicted peak."""
        return self.timeline().holders

    @cached_property
    def stores(self) -> Mapping[Tensor, Store]:
        """The store of each tensor."""
        found: dict[Tensor, Store] = {}
        for life, span in zip(self.lifetimes.values(), self.point_by_point.spans, strict=True):
            for tensor, (name, nbytes) in zip(life.tensors, span.tensors, strict=True):
                domain = self.pdg[tensor[0]].outputs[tensor[1]].domain
                how = self._choice(span.lives, domain, self.placed.blocks.get(tensor))
                why = how.why
                if tensor in self.placed.refused:
                    why += f"; no block: {self.placed.refused[tensor]}"
                size = self._rows(tensor)
                most = span.lives.most_at_once
                found[tensor] = Store(
                    name, how.kind, domain, nbytes // size, most, life.name, why, how.axes
                )
        return found

    @cached_property
    def _choice(self) -> Callable[[ValueLiveRanges, Domain, RowBlock | None], StorageChoice]:
        """The choice of a store from live ranges, cached because many tensors have equal ones."""

        def choose_for(
            lives: ValueLiveRanges, domain: Domain, block: RowBlock | None
        ) -> StorageChoice:
            if block is None:
                return choose(lives, domain, smallest=self.smallest)
            return rows(lives, domain, block.axis)

        return cache(choose_for)

    def moment(self, time: int) -> str:
        """Return the statement point at a time, such as `learning(i = 0, t = 9)`."""
        return self.name_point(*self.clock.point_at(time))

    def name_point(self, statement: str, point: Point) -> str:
        """Return a point of a statement as shown in error messages."""
        return f"{self.pdg.names[self.statements.ops[statement].id]}({point_text(point)})"

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of executed points per statement."""
        return {name: len(points) for name, points in self.clock.points.items()}

    def origin(self, tensor: Tensor) -> Origin:
        """Return the user's line behind a tensor."""
        op = self.pdg[tensor[0]]
        if isinstance(op.attrs, DataflowAttrs):
            source, _ = op.attrs.results[tensor[1]]
            if source != OPERAND:
                return next(o.origin for o in op.attrs.body if o.id == source)
        return op.origin

    # --- text and JSON ---------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join(line for line, _ in self.searchable_lines())

    def searchable_lines(self) -> Iterable[tuple[str, Sequence[str]]]:
        line = self.timeline()
        most = "peak, at most" if self.pdg.dims.dynamic else "peak"
        lines = [
            f"memory under {bounds_text(self.bounds)}",
            f"{most}: {line.peak:,} bytes at step {line.peak_time:,}",
        ]
        lines += [f"  {how}: {why}" for how, why in self.saved_by.items()]
        lines += [f"  {holder}" for holder in line.holders[:8]]
        if self.whole:
            lines.append(f"planned point by point, {len(self.clock):,} points: {self.whole}")
        lines += self.additional_memory_lines()
        if self.unknown_in:
            where = ", ".join(self.unknown_in)
            lines.append(f"uncertain: temporaries in {where}, because {UNCERTAIN}")
        lines.append("stores:")
        for text in lines:
            yield text, ()
        for (op_id, out), store in self.stores.items():
            yield f"  {store}", (f"%{op_id}", *about(self.computing_operation(op_id, out)))
        for text in self._describe_donations():
            yield text, ()
        if self.swaps.all:
            yield f"swapped, at most {line.host_peak:,} bytes on the host:", ()
        for swap in self.swaps.all:
            known = [
                part for tensor in swap.tensors for part in about(self.computing_operation(*tensor))
            ]
            what = ", ".join(self.names[tensor] for tensor in swap.tensors)
            yield f"  {what}: {self._swap_text(swap)}", known

    def waits(self, tensor: Tensor) -> tuple[str, ...]:
        """Return texts on when values of a tensor are only on the host; empty if they never are."""
        return tuple(self._swap_text(swap) for swap in self.swaps.all if tensor in swap.tensors)

    def computing_operation(self, op_id: int, out: int) -> Op:
        """Return the operation that computes a statement's output."""
        return self.computed(op_id, out)[0]

    def computed(self, op_id: int, out: int) -> tuple[Op, int]:
        """Return the operation that computes a statement's output, and its own output number."""
        op = self.pdg[op_id]
        if not isinstance(op.attrs, DataflowAttrs):
            return op, out
        source, inner = op.attrs.results[out]
        if source == OPERAND:
            return self.computed(op.inputs[inner].source, op.inputs[inner].out)
        return next(o for o in op.attrs.body if o.id == source), inner

    def additional_memory_lines(self) -> Iterable[str]:
        """Yield a line per kind of memory needed in addition to live values."""
        if self.temporaries:
            most = self.temporaries_in
            yield f"temporaries: {self.temporaries:,} bytes, estimated, the most in {most}"
        if self.constants:
            yield f"given arrays: {self.constants:,} bytes"
        if self.share is not None:
            yield f"{self.share}: {self.needed:,} bytes, estimated"
            if self.temporaries_each < self.temporaries:
                yield f"  temporaries: {self.temporaries_each:,} of {self.temporaries:,} bytes"
            yield from (f"  {line}" for line in self.share.lines())

    def _describe_donations(self) -> list[str]:
        """Return lines on the donated operands, and on the number of refusals per reason."""
        names = self.pdg.names
        given = [d for d in self.donations.values() if d.output is not None]
        lines = ["donations:"] if self.donations else []
        for d in given:
            read = self.pdg[d.op_id].inputs[d.slot]
            lines.append(f"  {names[d.op_id]}, operand {d.slot} ({names[read.source]}): {d.why}")
        kept = Counter(d.why for d in self.donations.values() if d.output is None)
        return lines + [f"  not donated ({count}): {why}" for why, count in sorted(kept.items())]

    def _swap_text(self, swap: Swap) -> str:
        names = self.pdg.names
        ops = self.statements.ops
        before, after = swap.ends.before, swap.ends.after
        until = "to the end" if after is None else f"until {names[ops[after].id]}"
        which = "" if swap.since is None else " for {} >= {}".format(*swap.since)
        return f"from {names[ops[before].id]} {until}{which}, {swap.away.turns} times"

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": "memory",
            "bounds": dict(self.bounds),
            "peak": self.peak,
            "peak_time": self.timeline().peak_time,
            "temporaries": self.temporaries,
            "constants": self.constants,
            "needed": self.needed,
            "shares": list(self.shares),
            "saved_by": dict(self.saved_by),
            "holders": [
                {"tensor": h.tensor, "bytes": h.nbytes, "values": h.points} for h in self.holders
            ],
            "stores": [
                {
                    "op_id": tensor[0],
                    "out": tensor[1],
                    "name": store.name,
                    "kind": store.kind,
                    "along": store.stored_dim,
                    "size": store.size,
                    "why": store.why,
                    "bytes": store.nbytes,
                    "most": store.most,
                }
                for tensor, store in self.stores.items()
            ],
            "donations": [
                {"op_id": d.op_id, "operand": d.slot, "output": d.output, "why": d.why}
                for d in self.donations.values()
            ],
        }

    def to_dot(self) -> str:
        """Return a Graphviz graph of statements and stores, with edges for writes and reads."""
        graph = Dot("memory", rankdir="LR")
        names = self.pdg.names
        for op in self.statements.ops.values():
            graph.node(f"s{op.id}", names[op.id], fill=FUSED, element=f"op{op.id}")
        for tensor, store in self.stores.items():
            key = f"v{tensor[0]}_{tensor[1]}"
            label = f"{store.name}\n{store.shape}, {store.most} x {store.unit:,} B"
            graph.node(key, label, fill=SOURCE, shape="cylinder")
            graph.edge(f"s{tensor[0]}", key)
        for (op_id, out), reader in dict.fromkeys(
            (u.tensor, u.reader) for u in self.constraints.uses
        ):
            graph.edge(f"v{op_id}_{out}", f"s{reader}")
        return str(graph)
