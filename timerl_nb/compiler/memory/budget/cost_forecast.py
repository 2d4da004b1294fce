"""Estimated cost of running a memory plan, for comparing plans."""

from __future__ import annotations

from typing import Final

from timerl_nb.base.machine_model import Machine
from timerl_nb.compiler.ir.recorded_pass_decisions import Forecast
from timerl_nb.compiler.memory.memory_plan import MemoryPlan

# A launch in the interpreter costs this many launches of a lowered program.
_INTERPRETED: Final = 10


def forecast(plan: MemoryPlan, seconds: float, machine: Machine) -> Forecast:
    """Return the estimated cost of a plan.

    Args:
        plan: the plan.
        seconds: the estimate without swaps.
        machine: the machine model.
    """
    launches = sum(plan.counts.values())
    away = sum(s.away.turns * plan.unit(t) for s in plan.swaps.all for t in s.tensors)
    swapped = 2 * away  # to the host and back
    seconds += swapped / machine.host
    if plan.buffers and not plan.is_lowered:
        seconds += (_INTERPRETED - 1) * machine.launch * launches
    beside, buffers, is_lowered = plan.overhead_bytes, plan.buffers, plan.is_lowered
    each = 0 if plan.share is None else plan.needed
    return Forecast(plan.peak, launches, seconds, swapped, beside, buffers, is_lowered, each)
