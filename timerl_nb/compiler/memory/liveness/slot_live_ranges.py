"""Live ranges of values in slots of a buffer.

A range ends at the last read if the reader may overwrite the slot. This is so for kernels with
donation, and in XLA's programs, since they read before they write. Otherwise operands and results
exist at the same time, and the range ends after the last read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.memory.liveness.value_lifetimes import ValueLiveRanges, series
from timerl_nb.compiler.memory.memory_timeline import Absence

_FIRST = 1 << 11
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class LiveRanges:
    """Live ranges of values.

    Attributes:
        coordinates: the coordinates of each value, one per row.
        born: the time of each value's computation.
        last: the time from which each value's slot is free.
    """

    coordinates: Array
    born: Array
    last: Array

    @classmethod
    def from_values(cls, lives: ValueLiveRanges) -> LiveRanges:
        """Return the ranges of values if their last reader may overwrite the slots."""
        return cls(lives.points, lives.born, lives.last)

    @cached_property
    def earliest(self) -> LiveRanges:
        """The earliest values. A layout with too few slots usually fails for these already."""
        some = np.argsort(self.born, kind="stable")[:_FIRST]
        return LiveRanges(self.coordinates[some], self.born[some], self.last[some])

    @property
    def length(self) -> int:
        """Length of the time range of all live ranges."""
        return int(max(self.last.max(), self.born.max())) + 2

    @cached_property
    def most_at_once(self) -> int:
        """The greatest number of simultaneously live values."""
        return max(1, int(series(self.born, self.last - 1, 1, self.length).max()))


@dataclass(frozen=True)
class Written:
    """Values of a buffer in the order of writing.

    Attributes:
        coordinates: the coordinates of each value, one per row.
        earlier: the number of values written before each time.
    """

    coordinates: Array
    earlier: Array

    @classmethod
    def from_ranges(cls, ranges: Sequence[LiveRanges], end: int) -> Written | None:
        """Return the values written up to time `end`.

        None if several are written at the same time.
        """
        born = np.concatenate([r.born for r in ranges])
        at = np.bincount(born, minlength=end)
        if (at > 1).any():
            return None
        columns = np.concatenate([r.coordinates.T for r in ranges], axis=1)
        return cls(columns[:, np.argsort(born, kind="stable")].T, np.cumsum(at) - at)


def split_at_absences(
    ranges: LiveRanges, codes: Array, away: Sequence[Absence], end: int
) -> LiveRanges:
    """Return the live ranges of swapped values, one per stay on the device.

    Values leave after a statement and return before one, so times are counted in halves.

    Args:
        ranges: the live ranges without swapping.
        codes: the numbers of the values, as in `away`.
        away: the absences.
        end: the end of the run; values with this return time do not return.
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
    # The gaps of a value follow one another, so beginnings and ends in order of time match.
    begun, ended = np.lexsort((begins, whose)), np.lexsort((ends, whose))
    there = begins[begun] < _NEVER
    begun, ended = begun[there], ended[there]
    return LiveRanges(ranges.coordinates[whose[begun]], begins[begun], ends[ended])
