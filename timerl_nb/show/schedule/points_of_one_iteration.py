"""One turn (iteration of the outer loops) of a program: the executed points that time-based views draw.

A picture of a whole run would show no detail, so the iteration space, the memory and the loop nest show one
turn under the program's own bounds. Time in these views is counted in instants of the turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Annotated, Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import DomainError
from timerl_nb.compiler.loops.loop_nodes import Ast
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.steady_state.extrapolated_plan import FoldedPlan
from timerl_nb.compiler.scheduling.enumerated_schedule_points import most_points
from timerl_nb.compiler.scheduling.schedule_artifact import Schedule, StatementPoints
from timerl_nb.compiler.symbolic.dimensions import Dims
from timerl_nb.driver.compiling.machine_dependent_options import device_limit
from timerl_nb.driver.program import Program, a_program
from timerl_nb.show.view_model import HIDDEN, ints, shown

EXACT: Final = 4096  # number of instants up to which views show each one
COLUMNS: Final = 1024  # parts of a longer turn, about one per screen column
MOST: Final = 20_000_000  # maximal number of executed points of a program for this view


def main_dimension(schedule: Schedule) -> str | None:
    """Return the innermost dimension of any statement, including dimensions that statements process in blocks."""
    dims = schedule.constraints.pdg.dims
    used = {dims[d].bound for op in schedule.statements.values() for d in op.domain}
    order = [d.name for d in dims if d.bound in used and d.step == 1]
    return order[-1] if order else None


def outer_dimensions(schedule: Schedule, dim: str | None) -> tuple[str, ...]:
    """Return the dimensions of the loops around a dimension: those shared by most statements over it."""
    dims = schedule.constraints.pdg.dims
    domains = [op.domain for op in schedule.statements.values() if dim in op.domain]
    return tuple(
        d for d in dims.names if d != dim and 2 * sum(d in one for one in domains) > len(domains)
    )


@dataclass(frozen=True, eq=False)
class Turn:
    """Executed points of one iteration of the loops around a dimension, in order.

    An instant is the position of a point in this order. Statements outside these loops, which run once, have
    no instants.

    Attributes:
        dim: the vertical dimension; None if the program has none.
        fixed: the fixed values of the outer dimensions.
        points: the statements' points; statements without points are omitted.
        problem: the reason if the turn cannot be drawn, else "".

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> len(trl.show.Turn.from_program(program))
        1
    """

    schedule: Annotated[Schedule, HIDDEN]
    dim: str | None
    fixed: Mapping[str, int]
    points: Annotated[tuple[StatementPoints, ...], HIDDEN]
    problem: str = ""
    plan: Annotated[MemoryPlan | None, HIDDEN] = None
    ast: Annotated[Ast | None, HIDDEN] = None
    budget: Annotated[int | None, HIDDEN] = None

    @classmethod
    def from_program(
        cls,
        program: Program,
        dim: str | None = None,
        fixed: Mapping[str, int] | None = None,
    ) -> Turn:
        """Return a turn of a program.

        Args:
            program: the program.
            dim: the vertical dimension; by default the innermost one.
            fixed: values of the outer dimensions (`outer_dimensions`). By default 1, or the iteration with
                the run's peak if the peak comes later.

        Raises:
            DomainError: a dimension is unknown, or a value is out of range.
        """
        schedule, plan, ast = a_program(program).schedule, program.memory, program.ast
        made = cls.from_schedule(schedule, plan, dim, fixed)
        return replace(made, ast=ast, budget=device_limit(program.options))

    @classmethod
    def from_schedule(
        cls,
        schedule: Schedule,
        plan: MemoryPlan | None = None,
        dim: str | None = None,
        fixed: Mapping[str, int] | None = None,
    ) -> Turn:
        """Return a turn of a schedule, with a memory plan if given; see `from_program`."""
        dims = schedule.constraints.pdg.dims
        dims.check(*([] if dim is None else [dim]), *(fixed or ()))
        dim = dim or main_dimension(schedule)
        held = _usual(schedule, plan, outer_dimensions(schedule, dim))
        for name, value in (fixed or {}).items():
            checked = _check_point(dims, name, value, schedule.bounds)
            if name in held:
                held[name] = checked
        count = _count(schedule, plan, held)
        if count > MOST:
            return cls(schedule, dim, held, (), f"too many points to draw: {count:,}", plan)
        points = _iteration_points(schedule, plan, held)
        if not points and not fixed:  # no statement runs at 1
            held = dict.fromkeys(held, 0)
            points = _iteration_points(schedule, plan, held)
        return cls(schedule, dim, held, points, plan=plan)

    def __len__(self) -> int:
        return len(self.ranks)

    @shown
    def bounds(self) -> Mapping[str, int]:
        return {name: int(value) for name, value in self.schedule.bounds.items()}

    @shown
    def size(self) -> int:
        """The number of points of the vertical dimension."""
        return self.dims[self.dim].count(self.schedule.bounds) if self.dim is not None else 1

    @property
    def dims(self) -> Dims:
        return self.schedule.constraints.pdg.dims

    @cached_property
    def ranks(self) -> Array:
        """For every instant, the position of its point in the order of all points of the run."""
        parts = [p.rank for p in self.points]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    @cached_property
    def statement(self) -> Array:
        """For every instant, the index of its statement in `points`."""
        found = np.full(len(self), -1, np.int32)
        for k, one in enumerate(self.points):
            found[one.time] = k
        return found

    def columns(self, amounts: Array) -> tuple[Array, Array]:
        """Return the columns that views draw: their first instants, and the instant with the greatest amount in
        each.

        A turn with few instants has one column per instant.
        """
        count = len(self)
        if count <= EXACT:
            return ints(np.arange(count)), ints(np.arange(count))
        first = np.linspace(0, count, COLUMNS, endpoint=False).astype(int)
        parts = np.split(amounts, first[1:])
        return ints(first), ints([k + part.argmax() for k, part in zip(first, parts, strict=True)])

    @shown
    def count(self) -> int:
        """The number of instants."""
        return len(self)


def _count(schedule: Schedule, plan: MemoryPlan | None, held: Mapping[str, int]) -> int:
    """Return an upper bound of the points to be enumerated for a turn."""
    if plan is not None and not isinstance(plan, FoldedPlan):
        return len(plan.clock)
    most, dims = most_points(schedule.tree, schedule.bounds), schedule.constraints.pdg.dims
    if plan is None:
        return sum(most.values())
    inside = {domain: count for domain, count in most.items() if held.keys() <= set(domain)}
    return sum(inside.values()) // prod(dims[d].count(schedule.bounds) for d in held)


def _iteration_points(
    schedule: Schedule, plan: MemoryPlan | None, held: Mapping[str, int]
) -> tuple[StatementPoints, ...]:
    """Return the points of a turn by statement."""
    if isinstance(plan, FoldedPlan):
        points = schedule.in_order(held, plan.points.points_with_fixed)
    else:
        known = None if plan is None else plan.clock
        points = Schedule(schedule.constraints, schedule.tree, schedule.bounds, known).points(
            **held
        )
    return tuple(p for p in points if len(p))


def _usual(schedule: Schedule, plan: MemoryPlan | None, outer: tuple[str, ...]) -> dict[str, int]:
    """Return the default turn: a typical iteration that includes the peak."""
    dims = schedule.constraints.pdg.dims
    held = {d: min(1, dims[d].count(schedule.bounds) - 1) for d in outer}
    if plan is None:
        return held
    line = plan.timeline()
    if line.outer in held and _count(schedule, plan, {line.outer: 0}) <= MOST:
        points = _iteration_points(schedule, plan, {line.outer: held[line.outer]})
        if not any((line.bytes_at(one.rank) == line.peak).any() for one in points):
            held[line.outer] = max(line.turn_at(line.peak_time), 0)
    return held


def _check_point(dims: Dims, name: str, value: Any, bounds: Mapping[str, int]) -> int:
    count = dims[name].count(bounds)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < count:
        raise DomainError(
            f"{name} = {value!r} is out of range.", hint=f"choose 0 <= {name} < {count}."
        )
    return int(value)


def first_instants(turn: Turn, ranks: Array) -> Array:
    """Return the first instants at or after positions in the order of all points; -1 before the turn.

    Positions after the last instant map to the number of instants.
    """
    at = np.searchsorted(turn.ranks, ranks)
    return ints(np.where(ranks < turn.ranks[0], -1, at)) if len(turn) else ints(at)


def last_instants(turn: Turn, ranks: Array) -> Array:
    """Return the last instants at or before positions in the order of all points; -1 before the turn.

    Positions after the last instant map to the number of instants.
    """
    at = np.searchsorted(turn.ranks, ranks, side="right") - 1
    return ints(np.where(ranks > turn.ranks[-1], len(turn), at)) if len(turn) else ints(at)
