"""What a memory plan would cost as a program, for comparing it with others."""

from __future__ import annotations

from typing import Final

from timerl_nb.base.machine_model import Machine
from timerl_nb.compiler.ir.recorded_pass_decisions import Forecast
from timerl_nb.compiler.memory.memory_plan import MemoryPlan

# What only the interpreter can run costs so many launches for each.
_INTERPRETED: Final = 10


def forecast(plan: MemoryPlan, seconds: float, machine: Machine) -> Forecast:
    """What a plan costs.

    Args:
        seconds: without what is swapped.
    """
    launches = sum(plan.counts.values())
    away = sum(s.away.turns * plan.unit(t) for s in plan.swaps.all for t in s.tensors)
    swapped = 2 * away  # there and back
    seconds += swapped / machine.host
    if plan.buffers and not plan.is_lowered:
        seconds += (_INTERPRETED - 1) * machine.launch * launches
    beside, buffers, is_lowered = plan.overhead_bytes, plan.buffers, plan.is_lowered
    each = 0 if plan.share is None else plan.needed
    return Forecast(plan.peak, launches, seconds, swapped, beside, buffers, is_lowered, each)
