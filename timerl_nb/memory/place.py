"""From a schedule to a memory plan: blocks where they hold no more than what they replace."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import numpy as np

from timerl_nb.errors import BoundsError
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
from timerl_nb.memory.folded import FoldedPlan
from timerl_nb.memory.folded_timeline import Unlike
from timerl_nb.memory.folds import Fold, find_fold
from timerl_nb.memory.lifetimes import find_lifetimes
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.schedule.clock import Clock, most_points
from timerl_nb.schedule.constraints import Constraints
from timerl_nb.statements.statements import statement_name
from timerl_nb.symbolic.arrays import values
from timerl_nb.symbolic.expr import Slice
from timerl_nb.symbolic.polyhedra import Point
from timerl_nb.symbolic.scheduling import ScheduleTree

# Each block may cost the peak this many values, such as the copies for readers of single points.
_SLACK = 2

# Programs of more executed points are planned by a few of their turns where that can be.
EXACT: Final = 200_000


def plan_memory(
    constraints: Constraints,
    schedule: ScheduleTree,
    bounds: Point,
    *,
    smallest: bool = True,
    blocks: bool = True,
    donation: bool = True,
    exact: int | None = None,
    most: int | None = None,
) -> MemoryPlan:
    """The stores of a scheduled graph under actual bounds, and what they will hold when.

    Args:
        smallest: choose stores by how tensors live and are read; False keeps all in point maps.
        blocks: let there be blocks.
        donation: kernels take over the memory of what dies with them. Without it there are no
            blocks: each row would be written into a copy.
        exact: programs of more executed points than this (`EXACT`) are planned by a few of their
            turns, where these say what all do.
        most: so many points may be looked at one by one.

    Raises:
        BoundsError: they are more.
    """
    blocky = smallest and blocks and donation
    lifetimes = find_lifetimes(constraints, schedule)

    def planned(bounds: Point, fold: Fold | None = None) -> MemoryPlan:
        clock = Clock(schedule, bounds)
        plain = MemoryPlan(
            constraints, clock, lifetimes, Placed(constraints.pdg), smallest=smallest, fold=fold
        )
        plan = _in_blocks(plain) if blocky else plain
        return donate(plan) if donation else plan

    def count(bounds: Point) -> int:
        return sum(most_points(schedule, bounds).values())

    def check_few(bounds: Point) -> None:
        if most is not None and count(bounds) > most:
            raise BoundsError(f"{count(bounds):,} points are too many for a trial")

    if count(bounds) > (EXACT if exact is None else exact):
        fold = find_fold(constraints, schedule, lifetimes, bounds)
        if fold is not None:
            with suppress(Unlike):
                few, more = fold.windows
                check_few(more)
                small = planned(few, fold)
                along = fold.dim.name in _dims_of_blocks(small)
                large = planned(more, fold) if along else small.of_turns(Clock(schedule, more))
                return FoldedPlan(small, large, lambda: planned(bounds))
    check_few(bounds)
    return planned(bounds)


def _dims_of_blocks(plan: MemoryPlan) -> set[str]:
    """The dimensions along which there are blocks."""
    blocks = plan.placed.blocks.items()
    return {plan.pdg[t[0]].outputs[t[1]].domain[block.along] for t, block in blocks}


def _in_blocks(plain: MemoryPlan) -> MemoryPlan:
    """A plan with blocks where they hold no more than what they replace."""
    constraints, clock, pdg = plain.constraints, plain.clock, plain.pdg
    found = candidates(constraints.statements, plain.bounds)
    chosen = _fitting(found, plain)
    while found.along:
        placed = apart(pdg, found, chosen)
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
    refused = Placed(pdg, refused=found.refused)
    return MemoryPlan(constraints, clock, lifetimes, refused, fold=plain.fold)


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
