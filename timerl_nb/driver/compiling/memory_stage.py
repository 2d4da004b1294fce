"""Memory planning stage, with an error if the plan exceeds the device's memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from timerl_nb.base.options import Options
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_verifier import prove_reads
from timerl_nb.compiler.isl.operation_limit import limit_isl_work
from timerl_nb.compiler.memory.budget.budget_check import Planner, refusal
from timerl_nb.compiler.memory.budget.memory_lower_bound import inevitable, lower_bound
from timerl_nb.compiler.memory.liveness.last_uses import KnownLifetimes
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.per_device_memory import least_share
from timerl_nb.driver.compiling.compile_pipeline import Front
from timerl_nb.driver.compiling.machine_dependent_options import (
    device_limit,
    planner,
    without_memory_budget,
)
from timerl_nb.driver.search.budget_suggestions import fit_suggestions
from timerl_nb.driver.stages import Stage


def planner_of(front: Front, options: Options) -> Planner:
    """Return the memory planner for a front; it swaps only if the decision allows swaps."""
    return planner(options, swap=front.decision.swap, beyond=front.beyond)


def make_memory_stage(
    front: Front,
    options: Options,
    plan_memory: Callable[[], MemoryPlan],
    suggest: Callable[[int, int], str],
) -> Stage:
    """Plan memory and return the stage.

    Args:
        front: the passes and the schedule.
        options: the options.
        plan_memory: makes the plan.
        suggest: returns fitting changes, from the needed and the available bytes.

    Raises:
        BudgetError: the plan needs more memory than the device has.
        CeilingError: the same for a plan of an incomplete schedule.
    """
    start = time.perf_counter()
    budget = device_limit(options)
    with limit_isl_work("finding the last read of each value"):
        plan = plan_memory().with_savings(front.saved_by)
        peak = ", ".join((f"planned peak {plan.peak:,} bytes", *plan.saved_by))
        summary = f"{format_count(len(plan.names), 'store')}, {peak}"
    needed = plan.needed + front.beyond
    if budget is not None and needed > budget:
        if front.parts is not None:
            raise front.parts.make_ceiling_error(needed, budget)
        raise refusal(plan, budget, suggest(needed, budget), front.beyond)
    if plan.swaps.all:
        summary += f", {plan.timeline().host_peak:,} bytes on the host"
    seconds = time.perf_counter() - start
    return Stage("memory", plan, seconds, summary, search_choices=front.search_choices)


def suggest_fit(
    front: Front,
    options: Options,
    bounds: Mapping[str, int],
    needed: int,
    budget: int,
    lifetimes: KnownLifetimes,
    pdg: Pdg,
    compile_front: Callable[[Options, Mapping[str, int]], Front],
) -> str:
    """Return changes of options or bounds that make a program fit the device, found by trial.

    Args:
        front: the front that exceeds the budget.
        options: the options.
        bounds: actual bounds, by name.
        needed: bytes needed on one device.
        budget: bytes available on one device.
        lifetimes: cached lifetimes of schedules.
        pdg: the source graph.
        compile_front: returns the front under other options and bounds.
    """

    def bytes_per_device(nbytes: int) -> int:
        return least_share(nbytes, options.device_count)

    def bytes_needed(changes: Mapping[str, Any], other: Mapping[str, int]) -> int:
        changed, actual = options.with_(**changes), {**bounds, **other}
        if (floor := bytes_per_device(inevitable(pdg, actual))) > budget:
            return floor
        prove_reads(pdg, actual)
        # plans without blocks are among the later candidates
        again = changes or (other and front.bounds)
        of = compile_front(without_memory_budget(changed), actual) if again else front
        if (floor := bytes_per_device(lower_bound(of.constraints.statements, actual))) > budget:
            return floor
        how = replace(planner(changed), lowered=False)
        plans = how.plans(of.constraints, of.tree, actual, lifetimes)
        least = bytes_per_device(plans.lower_bound(swap=how.swap))
        return least if least > budget else how.choose_fitting(plans).needed

    given = {d.name: (d.bound, bounds[d.bound]) for d in pdg.dims}
    known = [f"device_memory={needed} would do"]
    changes = {} if options.swap else {'swap="auto"': {"swap": "auto"}}
    return fit_suggestions(
        known, changes, budget, options, given, bytes_needed, decided=tuple(given)
    )
