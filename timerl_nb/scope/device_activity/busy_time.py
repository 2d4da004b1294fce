"""Sets of time intervals, such as busy time of devices or traced time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array


@dataclass(frozen=True, eq=False)
class Busy:
    """Disjoint, sorted time intervals in nanoseconds.

    Attributes:
        begin, end: bounds of each interval.
        of_which: index of the input interval of each part.

    Example:
        >>> busy = trl.scope.Busy.from_intervals(np.array([0, 2, 10]), np.array([5, 6, 12]))
        >>> busy.busy_before(np.array([20])).tolist()
        [8]
    """

    begin: Array
    end: Array
    of_which: Array

    @classmethod
    def from_intervals(cls, begin: Array, end: Array) -> Busy:
        """Return the union of intervals [begin, end) in any order; empty intervals are ignored.

        Args:
            begin, end: bounds of each interval, in nanoseconds.
        """
        parts = cls.from_intervals_in_parts(begin, end)
        if not len(parts.begin):
            return parts
        first = np.ones(len(parts.begin), bool)
        first[1:] = parts.begin[1:] > parts.end[:-1]
        last = np.append(np.flatnonzero(first)[1:] - 1, len(first) - 1)
        return cls(parts.begin[first], parts.end[last], parts.of_which[first])

    @classmethod
    def from_intervals_in_parts(cls, begin: Array, end: Array) -> Busy:
        """Return the union in parts; an overlap belongs to the interval with the earliest start.

        Args:
            begin, end: bounds of each interval, in nanoseconds.
        """
        begin, end = (np.asarray(x, np.int64) for x in (begin, end))
        order = np.argsort(begin, kind="stable")
        begin, reach = begin[order], np.maximum.accumulate(end[order])
        # start of the part after all earlier intervals
        free = np.maximum(begin, np.concatenate([begin[:1], reach[:-1]]))
        some = reach > free
        return cls(free[some], reach[some], order[some])

    def intersect(self, other: Busy) -> Busy:
        """Return the intersection with other intervals.

        Args:
            other: the other intervals.
        """
        moments = np.concatenate([self.end, other.end, self.begin, other.begin])
        step = np.repeat([-1, 1], len(moments) // 2)
        order = np.argsort(moments, kind="stable")  # at equal times, ends come before begins
        moments, depth = moments[order], np.cumsum(step[order])
        both = np.flatnonzero(depth[:-1] == 2)
        begin, end = moments[both], moments[both + 1]
        some = end > begin
        at = np.searchsorted(self.begin, begin[some], side="right") - 1
        return Busy(begin[some], end[some], self.of_which[at])

    @cached_property
    def _busy_before(self) -> Array:
        """Busy nanoseconds before each interval."""
        return np.concatenate([[0], np.cumsum(self.end - self.begin)])

    def busy_before(self, moments: Array) -> Array:
        """Return the busy nanoseconds before each moment.

        Args:
            moments: times in nanoseconds.
        """
        if not len(self.begin):
            return np.zeros(len(moments), np.int64)
        k = np.searchsorted(self.begin, moments, side="right") - 1
        at = np.maximum(k, 0)
        part = np.clip(moments - self.begin[at], 0, self.end[at] - self.begin[at])
        return np.where(k < 0, 0, self._busy_before[at] + part)


NEVER: Final = Busy.from_intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
