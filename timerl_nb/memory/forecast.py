"""Forecasts: a graph taken through the rest of a compilation, on trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from timerl_nb.errors import CeilingError, ScheduleError
from timerl_nb.ir.choice import Forecast
from timerl_nb.ir.pdg import Pdg
from timerl_nb.memory.cost import HOST, point_seconds
from timerl_nb.memory.lower_bound import lower_bound
from timerl_nb.memory.place import plan_memory
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.memory.sizes import Sizes
from timerl_nb.passes.core import Pass
from timerl_nb.schedule.clock import most_points
from timerl_nb.schedule.constraints import Constraints
from timerl_nb.schedule.trial import Trials
from timerl_nb.statements.statements import Statements
from timerl_nb.symbolic.polyhedra import Point
from timerl_nb.symbolic.scheduling import ScheduleTree

Planner = Callable[[Constraints, ScheduleTree, Point], MemoryPlan]

# A trial looks at every executed point. Programs with more are tried with two small numbers of turns
# of their outermost loop, of which one is like another, and the forecast goes on in a straight line.
ENOUGH_POINTS: Final = 30_000
MOST_POINTS: Final = 600_000
FEWEST_TURNS: Final = 4


class Forecasts:
    """What graphs would cost as programs, each forecast once; equal where they must say the same.

    Args:
        rest: the passes that are still to run.
        bounds: actual bounds.
        trials: whose work is shared.
        plan: makes the memory plan of a schedule under bounds.
        budget: device bytes; graphs that cannot keep to it are not planned.
    """

    def __init__(
        self,
        rest: Sequence[Pass],
        bounds: Point,
        trials: Trials,
        plan: Planner = plan_memory,
        budget: int | None = None,
    ) -> None:
        self._rest, self._bounds, self._trials = tuple(rest), bounds, trials
        self._plan, self._budget = plan, budget
        self._key = (self._rest, tuple(bounds.items()), trials, plan, budget)
        self._known: WeakKeyDictionary[Pdg, Forecast | str] = WeakKeyDictionary()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Forecasts) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Forecasts, (self._rest, self._bounds, self._trials, self._plan, self._budget)

    def __call__(self, pdg: Pdg) -> Forecast | str:
        """What a graph would cost, or why that is not known."""
        if pdg not in self._known:
            self._known[pdg] = self._forecast(pdg)
        return self._known[pdg]

    def _forecast(self, pdg: Pdg) -> Forecast | str:
        for one in self._rest:
            pdg = self._trials.run(one, pdg).pdg
        if self._budget is not None:
            needed = lower_bound(Statements.of(pdg), self._bounds)
            if needed > self._budget:
                return f"it needs at least {needed:,} bytes at once"
        try:
            constraints, tree = self._trials.scheduled(pdg)
        except CeilingError as error:
            return error.what
        except ScheduleError:
            return "no order of execution exists"
        count = sum(most_points(tree, self._bounds).values())
        if count <= ENOUGH_POINTS:
            return self._exact(constraints, tree, self._bounds)
        along = [at for loops in tree.loops().values() for loop, at in loops if loop == 0]
        outer = {d for at in along for d in tree.dims.ordered(at.symbols)}
        name = tree.dims[outer.pop()].bound if len(outer) == 1 else ""
        whole = self._bounds.get(name, 0)
        turns = max(FEWEST_TURNS, whole * ENOUGH_POINTS // count)
        if turns >= whole and count <= MOST_POINTS:
            return self._exact(constraints, tree, self._bounds)
        if count * turns > MOST_POINTS * whole:
            return f"{count:,} points are too many for a trial"
        few, more = (
            self._exact(constraints, tree, {**self._bounds, name: n}) for n in (turns // 2, turns)
        )
        further = (whole - turns) / (turns - turns // 2)
        return Forecast(
            round(more.peak + further * (more.peak - few.peak)),
            round(more.launches + further * (more.launches - few.launches)),
            more.seconds + further * (more.seconds - few.seconds),
            round(more.swapped + further * (more.swapped - few.swapped)),
            more.beside,
            round(more.buffers + further * (more.buffers - few.buffers)),
        )

    def _exact(self, constraints: Constraints, tree: ScheduleTree, bounds: Point) -> Forecast:
        plan = self._plan(constraints, tree, bounds)
        sizes = Sizes(constraints.pdg, bounds)
        counts = plan.counts
        seconds = sum(
            count * point_seconds(sizes, constraints.statements.ops[name])
            for name, count in counts.items()
        )
        away = sum(s.away.turns * plan.unit(t) for s in plan.swaps.all for t in s.tensors)
        swapped = 2 * away  # there and back
        seconds += swapped / HOST
        launches = sum(counts.values())
        return Forecast(plan.peak, launches, seconds, swapped, plan.beside, plan.buffers)
