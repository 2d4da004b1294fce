"""From a schedule to a memory plan: blocks where they hold no more than what they replace."""

from __future__ import annotations

import numpy as np

from timerl_nb.ir.ops import Tensor
from timerl_nb.memory.blocks import (
    Block,
    Candidates,
    Placed,
    apart,
    candidates,
    rows_read,
    too_large,
)
from timerl_nb.memory.donation import donate
from timerl_nb.memory.lifetimes import find_lifetimes
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.schedule.clock import Clock
from timerl_nb.schedule.constraints import Constraints
from timerl_nb.statements.statements import statement_name
from timerl_nb.symbolic.arrays import values
from timerl_nb.symbolic.expr import Slice
from timerl_nb.symbolic.polyhedra import Point
from timerl_nb.symbolic.scheduling import ScheduleTree

# Each block may cost the peak this many values, such as the copies for readers of single points.
_SLACK = 2


def plan_memory(
    constraints: Constraints,
    schedule: ScheduleTree,
    bounds: Point,
    *,
    smallest: bool = True,
    blocks: bool = True,
    donation: bool = True,
) -> MemoryPlan:
    """The stores of a scheduled graph under actual bounds, and what they will hold when.

    Args:
        smallest: choose stores by how tensors live and are read; False keeps all in point maps.
        blocks: let there be blocks.
        donation: kernels take over the memory of what dies with them. Without it there are no
            blocks: each row would be written into a copy.
    """
    plan = _placed(constraints, schedule, bounds, smallest, smallest and blocks and donation)
    return donate(plan) if donation else plan


def _placed(
    constraints: Constraints, schedule: ScheduleTree, bounds: Point, smallest: bool, blocky: bool
) -> MemoryPlan:
    pdg, clock = constraints.pdg, Clock(schedule, bounds)
    lifetimes = find_lifetimes(constraints, schedule)
    plain = MemoryPlan(constraints, clock, lifetimes, Placed(pdg), smallest=smallest)
    if not blocky:
        return plain
    found = candidates(constraints.statements, bounds)
    chosen = _fitting(found, plain)
    while found.along:
        placed = apart(pdg, found, chosen)
        new = Constraints(placed.pdg) if placed.copied else constraints
        along = {tensor: block.along for tensor, block in placed.blocks.items()}
        plan = MemoryPlan(new, clock, find_lifetimes(new, schedule, along), placed)
        rows = sum(plain.unit(tensor) for tensor in chosen)
        if plan.peak <= plain.peak + _SLACK * rows:
            return plan
        largest = sorted(chosen, key=lambda t: (-plain.unit(t) * chosen[t].size, t))
        raised = "blocks would raise the predicted peak"
        found.refuse(dict.fromkeys(largest[: (len(largest) + 1) // 2], raised))
        chosen = {tensor: chosen[tensor] for tensor in found.along}
    return MemoryPlan(constraints, clock, lifetimes, Placed(pdg, refused=found.refused))


def _fitting(found: Candidates, plain: MemoryPlan) -> dict[Tensor, Block]:
    """The blocks of the candidates that hold no more than their values do without."""
    spans, sizes, pdg = plain.spans, plain.sizes, plain.pdg
    found.refuse(_empty_somewhere(found, plain))
    blocks = rows_read(found, plain.statements, plain.bounds, spans)
    gathered = dict.fromkeys(blocks, 0)
    for (op_id, slot), parts in found.parts.items():
        read = pdg[op_id].inputs[slot]
        if sizes.is_gathered(pdg[op_id], read):
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
    """The candidates of which a slice can be empty, when there may be no block to cut it from."""
    why: dict[Tensor, str] = {}
    for (op_id, slot), parts in found.parts.items():
        op = plain.pdg[op_id]
        env = plain.clock.env(op.domain, plain.clock.points[statement_name(op)])
        lengths = (e.length for e in op.inputs[slot].index if isinstance(e, Slice))
        if any((np.asarray(values(length, env)) < 1).any() for length in lengths):
            empty = "a slice of it can be empty"
            why.update({part.tensor: empty for part in parts if part.along is not None})
    return why
