"""Live ranges: from when until when a place holds each value.

A range ends where the value is read last if that statement may write its place (XLA's programs read
before they write, and so does a kernel that takes an operand over), and behind it if operands and results
are there together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.memory.liveness.value_lifetimes import Lives, series
from timerl_nb.compiler.memory.memory_timeline import Away

_FIRST = 1 << 11
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class LiveRanges:
    """Values: their coordinates, a row each, when each is made, and from when on its place is free."""

    coordinates: Array
    born: Array
    last: Array

    @classmethod
    def from_lives(cls, lives: Lives) -> LiveRanges:
        """Those of values whose places what reads them last may write."""
        return cls(lives.points, lives.born, lives.last)

    @cached_property
    def earliest(self) -> LiveRanges:
        """Those that are there first: most layouts that are too small are so for them."""
        some = np.argsort(self.born, kind="stable")[:_FIRST]
        return LiveRanges(self.coordinates[some], self.born[some], self.last[some])

    @property
    def length(self) -> int:
        """Of the time in which all of them begin and end."""
        return int(max(self.last.max(), self.born.max())) + 2

    @cached_property
    def most_at_once(self) -> int:
        """How many values are there at once."""
        return max(1, int(series(self.born, self.last - 1, 1, self.length).max()))


@dataclass(frozen=True)
class Written:
    """The values of a buffer in the order in which they are written.

    Attributes:
        earlier: how many of them are written ahead of each point of time.
    """

    coordinates: Array
    earlier: Array

    @classmethod
    def from_ranges(cls, ranges: Sequence[LiveRanges], end: int) -> Written | None:
        """The values that a buffer holds until some end; None where some are written at once."""
        born = np.concatenate([r.born for r in ranges])
        at = np.bincount(born, minlength=end)
        if (at > 1).any():
            return None
        columns = np.concatenate([r.coordinates.T for r in ranges], axis=1)
        return cls(columns[:, np.argsort(born, kind="stable")].T, np.cumsum(at) - at)


def while_there(ranges: LiveRanges, codes: Array, away: Sequence[Away], end: int) -> LiveRanges:
    """Values that leave their places in between, once for every time that they are there.

    They leave behind a statement and return ahead of one, so that times are counted in halves.

    Args:
        codes: of the values, as `away` counts them.
        end: of time: what returns then does not.
    """
    used = np.concatenate([gap.used for gap in away])
    back = np.concatenate([gap.back for gap in away])
    order = np.argsort(codes)
    named = np.concatenate([gap.codes for gap in away])
    which = order[np.searchsorted(codes, named, sorter=order)]
    leaves = back > used + 1
    used, back, which = used[leaves], back[leaves], which[leaves]
    for_good = back >= end
    last = 2 * ranges.last
    last[which[for_good]] = _NEVER
    whose = np.concatenate([np.arange(len(codes)), which])
    begins = np.concatenate([2 * ranges.born, np.where(for_good, _NEVER, 2 * back - 1)])
    ends = np.concatenate([last, 2 * used + 1])
    # a value's gaps follow one another, so that both in order of time pair up
    begun, ended = np.lexsort((begins, whose)), np.lexsort((ends, whose))
    there = begins[begun] < _NEVER
    begun, ended = begun[there], ended[there]
    return LiveRanges(ranges.coordinates[whose[begun]], begins[begun], ends[ended])
