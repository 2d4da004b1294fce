"""Birth, last read and end of all values of a lifetime, as ranks of executed points.

Last readers are piecewise quasi-affine, and ranks are looked up in a table. So NumPy evaluates them
for all values in one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.isl.isl_scheduler import Edge
from timerl_nb.compiler.memory.liveness.last_uses import Lifetime
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock
from timerl_nb.compiler.symbolic.array_evaluation import values

# If more times than this lie between values, the values are sorted instead of counted per time.
_SPREAD = 16


@dataclass(frozen=True, eq=False)
class ValueLiveRanges:
    """Live ranges of values.

    Attributes:
        points: the coordinates of each value, one per row.
        born: the time of each value's computation.
        dies: the last time at which each value is live.
        last: the time of the last read. It equals `dies`, or follows it if another value reuses the
            memory.
    """

    points: Array
    born: Array
    dies: Array
    last: Array

    @cached_property
    def most_at_once(self) -> int:
        """The greatest number of simultaneously live values."""
        if not len(self.born):
            return 0
        end = int(self.born.max()) + 1
        if end < _SPREAD * len(self.born):
            return int(series(self.born, self.dies, 1, end).max())
        # The maximum occurs at a birth: births so far, minus earlier ends.
        born, dies = np.sort(self.born), np.sort(self.dies)
        return int((np.arange(1, len(born) + 1) - np.searchsorted(dies, born)).max())


def value_live_ranges(clock: Clock, life: Lifetime) -> ValueLiveRanges:
    """Return the live ranges of a lifetime, cached for plans with equal lifetimes."""
    # A donated value is no longer counted when the outputs are.
    ends = (*((e, 0) for e in life.frees), *((e, 1) for e in life.taken))
    key = life.producer, life.domain, tuple((e.sink, early, *e.pairs.pieces) for e, early in ends)
    known = clock.found.get(key)
    if known is None:
        known = clock.found[key] = _compute_live_ranges(clock, life, ends)
    return known


def _compute_live_ranges(
    clock: Clock, life: Lifetime, ends: Sequence[tuple[Edge, int]]
) -> ValueLiveRanges:
    points, born = _births(clock, life)
    count, end = len(points), len(clock)
    dies, last = np.full(count, end, np.int64), np.full(count, end, np.int64)
    env = clock.env(life.domain, points)
    for edge, early in ends:
        for where, reader in edge.pairs.pieces:
            here = np.broadcast_to(clock.evaluate_condition(where, env), count)
            if not here.any():
                continue
            at = [values(e, env) for e in reader]
            if not here.all():
                at = [np.broadcast_to(one, count)[here] for one in at]
            last[here] = clock.rank_at(edge.sink, at, int(here.sum()))
            dies[here] = last[here] - early
    return ValueLiveRanges(points, born, dies, last)


def _births(clock: Clock, life: Lifetime) -> tuple[Array, Array]:
    """Return the values of a lifetime, one per row, and the time of their computation."""
    made, ranks = clock.points[life.producer], clock.ranks[life.producer]
    producer = clock.schedule.statements[life.producer].domain
    if life.domain == producer:
        return made, ranks
    # a value accumulated by several points is born at the first of them
    box = clock.box(life.domain)
    codes = clock.codes(life.domain, made[:, [producer.index(d) for d in life.domain]])
    born = np.full(len(box), len(clock), np.int64)
    np.minimum.at(born, codes, ranks)
    there = born < len(clock)
    return box[there], born[there]


def series(first: Array, last: Array, nbytes: int, length: int) -> Array:
    """Return the sum over time of intervals from `first` to `last`, both included."""
    change = np.zeros(length + 1, np.int64)
    enter(change, first, last, nbytes)
    return np.cumsum(change[:length])


def enter(change: Array, first: Array, last: Array, nbytes: int) -> None:
    """Add intervals from `first` to `last` to the differences of a series.

    Args:
        change: the differences; the last entry lies beyond the series. Modified.
        first, last: the first and last time of each interval.
        nbytes: the amount to add.
    """
    length = len(change) - 1
    np.add.at(change, np.minimum(first, length), nbytes)
    np.add.at(change, np.minimum(last + 1, length), -nbytes)
