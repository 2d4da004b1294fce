"""Executed points and live values of a long run, computed on demand from two short runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.memory.liveness.value_lifetimes import ValueLiveRanges
from timerl_nb.compiler.memory.steady_state.extrapolated_timeline import Runs, each
from timerl_nb.compiler.memory.steady_state.period_detection import Fold, turns_along
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock
from timerl_nb.compiler.symbolic.array_evaluation import values


def turns(fold: Fold, clock: Clock) -> Array:
    """Return the iteration of the repeated loop for every rank; -1 outside the loop."""
    found = np.full(len(clock), -1)
    for name, (at,) in turns_along(fold.dim, clock.schedule, inner=fold.inner).items():
        domain = clock.schedule.statements[name].domain
        found[clock.ranks[name]] = values(at, clock.env(domain, clock.points[name]))
    return found


def is_in_periods(at: Array, fold: Fold, periods: int) -> Array:
    """Return which iterations belong to the first `periods` repeated periods."""
    return (at >= fold.first) & (at < fold.first + periods * fold.period)


@dataclass(frozen=True, eq=False)
class FoldedPoints:
    """Executed points of a long run, and the live values at some time.

    Attributes:
        fold: the period.
        small: the order of the smaller short run.
        runs: the positions of the repeated periods in it.
    """

    fold: Fold
    small: Clock
    runs: Runs

    def points_with_fixed(self, name: str, fixed: Point) -> tuple[Array, Array]:
        """Return a statement's points with some coordinates fixed, and their times."""
        fold, domain = self.fold, self.small.schedule.statements[name].domain
        rows, ranks = self.small.points[name], self.small.ranks[name]
        here = np.ones(len(rows), bool)
        for d in fixed.keys() - {fold.dim.name}:
            here &= rows[:, domain.index(d)] == fixed[d]
        rows, ranks = rows[here], ranks[here]
        times, length, last = self.runs.copies(ranks)
        first = np.zeros_like(last)
        behind = self._turns[ranks] >= fold.first + fold.period
        moved = np.where(behind, fold.repeats * fold.period, 0)
        if fold.dim.name in fixed:
            at = rows[:, domain.index(fold.dim.name)] + moved
            first, rest = np.divmod(fixed[fold.dim.name] - at, fold.period)
            last = np.where((rest == 0) & (first >= 0) & (first <= last), first, first - 1)
        which, gone = each(first, last)
        rows = rows[which]
        if fold.dim.name in domain:
            rows[:, domain.index(fold.dim.name)] += moved[which] + gone * fold.period
        return rows, times[which] + gone * length[which]

    @cached_property
    def _turns(self) -> Array:
        return turns(self.fold, self.small)

    def statements(self, times: Array) -> Array:
        """Return the numbers of the statements that run at some times; -1 after the last time."""
        who = np.full(len(self.small) + 1, -1, np.int32)
        for k, ranks in enumerate(self.small.ranks.values()):
            who[ranks] = k
        return who[self.runs.locate(times)[0]]

    def birth_runs(self, small: ValueLiveRanges) -> Runs:
        """Return the repeated positions in the order of birth of a lifetime's values.

        Args:
            small: the live ranges in the smaller run.
        """
        ends = np.stack([self.runs.starts, self.runs.starts + self.runs.lengths])
        first, behind = np.searchsorted(np.sort(small.born), ends)
        some = behind > first
        return Runs(first[some], (behind - first)[some], self.runs.repeats)

    def live_ranges_between(
        self,
        small: ValueLiveRanges,
        large: ValueLiveRanges,
        first: int,
        last: int,
        *,
        few: int | None = None,
    ) -> ValueLiveRanges:
        """Return the values of the long run that are live between two times, in order of birth.

        Args:
            small, large: the live ranges in the short runs.
            first, last: the two times, both included.
            few: a number of values. If more are live, the result omits most of those that are born
                before `first` and live to the end of the run. An older value of the same kind
                represents them.
        """
        one, other = (np.argsort(lives.born, kind="stable") for lives in (small, large))
        places, runs = np.arange(len(one)), self.birth_runs(small)
        order, length, most = runs.copies(places)
        there = places + runs.added_lengths(places)

        def line(name: str) -> tuple[Array, Array]:
            """Return the numbers of the first values, and the increment from copy to copy."""
            mine, more = getattr(small, name)[one], getattr(large, name)[other]
            return mine + runs.repeats * (more[there] - mine), more[there + length] - more[there]

        (born, later), (dies, longer) = line("born"), line("dies")
        at_most = np.minimum((last - born) // np.maximum(later, 1), most)
        at_most = np.where(born <= last, at_most, -1)
        at_least = np.maximum(-((dies - first) // np.maximum(longer, 1)), 0)
        at_least = np.where((longer == 0) & (dies < first), most + 1, at_least)
        heads = at_most
        if few is not None and np.maximum(at_most - at_least + 1, 0).sum() > few:
            heads = np.minimum(at_most, at_least)
        since = np.where(longer == 0, -((born - first) // np.maximum(later, 1)), 0)
        parts = each(at_least, heads), each(np.maximum(heads + 1, since), at_most)
        which, gone = (np.concatenate(both) for both in zip(*parts, strict=True))

        sort = np.argsort(order[which] + gone * length[which])

        def number(name: str) -> Array:
            start, step = line(name)
            behind = gone.reshape(-1, *[1] * (start.ndim - 1))
            return (start[which] + behind * step[which])[sort]

        return ValueLiveRanges(*map(number, ("points", "born", "dies", "last")))
