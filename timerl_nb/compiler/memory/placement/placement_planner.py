"""Memory plans of a schedule, with and without blocks.

Blocks hold at most as many values as are live without them, plus the gathered operands of one
reader. The predicted peak may rise by a few values (`_SLACK`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache, cached_property, partial
from typing import Final

import numpy as np

from timerl_nb.base.errors import BoundsError
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.memory.budget.memory_lower_bound import (
    planned_lower_bound,
    swapped_lower_bound,
)
from timerl_nb.compiler.memory.liveness.last_uses import KnownLifetimes, Lifetime, find_lifetimes
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.block_storage import (
    BlockStorage,
    Candidates,
    RowBlock,
    candidates,
    rows_read,
    separate_point_outputs,
    too_large,
)
from timerl_nb.compiler.memory.placement.operand_donation import donate
from timerl_nb.compiler.memory.placement.slice_reads import is_picked
from timerl_nb.compiler.memory.steady_state.extrapolated_plan import FoldedPlan, layout_of
from timerl_nb.compiler.memory.steady_state.extrapolated_timeline import Unlike
from timerl_nb.compiler.memory.steady_state.period_detection import Fold, Unfolded, find_fold
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock, most_points
from timerl_nb.compiler.scheduling.statements import statement_name
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.index_expressions import Slice

# Blocks may raise the peak by this many values each, for example by copies for readers of single
# points.
_SLACK = 2

# Longer programs (in executed points) are planned from a few iterations if possible.
EXACT: Final = 200_000
# Longer programs are refused unless they are periodic. Planning a million points takes about a
# second and 150 MB.
MOST_EXACT: Final = 15_000_000


_UNLIKE: Final = "two short runs differ by more than a period"


class Plans:
    """Memory plans of a scheduled graph under actual bounds, best first.

    If the first plan has blocks, the second is the same without blocks.

    Args:
        constraints: the statements and dependences.
        schedule: the schedule.
        bounds: the actual bounds.
        smallest: whether to choose the smallest store per tensor; otherwise all are point maps.
        donation: whether kernels reuse the memory of operands. Without donation there are no
            blocks, because writing a row would copy the block.
        lowered: whether XLA runs the program. The sizes of its buffers then count.
        exact: a number of executed points. Longer programs are planned from a few iterations if
            they are periodic; by default `EXACT`.
        most: a lower limit on the points to plan one by one, for trials; more points raise a
            BoundsError.
        known: a cache of lifetimes from other bounds or budgets.
    """

    def __init__(
        self,
        constraints: Constraints,
        schedule: ScheduleTree,
        bounds: Point,
        *,
        smallest: bool = True,
        donation: bool = True,
        lowered: bool = False,
        exact: int | None = None,
        most: int | None = None,
        known: KnownLifetimes | None = None,
    ) -> None:
        self._lifetime_cache = KnownLifetimes(1) if known is None else known
        self._constraints, self._schedule, self._bounds = constraints, schedule, bounds
        self._smallest, self._donation, self._most = smallest, donation, most
        self._lowered = lowered
        self._exact = EXACT if exact is None else exact
        self._plain: dict[tuple[bool, frozenset[tuple[str, int]]], MemoryPlan] = {}
        self._plans: dict[bool, MemoryPlan] = {}

    def __iter__(self) -> Iterator[MemoryPlan]:
        first = self._plan(self._smallest and self._donation)
        yield first
        if first.placed.blocks:
            yield self._plan(False)

    @property
    def points(self) -> int:
        """Number of points planned one by one, at most."""
        count = self._count(self._bounds)
        return count if self._most is None or count <= self._most else self._exact

    def lower_bound(self, *, swap: bool) -> int:
        """Return a lower bound on the bytes of all plans.

        Args:
            swap: whether values may be swapped to the host.
        """
        return min(self._kept_bytes, self.swapped_lower_bound) if swap else self._kept_bytes

    @cached_property
    def _kept_bytes(self) -> int:
        """A lower bound on the bytes of all plans without swaps."""
        return 0 if isinstance(self._fold, Fold) else planned_lower_bound(self._exact_base_plan)

    @cached_property
    def swapped_lower_bound(self) -> int:
        """A lower bound on the bytes of all plans with swaps."""
        return 0 if isinstance(self._fold, Fold) else swapped_lower_bound(self._exact_base_plan)

    @property
    def _exact_base_plan(self) -> MemoryPlan:
        self._check_few(self._bounds)
        return self._base_plan(self._bounds)

    def _plan(self, blocks: bool) -> MemoryPlan:
        if blocks not in self._plans:
            made = self._extrapolate_plan(blocks) or self._all_of_it(blocks)
            if self._fold is not None and not isinstance(made, FoldedPlan):
                made = made.with_reason_for_complete_plan(self._no_period_reason.why)
            if self._lowered:
                layout = layout_of(made)
                nbytes = layout.nbytes + made.bytes_in_transfer
                made = made.in_buffers(nbytes, is_lowered=True, layout=layout)
            self._plans[blocks] = made
        return self._plans[blocks]

    def _all_of_it(self, blocks: bool) -> MemoryPlan:
        dim = self._constraints.pdg.dims.endless
        if dim is not None:
            why = self._fold if isinstance(self._fold, str) else _UNLIKE
            raise BoundsError(
                f"{dim.bound} is endless, but the memory of its iterations has no known limit: {why}.",
                hint=f"use {dim.name} in indices only with a constant offset or modulo a constant.",
            )
        self._check_few(self._bounds)
        return self._make_plan(blocks, self._bounds)

    def _extrapolate_plan(self, blocks: bool) -> MemoryPlan | None:
        """Return the plan extrapolated from a few iterations; None if the run is not periodic."""
        fold = self._fold
        if not isinstance(fold, Fold):
            return None
        with suppress(Unlike):
            few, more = fold.windows
            self._check_few(more)
            small = self._make_plan(blocks, few, fold)
            if fold.dim.name in _dims_of_blocks(small):
                large = self._make_plan(blocks, more, fold)
            else:
                large = small.of_turns(Clock(self._schedule, more))
            return FoldedPlan(small, large, cache(partial(self._make_plan, blocks, self._bounds)))
        return None

    def _make_plan(self, blocks: bool, bounds: Point, fold: Fold | None = None) -> MemoryPlan:
        plain = self._base_plan(bounds, fold)
        plan = _in_blocks(plain) if blocks else plain
        plan = donate(plan) if self._donation else plan
        if fold is not None and plan is not plain:
            plain.forget_live_ranges()
        return plan

    def _base_plan(self, bounds: Point, fold: Fold | None = None) -> MemoryPlan:
        """Return the plan without blocks and donation."""
        key = fold is not None, frozenset(bounds.items())
        if key not in self._plain:
            self._plain[key] = MemoryPlan(
                self._constraints,
                Clock(self._schedule, bounds),
                self._lifetimes,
                BlockStorage(self._constraints.pdg),
                smallest=self._smallest,
                fold=fold,
            )
        return self._plain[key]

    @cached_property
    def _lifetimes(self) -> tuple[Lifetime, ...]:
        of = self._constraints, self._schedule
        return self._lifetime_cache.get(of, lambda: find_lifetimes(*of))

    @cached_property
    def _fold(self) -> Fold | Unfolded | None:
        """The period of the run, or the reason why none is known; None for a short run."""
        if self._count(self._bounds) <= self._exact:
            return None
        return find_fold(self._constraints, self._schedule, self._lifetimes, self._bounds)

    def _count(self, bounds: Point) -> int:
        return sum(most_points(self._schedule, bounds).values())

    def _check_few(self, bounds: Point) -> None:
        if self._most is not None and self._count(bounds) > self._most:
            raise BoundsError(
                f"a memory plan of {self._count(bounds):,} points is too large for a trial"
            )
        if (count := self._count(bounds)) > MOST_EXACT:
            why = self._no_period_reason
            counts = most_points(self._schedule, bounds)
            over = ", ".join(max(counts, key=lambda domain: counts[domain]))
            smaller = f"choose smaller bounds, or vectorise the statements over ({over}), which have the most points."
            raise BoundsError(
                f"the program executes statements at {count:,} points, too many to plan its memory "
                f"point by point (the limit is {MOST_EXACT:,} points, for about "
                f"{MOST_EXACT // 1_000_000} s), and it cannot be planned from a few iterations: "
                f"{why.why}.",
                others=why.lines,
                hint=f"{why.hint}; or {smaller}" if why.hint else smaller,
            )

    @property
    def _no_period_reason(self) -> Unfolded:
        """The reason why the run is planned point by point."""
        return self._fold if isinstance(self._fold, Unfolded) else Unfolded(_UNLIKE)


def _dims_of_blocks(plan: MemoryPlan) -> set[str]:
    """Return the blocked dimensions."""
    blocks = plan.placed.blocks.items()
    return {plan.pdg[t[0]].outputs[t[1]].domain[block.along] for t, block in blocks}


def _in_blocks(plain: MemoryPlan) -> MemoryPlan:
    """Return the plan with blocks, as far as they raise the peak by a few values at most."""
    constraints, clock, pdg = plain.constraints, plain.clock, plain.pdg
    found = candidates(constraints.statements, plain.bounds)
    chosen = _fitting(found, plain)
    while found.along:
        placed = separate_point_outputs(pdg, found, chosen)
        new = Constraints(placed.pdg) if placed.copied else constraints
        along = {tensor: block.along for tensor, block in placed.blocks.items()}
        lifetimes = find_lifetimes(new, clock.schedule, along)
        plan = MemoryPlan(new, clock, lifetimes, placed, fold=plain.fold)
        rows = sum(plain.unit(tensor) for tensor in chosen)
        if plan.peak <= plain.peak + _SLACK * rows:
            return plan
        largest = sorted(chosen, key=lambda t: (-plain.unit(t) * chosen[t].size, t))
        raised = "blocks would raise the predicted peak"
        found.refuse(dict.fromkeys(largest[: (len(largest) + 1) // 2], raised))
        chosen = {tensor: chosen[tensor] for tensor in found.along}
    lifetimes = tuple(plain.lifetimes.values())
    refused = BlockStorage(pdg, refused=found.refused)
    return MemoryPlan(constraints, clock, lifetimes, refused, fold=plain.fold)


def _fitting(found: Candidates, plain: MemoryPlan) -> dict[Tensor, RowBlock]:
    """Return the blocks of candidates that are not `too_large`."""
    spans, sizes, pdg = plain.spans, plain.sizes, plain.pdg
    found.refuse(_empty_somewhere(found, plain))
    blocks = rows_read(found, plain.statements, plain.bounds, spans)
    gathered = dict.fromkeys(blocks, 0)
    for (op_id, slot), parts in found.parts.items():
        read = pdg[op_id].inputs[slot]
        if sizes.is_gathered(pdg[op_id], read) and not is_picked(pdg[op_id], slot):
            span = sizes.span(pdg[op_id], read)
            for part in parts:
                if part.along is not None and part.tensor in gathered:
                    gathered[part.tensor] = max(gathered[part.tensor], span)
    large = {t: too_large(block, spans[t], gathered[t]) for t, block in blocks.items()}
    why = {tensor: reason for tensor, reason in large.items() if reason}
    found.refuse(
        why | {t: "no value of it is read in slices" for t in found.along if t not in blocks}
    )
    return {tensor: blocks[tensor] for tensor in found.along}


def _empty_somewhere(found: Candidates, plain: MemoryPlan) -> dict[Tensor, str]:
    """Return the candidates with possibly empty slices. Then the block may not exist."""
    why: dict[Tensor, str] = {}
    for (op_id, slot), parts in found.parts.items():
        op = plain.pdg[op_id]
        env = plain.clock.env(op.domain, plain.clock.points[statement_name(op)])
        lengths = (e.length for e in op.inputs[slot].index if isinstance(e, Slice))
        if any((np.asarray(values(length, env)) < 1).any() for length in lengths):
            empty = "a slice of it can be empty"
            why.update({part.tensor: empty for part in parts if part.along is not None})
    return why
