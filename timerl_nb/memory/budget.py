"""Whether a program keeps to the device's memory: known, and said, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from timerl_nb.errors import BudgetError
from timerl_nb.memory.place import plan_memory
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.schedule.constraints import Constraints
from timerl_nb.symbolic.polyhedra import Point
from timerl_nb.symbolic.scheduling import ScheduleTree


@dataclass(frozen=True)
class Planner:
    """How memory is planned.

    Attributes:
        smallest: choose stores by how tensors live and are read; False keeps all in point maps.
        donation: kernels take over the memory of what dies with them.
        budget: device bytes; None for no limit.
        swap: let values wait on the host where the budget would not do.
    """

    smallest: bool
    donation: bool
    budget: int | None
    swap: bool

    def __call__(self, constraints: Constraints, tree: ScheduleTree, bounds: Point) -> MemoryPlan:
        """The memory plan; without blocks where these need too much, since they stay as they are."""
        smallest, donation = self.smallest, self.donation
        plans = (
            plan_memory(
                constraints, tree, bounds, smallest=smallest, blocks=blocks, donation=donation
            )
            for blocks in ((True, False) if smallest else (False,))
        )
        return fitted(plans, self.budget, swap=self.swap)


def fitted(plans: Iterable[MemoryPlan], budget: int | None, *, swap: bool) -> MemoryPlan:
    """The first plan that keeps to the budget, by swapping if need be; else what needs least.

    Args:
        plans: other plans of one program, the best first; at least one.
    """
    tried: list[MemoryPlan] = []
    for plan in plans:
        tried.append(plan)
        if budget is not None and plan.peak > budget and swap:
            tried.append(plan.swapped(budget))
        if budget is None or tried[-1].peak <= budget:
            return tried[-1]
    return min(tried, key=lambda plan: plan.peak)


def refusal(plan: MemoryPlan, budget: int, hint: str) -> BudgetError:
    """The error of a plan that does not keep to the budget: who needs how much, and when."""
    line = plan.timeline()
    when = f"step {line.peak_time:,} of {len(line.time):,}, {plan.moment(line.peak_time)}"
    evidence = [f"the most is needed at {when}:"]
    evidence += [f"  {holder}" for holder in line.holders[:5]]
    if plan.swaps.all:
        moved = f"{len(plan.swaps.tensors)} tensors wait on the host between some uses"
        evidence.append(f"{moved}; what is left is needed at once")
    lines = {store.name: plan.origin(tensor) for tensor, store in plan.stores.items()}
    largest = [holder.tensor for holder in line.holders[:3] if holder.tensor in lines]
    return BudgetError(
        f"the program needs {plan.peak:,} bytes on the device at once; there are {budget:,}.",
        others={f"{tensor} is from": lines[tensor] for tensor in largest},
        evidence=evidence,
        hint=hint,
        needed=plan.peak,
    )
