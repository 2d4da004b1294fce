"""One turn of the outer loops: the executed points that pictures of time count in.

A picture of a whole run shows nothing: a turn is drawn, for bounds at which single points can be
told apart. The iteration space, the memory and the loop nest count in its instants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from timerl_nb.errors import DomainError, OptionError
from timerl_nb.memory.blocks import Block
from timerl_nb.memory.donation import donate
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.program import Program
from timerl_nb.schedule.clock import Clock
from timerl_nb.schedule.schedule import Schedule, StatementPoints
from timerl_nb.show.view import Array, ints
from timerl_nb.symbolic.domain import Dims

LIMIT = 40  # points of a dimension that can be told apart in a picture


def main_dimension(schedule: Schedule) -> str | None:
    """The innermost dimension that some statement varies over."""
    used = {d for op in schedule.statements.values() for d in op.domain}
    order = [d for d in schedule.constraints.pdg.dims.names if d in used]
    return order[-1] if order else None


def outer_dimensions(schedule: Schedule, dim: str | None) -> tuple[str, ...]:
    """The other dimensions that most statements over one vary over: those of the loops around it."""
    dims = schedule.constraints.pdg.dims
    domains = [op.domain for op in schedule.statements.values() if dim in op.domain]
    return tuple(
        d for d in dims.names if d != dim and 2 * sum(d in one for one in domains) > len(domains)
    )


@dataclass(frozen=True, eq=False)
class Turn:
    """The executed points of one turn of the loops around a dimension, in order.

    An instant is the position of a point in this order. Statements that do not vary over all that is
    held (what runs once, before) have none.

    Attributes:
        dim: the dimension that goes up; None where the program has none.
        fixed: the values at which those of the loops around it are held.
        bounds: those that are drawn; the program's, or less.
        points: the statements' points, those without left out.
    """

    program: Program
    dim: str | None
    fixed: Mapping[str, int]
    bounds: Mapping[str, int]
    points: tuple[StatementPoints, ...]

    @classmethod
    def of(
        cls,
        program: Program,
        dim: str | None = None,
        fixed: Mapping[str, int] | None = None,
        limit: int | None = LIMIT,
    ) -> Turn:
        """A turn of a program.

        Args:
            dim: the dimension that goes up; the innermost by default.
            fixed: values at which those of the loops around it (`outer_dimensions`) are held; 1 by
                default, or 0 where there is no more, or nothing runs.
            limit: bounds above it are drawn as `limit`; None draws the program's own. So are those
                of a program that swaps values: under smaller ones it would swap none.

        Raises:
            DomainError: there is no such dimension, or no such point of it.
            OptionError: the limit is no positive number.
        """
        if limit is not None and (isinstance(limit, bool) or limit < 1):
            raise OptionError(f"limit={limit!r} is not possible.", hint="give a positive number.")
        schedule = program.schedule
        dims = schedule.constraints.pdg.dims
        for name in (dim, *(fixed or ())):
            if name is not None and name not in dims:
                known = ", ".join(dims.names)
                raise DomainError(
                    f"{name} is not a dimension.", hint=f"the dimensions are {known}."
                )
        dim = dim or main_dimension(schedule)
        whole = limit is None or bool(program.memory.swaps.all)
        bounds = dict(schedule.bounds)
        if not whole and limit is not None:
            used = {d for op in schedule.statements.values() for d in op.domain}
            loops = {dims[d].bound for d in used}  # axes are as long as they are
            bounds = {n: min(int(b), limit) if n in loops else b for n, b in bounds.items()}
        outer = outer_dimensions(schedule, dim)
        held = {d: min(1, dims[d].count(bounds) - 1) for d in outer}
        for name, value in (fixed or {}).items():
            checked = _inside(dims, name, value, bounds, schedule.bounds)
            if name in held:
                held[name] = checked
        drawn = schedule
        if bounds != schedule.bounds:
            drawn = Schedule(schedule.constraints, schedule.tree, bounds)
        points = tuple(p for p in drawn.points(**held) if len(p))
        if not points and not fixed:  # nothing runs at 1
            held = dict.fromkeys(held, 0)
            points = tuple(p for p in drawn.points(**held) if len(p))
        return cls(program, dim, held, bounds, points)

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def reduced(self) -> tuple[str, ...]:
        """The bounds that are drawn smaller than they are."""
        own = self.program.bounds
        return tuple(name for name, value in self.bounds.items() if value < own[name])

    @property
    def size(self) -> int:
        """How many points the dimension that goes up has."""
        return self.dims[self.dim].count(self.bounds) if self.dim is not None else 1

    @property
    def dims(self) -> Dims:
        return self.program.schedule.constraints.pdg.dims

    @cached_property
    def ranks(self) -> Array:
        """For every instant, the place of its point in the order of all points."""
        parts = [p.rank for p in self.points]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    @cached_property
    def statement(self) -> Array:
        """For every instant, which of `points` runs."""
        found = np.full(len(self), -1, np.int32)
        for k, one in enumerate(self.points):
            found[one.time] = k
        return found

    @cached_property
    def plan(self) -> MemoryPlan:
        """The program's memory plan under the bounds that are drawn."""
        return plan_under(self.program.memory, tuple(self.bounds.items()))

    def own(self, dim: str, coordinate: Array) -> Array:
        """Coordinates under the program's bounds: as far from the nearer end as those drawn."""
        count, drawn = (self.dims[dim].count(b) for b in (self.program.bounds, self.bounds))
        return np.where(coordinate >= (drawn + 1) // 2, coordinate + (count - drawn), coordinate)

    def json(self) -> dict[str, Any]:
        """What all views of a turn say of it."""
        return {
            "dim": self.dim,
            "size": self.size,
            "fixed": dict(self.fixed),
            "bounds": {name: int(value) for name, value in self.bounds.items()},
            "program_bounds": {name: int(value) for name, value in self.program.bounds.items()},
            "reduced": list(self.reduced),
            "count": len(self),
        }


def _inside(
    dims: Dims, name: str, value: Any, drawn: Mapping[str, int], own: Mapping[str, int]
) -> int:
    count = dims[name].count(own)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < count:
        raise DomainError(
            f"{name} = {value!r} is no point of {name}.", hint=f"0 <= {name} < {count}."
        )
    return min(int(value), dims[name].count(drawn) - 1)


@lru_cache(maxsize=8)  # other values that are held, or other views, ask again
def plan_under(plan: MemoryPlan, actual: tuple[tuple[str, int], ...]) -> MemoryPlan:
    """A plan under other bounds, with the same blocks, and without swaps."""
    bounds = dict(actual)
    if bounds == plan.bounds:
        return plan
    base = plan.without_donations
    blocks = {
        tensor: _resized(base, tensor, block, bounds)
        for tensor, block in base.placed.blocks.items()
    }
    made = MemoryPlan(
        base.constraints,
        Clock(base.clock.schedule, bounds),
        tuple(base.lifetimes.values()),
        replace(base.placed, blocks=blocks),
        smallest=base.smallest,
    )
    # what is taken over follows from the bounds
    return donate(made) if plan.donates else made


def _resized(
    plan: MemoryPlan, tensor: tuple[int, int], block: Block, bounds: Mapping[str, int]
) -> Block:
    """A block of fewer rows: as many less as its dimension has, where it goes along with that."""
    dim = plan.pdg.dims[plan.pdg[tensor[0]].outputs[tensor[1]].domain[block.along]]
    fewer = dim.count(plan.bounds) - dim.count(bounds)
    first = block.first - fewer if block.first > dim.count(plan.bounds) // 2 else block.first
    size = block.size - fewer if block.size > fewer else block.size
    return replace(block, first=max(first, 0), size=size)


def first_instants(turn: Turn, ranks: Array) -> Array:
    """The first instants at or behind places in the order of all points; -1 before the turn.

    What is behind the last instant has the number of instants.
    """
    at = np.searchsorted(turn.ranks, ranks)
    return ints(np.where(ranks < turn.ranks[0], -1, at)) if len(turn) else ints(at)


def last_instants(turn: Turn, ranks: Array) -> Array:
    """The last instants at or before places in the order of all points; -1 before the turn.

    What is behind the last instant has the number of instants.
    """
    at = np.searchsorted(turn.ranks, ranks, side="right") - 1
    return ints(np.where(ranks > turn.ranks[-1], len(turn), at)) if len(turn) else ints(at)
