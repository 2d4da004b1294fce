"""Stretches of time: when devices were busy, when they were looked at, and which kernel each nanosecond is of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array


@dataclass(frozen=True, eq=False)
class Busy:
    """When devices run something: disjoint, sorted stretches of nanoseconds.

    Attributes:
        begin, end: of each.
        of_which: of each the interval that it is a part of, by its number among those that were given.
    """

    begin: Array
    end: Array
    of_which: Array

    @classmethod
    def from_intervals(cls, begin: Array, end: Array) -> Busy:
        """The union of intervals [begin, end), in any order, of any streams and devices; empty ones are nothing."""
        parts = cls.from_intervals_in_parts(begin, end)
        if not len(parts.begin):
            return parts
        first = np.ones(len(parts.begin), bool)
        first[1:] = parts.begin[1:] > parts.end[:-1]
        last = np.append(np.flatnonzero(first)[1:] - 1, len(first) - 1)
        return cls(parts.begin[first], parts.end[last], parts.of_which[first])

    @classmethod
    def from_intervals_in_parts(cls, begin: Array, end: Array) -> Busy:
        """The same union, in parts that each belong to one interval: the one that began first, of these the first."""
        begin, end = (np.asarray(x, np.int64) for x in (begin, end))
        order = np.argsort(begin, kind="stable")
        begin, reach = begin[order], np.maximum.accumulate(end[order])
        free = np.maximum(begin, np.concatenate([begin[:1], reach[:-1]]))  # of all before it
        some = reach > free
        return cls(free[some], reach[some], order[some])

    def intersect(self, other: Busy) -> Busy:
        """What of it lies in stretches of another."""
        moments = np.concatenate([self.end, other.end, self.begin, other.begin])
        step = np.repeat([-1, 1], len(moments) // 2)
        order = np.argsort(moments, kind="stable")  # at one moment ends are ahead of begins
        moments, depth = moments[order], np.cumsum(step[order])
        both = np.flatnonzero(depth[:-1] == 2)
        begin, end = moments[both], moments[both + 1]
        some = end > begin
        at = np.searchsorted(self.begin, begin[some], side="right") - 1
        return Busy(begin[some], end[some], self.of_which[at])

    @cached_property
    def _busy_before(self) -> Array:
        """The busy nanoseconds before each stretch."""
        return np.concatenate([[0], np.cumsum(self.end - self.begin)])

    def busy_before(self, moments: Array) -> Array:
        """The busy nanoseconds before each of some moments."""
        if not len(self.begin):
            return np.zeros(len(moments), np.int64)
        k = np.searchsorted(self.begin, moments, side="right") - 1
        at = np.maximum(k, 0)
        part = np.clip(moments - self.begin[at], 0, self.end[at] - self.begin[at])
        return np.where(k < 0, 0, self._busy_before[at] + part)


NEVER: Final = Busy.from_intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
