"""Whether a program keeps to the memory that there is: known, and said, before anything runs."""

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

# How often swaps are chosen anew for what buffers take more than values.
_TRIES: Final = 6
# Boxes of point maps may make buffers larger than the peak: up to so many times and bytes, without a budget.
_LARGER, _MORE = 2, 64 << 20


@dataclass(frozen=True)
class Planner:
    """How memory is planned.

    Attributes:
        smallest: choose stores by how tensors live and are read; False keeps all in point maps.
        donation: kernels take over the memory of what dies with them.
        budget: device bytes; None for no limit.
        swap: let values wait on the host where the budget would not do.
        lowered: XLA is to run it, where its buffers keep to the budget, too.
        devices: among how many instances are divided; of several XLA alone can run it.
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
        """The memory plan; without blocks where these need too much, since they stay as they are."""
        return self.choose_fitting(self.plans(constraints, tree, bounds, known))

    def plans(
        self,
        constraints: Constraints,
        tree: ScheduleTree,
        bounds: Point,
        known: KnownLifetimes | None = None,
    ) -> Plans:
        """What there is to choose from, whether values wait on the host or not.

        Args:
            known: see `Plans`.
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
        """The first of some plans that keeps to the budget, by swapping if need be; else what needs least.

        Args:
            plans: other plans of one program, the best first; at least one.
        """
        tried: list[MemoryPlan] = []
        for plan in plans:
            first = self._measure_buffers(plan)
            for one in chain([first], self._plans_with_swaps(first)):
                tried.append(one)
                if not self._excess_bytes(one):
                    return one
        return min(tried, key=lambda plan: max(plan.needed, self.budget or 0))

    def _plans_with_swaps(self, plan: MemoryPlan) -> Iterable[MemoryPlan]:
        """The plan with swaps; then with more and more of them, for what buffers take more than values."""
        if self.budget is None or not self.swap:
            return
        target, unfolded = self.budget - plan.overhead_bytes, plan.without_extrapolation()
        known = dict[Hashable, Any]()  # of all its layouts
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
                    return  # no swaps bring it lower
                target = min(target, found.peak) - over
        finally:
            unfolded.forget()

    def _reduce_swaps(
        self, unfolded: MemoryPlan, found: MemoryPlan, budget: int, known: dict[Hashable, Any]
    ) -> MemoryPlan:
        """What keeps to the budget, with as few values moved as its buffers leave room for."""
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
        """Whether XLA's buffers are looked at."""
        return self.lowered or (self.devices > 1 and self.budget is not None)

    def _needed_bytes(self, plan: MemoryPlan) -> int:
        """The bytes that a plan needs, in XLA's buffers if it is to run it."""
        return plan.laid_out if self.lowered else plan.needed

    def _excess_bytes(self, plan: MemoryPlan) -> int:
        """Bytes that a plan needs beyond the budget, in XLA's buffers if it is to run it."""
        return 0 if self.budget is None else max(0, self._needed_bytes(plan) - self.budget)

    def _measure_buffers(
        self, plan: MemoryPlan, known: dict[Hashable, Any] | None = None
    ) -> MemoryPlan:
        """The plan, of which it is known whether XLA is to run it, and what its buffers take then."""
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
    """Why XLA's buffers are too large, where boxes hold many more values than live at once; else nothing."""
    if budget is not None and buffers + plan.overhead_bytes > budget:
        more = (
            f", and what it computes and is given {plan.overhead_bytes:,}"
            if plan.overhead_bytes
            else ""
        )
        return f"its buffers would take {buffers:,} bytes{more}, where {budget:,} are allowed"
    if buffers <= _LARGER * plan.peak + _MORE:
        return ""
    return f"its buffers would take {buffers:,} bytes where the plan holds at most {plan.peak:,} at once"


def refusal(plan: MemoryPlan, budget: int, hint: str, beyond: int = 0) -> BudgetError:
    """The error of a plan beyond the budget: it lists the largest values at the peak.

    Args:
        beyond: the excess of XLA's figure over the estimate, in bytes.
    """
    needed = plan.needed + beyond
    line = plan.timeline()
    evidence = [_when(plan, line.peak_time)]
    evidence += [f"  {holder}" for holder in line.holders[:5]]
    what = f"the program needs {needed:,} bytes on the device at once"
    if plan.share is not None:
        what = f"the program needs {needed:,} bytes on each of {plan.share.count} devices at once"
    evidence += plan.beside_text()
    if beyond:
        evidence.append(f"XLA states {beyond:,} bytes more than was estimated")
    if plan.swaps.all:
        moved = f"{len(plan.swaps.tensors)} tensors wait on the host between some uses"
        evidence.append(f"{moved}; what is left is needed at once")
    return BudgetError(
        f"{what}; there are {budget:,}.",
        others=_lines_of(plan, line.holders),
        evidence=evidence,
        hint=hint,
        needed=needed,
    )


def stated_text(plan: MemoryPlan, stated: int) -> str:
    """What XLA says of its temporaries, and what was estimated before it was asked."""
    return f"XLA states {stated:,} bytes of temporaries, where {plan.temporaries:,} were estimated"


def stated_refusal(needed: int, budget: int, told: str) -> BudgetError:
    """The error of a program that only XLA's own figures show to be too large."""
    return BudgetError(
        f"the program needs {needed:,} bytes on the device at once; there are {budget:,}.",
        evidence=[told],
        hint=f"device_memory={needed} would do, or smaller bounds.",
        needed=needed,
    )


def on_the_machine(plan: MemoryPlan, *, shared: bool) -> int:
    """The most bytes of main memory that a plan needs at once.

    Args:
        shared: the device is the CPU, so that what is on it counts as what waits on the host does.
    """
    return plan.timeline().main_peak(shared=shared)[0]


def machine_refusal(
    plan: MemoryPlan, needed: int, left: int, why: str, hint: str, *, shared: bool
) -> BudgetError:
    """The error of a plan that needs more main memory than is left: who needs how much, and when.

    Args:
        needed: its bytes, buffers as they are laid out.
        why: what leaves no more.
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
            f"the device is the CPU: {live:,} bytes on it, and {host:,} that wait on the host, are "
            "of one memory"
        )
    beside = plan.overhead_bytes if shared else 0
    if needed > on_the_machine(plan, shared=shared) + beside:
        evidence.append(f"laid out as XLA's buffers these take {needed - beside:,} bytes")
    evidence += plan.beside_text() if shared else ()
    return BudgetError(
        f"the program needs {needed:,} bytes of main memory at once; {left:,} are left.",
        others=_lines_of(plan, [holder for holder, _ in held]),
        evidence=evidence,
        hint=hint,
        needed=needed,
    )


def _when(plan: MemoryPlan, time: int) -> str:
    return (
        f"the most is needed at step {time:,} of {plan.timeline().segments[-1].end:,}, "
        f"{plan.moment(time)}:"
    )


def _lines_of(plan: MemoryPlan, holders: Sequence[Holder]) -> dict[str, Origin]:
    """The user's lines behind those that hold most."""
    lines = {store.name: plan.origin(tensor) for tensor, store in plan.stores.items()}
    largest = [holder.tensor for holder in holders[:3] if holder.tensor in lines]
    return {f"{tensor} is from": lines[tensor] for tensor in largest}
