"""Comparison of memory plans with the memory budget before the program runs, and the error
messages.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

from timerl_nb.base.errors import BudgetError, Origin
from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.memory.liveness.last_uses import KnownLifetimes
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.memory_timeline import Holder
from timerl_nb.compiler.memory.placement.per_device_memory import Share
from timerl_nb.compiler.memory.placement.placement_planner import Plans
from timerl_nb.compiler.memory.steady_state.extrapolated_plan import layout_of
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints

# Number of attempts to choose swaps if buffers take more memory than values.
_TRIES: Final = 6
# Without a budget, buffers may exceed the peak by this factor and this many bytes. The boxes of
# point maps may contain unused slots.
_LARGER, _MORE = 2, 64 << 20


@dataclass(frozen=True)
class Planner:
    """Settings of memory planning.

    Attributes:
        smallest: whether to choose the smallest store per tensor; otherwise all are point maps.
        donation: whether kernels reuse the memory of operands.
        budget: device bytes; None for no limit.
        swap: whether values may be swapped to the host if the budget is too small.
        lowered: whether XLA runs the program. Its buffers must then fit the budget.
        devices: the number of devices for the instances. Only XLA supports more than one.
        most: see `Plans`.
    """

    smallest: bool
    donation: bool
    budget: int | None
    swap: bool
    lowered: bool = False
    devices: int = 1
    most: int | None = None

    def __call__(
        self,
        constraints: Constraints,
        tree: ScheduleTree,
        bounds: Point,
        known: KnownLifetimes | None = None,
    ) -> MemoryPlan:
        """Return the memory plan.

        It has blocks only if it then satisfies the budget, or if a plan without them needs no less.
        """
        return self.choose_fitting(self.plans(constraints, tree, bounds, known))

    def plans(
        self,
        constraints: Constraints,
        tree: ScheduleTree,
        bounds: Point,
        known: KnownLifetimes | None = None,
    ) -> Plans:
        """Return the plans to choose from, with or without swaps.

        Args:
            constraints: the statements and dependences.
            tree: the schedule.
            bounds: the actual bounds.
            known: a cache of lifetimes, see `Plans`.
        """
        return Plans(
            constraints,
            tree,
            bounds,
            smallest=self.smallest,
            donation=self.donation,
            lowered=self.is_laid_out,
            most=self.most,
            known=known,
        )

    def choose_fitting(self, plans: Iterable[MemoryPlan]) -> MemoryPlan:
        """Return the first plan within the budget, with swaps if necessary, else the smallest plan.

        Args:
            plans: plans of one program, best first; at least one.
        """
        tried: list[MemoryPlan] = []
        for plan in plans:
            first = self._measure_buffers(plan)
            more = self._plans_with_swaps(first) if self._may_swap(first, plans) else ()
            for one in chain([first], more):
                tried.append(one)
                if not self._excess_bytes(one):
                    return one
        return min(tried, key=lambda plan: max(plan.needed, self.budget or 0))

    def _may_swap(self, plan: MemoryPlan, plans: Iterable[MemoryPlan]) -> bool:
        """Whether swaps are allowed, necessary, and may fit or at least need less memory."""
        if self.budget is None or not self.swap or not self._excess_bytes(plan):
            return False
        if plan.share is not None or not isinstance(plans, Plans):
            return True
        return plans.swapped_lower_bound < max(plan.needed, self.budget + 1)

    def _plans_with_swaps(self, plan: MemoryPlan) -> Iterable[MemoryPlan]:
        """Yield the plan with swaps, then with more swaps as long as buffers exceed the budget."""
        assert self.budget is not None
        target, unfolded = self.budget - plan.overhead_bytes, plan.without_extrapolation()
        known = dict[Hashable, Any]()  # shared by all its layouts
        try:
            for _ in range(_TRIES):
                found = (
                    self._measure_buffers(unfolded.with_swaps_below(target), known)
                    if plan.peak > target
                    else plan
                )
                over = self._excess_bytes(found)
                if found is not plan:
                    yield found if over else self._reduce_swaps(unfolded, found, self.budget, known)
                if not over or not self.lowered or found.needed > self.budget:
                    return
                if found.peak > target:
                    return  # swaps cannot reduce the peak further
                target = min(target, found.peak) - over
        finally:
            unfolded.forget()

    def _reduce_swaps(
        self, unfolded: MemoryPlan, found: MemoryPlan, budget: int, known: dict[Hashable, Any]
    ) -> MemoryPlan:
        """Return a plan within the budget with as few swapped values as possible."""
        if not found.swaps.all:
            return found
        target = found.peak + budget - self._needed_bytes(found)
        for _ in range(_TRIES // 2):
            one = self._measure_buffers(unfolded.with_fewer_swaps(found.swaps, target), known)
            if one.swaps.bytes_moved == found.swaps.bytes_moved:
                break
            if over := self._excess_bytes(one):
                target = min(target, one.peak) - over
            else:
                found, target = one, target + budget - self._needed_bytes(one)
        return found

    @property
    def is_laid_out(self) -> bool:
        """Whether the sizes of XLA's buffers are computed."""
        return self.lowered or (self.devices > 1 and self.budget is not None)

    def _needed_bytes(self, plan: MemoryPlan) -> int:
        """Return the bytes of a plan, in XLA's buffers if XLA runs the program."""
        return plan.laid_out if self.lowered else plan.needed

    def _excess_bytes(self, plan: MemoryPlan) -> int:
        """Return the bytes of a plan beyond the budget."""
        return 0 if self.budget is None else max(0, self._needed_bytes(plan) - self.budget)

    def _measure_buffers(
        self, plan: MemoryPlan, known: dict[Hashable, Any] | None = None
    ) -> MemoryPlan:
        """Return the plan with the size of XLA's buffers, and the decision whether XLA runs it."""
        if not self.is_laid_out:
            return plan.in_buffers(0, is_lowered=False)
        layout = layout_of(plan, known)
        nbytes, given = plan.buffers or layout.nbytes + plan.bytes_in_transfer, layout.given_bytes
        measured = partial(plan.in_buffers, nbytes, layout=layout, given=given)
        if self.devices > 1:
            ops, buffers = plan.statements.ops.values(), layout.buffers.values()
            how = plan.kernel_temporaries, self.devices
            share = Share.from_buffers(plan.pdg, plan.bounds, buffers, ops, *how)
            return measured(is_lowered=True, share=share)
        lowered = measured(is_lowered=True)
        if not too_large(lowered, nbytes, self.budget):
            return lowered
        return measured(is_lowered=False)


def too_large(plan: MemoryPlan, buffers: int, budget: int | None) -> str:
    """Return why XLA's buffers are too large, else an empty text.

    This happens if the boxes of point maps contain many more slots than live values.
    """
    if budget is not None and buffers + plan.overhead_bytes > budget:
        more = (
            f" (and temporaries and given arrays {plan.overhead_bytes:,})"
            if plan.overhead_bytes
            else ""
        )
        return f"its buffers would take {buffers:,} bytes{more}, but only {budget:,} are allowed"
    if buffers <= _LARGER * plan.peak + _MORE:
        return ""
    return f"its buffers would take {buffers:,} bytes, but at most {plan.peak:,} are live"


def refusal(plan: MemoryPlan, budget: int, hint: str, beyond: int = 0) -> BudgetError:
    """Return the error for a plan above the budget, with the largest values at the peak.

    Args:
        plan: the plan.
        budget: the bytes allowed.
        hint: the remedy.
        beyond: the excess of XLA's figure over the estimate, in bytes.
    """
    needed = plan.needed + beyond
    line = plan.timeline()
    evidence = [_when(plan, line.peak_time)]
    evidence += [f"  {holder}" for holder in line.holders[:5]]
    what = f"the program needs {needed:,} bytes on the device"
    if plan.share is not None:
        what = f"the program needs {needed:,} bytes on each of {plan.share.count} devices"
    evidence += plan.additional_memory_lines()
    if beyond:
        evidence.append(f"XLA reports {beyond:,} bytes more than the estimate")
    if plan.swaps.all:
        moved = f"{len(plan.swaps.tensors)} tensors wait on the host between some uses"
        evidence.append(f"{moved}; the other values are needed at the same time")
    return BudgetError(
        f"{what}, but the budget is {budget:,} bytes.",
        others=_lines_of(plan, line.holders),
        evidence=evidence,
        hint=hint,
        needed=needed,
    )


def compare_with_reported(plan: MemoryPlan, stated: int) -> str:
    """Return a comparison of XLA's figure for temporaries with the estimate."""
    return f"XLA reports {stated:,} bytes of temporaries; the estimate was {plan.temporaries:,}"


def reported_budget_error(needed: int, budget: int, told: str) -> BudgetError:
    """Return the error for a program above the budget according to XLA's figures only."""
    return BudgetError(
        f"the program needs {needed:,} bytes on the device, but the budget is {budget:,} bytes.",
        evidence=[told],
        hint=f"set device_memory={needed}, or choose smaller bounds.",
        needed=needed,
    )


def on_the_machine(plan: MemoryPlan, *, shared: bool) -> int:
    """Return a plan's peak of main memory in bytes.

    Args:
        plan: the plan.
        shared: whether the device is the CPU. Its values then count as well as swapped ones.
    """
    return plan.timeline().main_peak(shared=shared)[0]


def machine_refusal(
    plan: MemoryPlan, needed: int, left: int, why: str, hint: str, *, shared: bool
) -> BudgetError:
    """Return the error for a plan above the available main memory.

    Args:
        plan: the plan.
        needed: the bytes needed, in the layout of the buffers.
        left: the bytes available.
        why: the reason for the limit.
        hint: the remedy.
        shared: see `on_the_machine`.
    """
    line = plan.timeline()
    time = line.main_peak(shared=shared)[1]
    waiting = line.waiting_at(time)
    held = [(holder, str(holder)) for holder in (line.holders_at(time) if shared else ())]
    held += [(holder, f"{holder}, which wait on the host") for holder in waiting]
    held.sort(key=lambda pair: -pair[0].nbytes)
    evidence = [why, _when(plan, time)]
    evidence += [f"  {text}" for _, text in held[:5]]
    if shared and waiting:
        live, host = (sum(h.nbytes for h in one) for one in (line.holders_at(time), waiting))
        evidence.append(
            f"the device is the CPU, so {live:,} bytes on it and {host:,} bytes of values that wait "
            "on the host share one memory"
        )
    beside = plan.overhead_bytes if shared else 0
    if needed > on_the_machine(plan, shared=shared) + beside:
        evidence.append(f"XLA's buffers for these values take {needed - beside:,} bytes")
    evidence += plan.additional_memory_lines() if shared else ()
    return BudgetError(
        f"the program needs {needed:,} bytes of main memory, but only {left:,} are available.",
        others=_lines_of(plan, [holder for holder, _ in held]),
        evidence=evidence,
        hint=hint,
        needed=needed,
    )


def _when(plan: MemoryPlan, time: int) -> str:
    return (
        f"the peak is at step {time:,} of {plan.timeline().segments[-1].end:,}, "
        f"{plan.moment(time)}:"
    )


def _lines_of(plan: MemoryPlan, holders: Sequence[Holder]) -> dict[str, Origin]:
    """Return the user's lines behind the tensors with the most bytes."""
    lines = {store.name: plan.origin(tensor) for tensor, store in plan.stores.items()}
    largest = [holder.tensor for holder in holders[:3] if holder.tensor in lines]
    return {f"{tensor} is computed at": lines[tensor] for tensor in largest}
