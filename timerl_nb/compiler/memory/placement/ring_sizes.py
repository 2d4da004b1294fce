"""Axes: the fewest places, along a tensor's coordinates, that keep apart what lives at once.

Whoever holds values asks here, from exact live ranges: a size is proved, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.memory.liveness.slot_live_ranges import LiveRanges

# So many sizes of a ring are tried before it is found out which is large enough.
_TRIES = 8
# So many values are looked at for sizes between these and that one.
_WORK = 1 << 23


@dataclass(frozen=True)
class Axis:
    """Places along one coordinate: `size` of them from `first` on, used in turns where `ring`.

    The first `kept` places of a ring have one coordinate each; only those behind are used in turns.
    """

    coordinate: int
    size: int
    first: int = 0
    ring: bool = True
    kept: int = 0

    @property
    def turns(self) -> int:
        """How many places of a ring are used in turns."""
        return self.size - self.kept

    def place(self, coordinate: Any) -> Any:
        """The place of one coordinate, or of many."""
        at = coordinate - self.first
        if not self.ring:
            return at
        if self.kept:
            beyond = at - self.kept
            return at - (beyond >= 0) * (beyond // self.turns * self.turns)
        return 0 if self.size == 1 else at % self.size

    def has_slot(self, coordinate: Any) -> Any:
        """Whether there is a place for a coordinate, or for each of many."""
        at = coordinate - self.first
        if not self.ring:
            return (at >= 0) & (at < self.size)
        return at >= 0 if self.kept else True


def fit(
    ranges: LiveRanges, along: Sequence[int], moving: Mapping[int, int] | None = None
) -> tuple[Axis, ...]:
    """A small box along some coordinates that keeps live values apart.

    Args:
        moving: by coordinate, from which on values are there for less time than those before.
    """
    if not len(ranges.born):
        return tuple(Axis(k, 1) for k in along)
    low = ranges.coordinates.min(axis=0)
    high = ranges.coordinates.max(axis=0)
    axes = [Axis(k, int(high[k] - low[k]) + 1, int(low[k]), ring=False) for k in along]
    for k in reversed(range(len(axes))):
        others = [*axes[:k], *axes[k + 1 :]]
        found = [axes[k], ring(ranges, others, along[k])]
        if moving and along[k] in moving:
            found.append(_partly(ranges, others, axes[k], moving[along[k]]))
        axes[k] = min((axis for axis in found if axis), key=lambda axis: axis.size)
    return tuple(axes)


def _partly(ranges: LiveRanges, others: Sequence[Axis], box: Axis, since: int) -> Axis | None:
    """A place for each coordinate below some, and a short ring for those from it on."""
    there = ranges.coordinates[:, box.coordinate] >= since
    if not there.any():
        return None
    few = LiveRanges(ranges.coordinates[there], ranges.born[there], ranges.last[there])
    turns, kept = ring(few, others, box.coordinate), since - box.first
    found = turns and Axis(box.coordinate, kept + turns.size, box.first, kept=kept)
    return found if found and apart([*others, found], [ranges]) else None


def ring(
    ranges: LiveRanges,
    others: Sequence[Axis],
    along: int,
    longest: int | None = None,
    tries: int = _TRIES,
) -> Axis | None:
    """A short ring along a coordinate that keeps live values apart, beside places along others.

    It is the shortest one where values are few (`_WORK`).

    Args:
        longest: what the ring may have at most; None for less than there are coordinates.
        tries: how many sizes to look at where it is not known that one will do.
    """
    least = -(-ranges.most_at_once // prod(axis.size for axis in others))
    if longest is None:
        longest = int(np.ptp(ranges.coordinates[:, along]))

    def is_large_enough(size: int) -> bool:
        axes = [*others, Axis(along, size)]
        return apart(axes, [ranges.earliest]) and apart(axes, [ranges])

    sizes = range(least, min(longest, least + tries - 1) + 1)
    found = next(filter(is_large_enough, sizes), None)
    if found is None and least + tries <= longest:
        enough = _reach(ranges, others, along)
        if enough <= longest:
            # of many values each size takes long to look at, and that one will do
            few = least + tries + max(tries, _WORK // len(ranges.born))
            sizes = (*range(least + tries, min(few, enough)), enough)
            found = next(filter(is_large_enough, sizes), None)
    return None if found is None else Axis(along, found)


def _reach(ranges: LiveRanges, others: Sequence[Axis], along: int) -> int:
    """From the first to the last coordinate that is there at once, among those of the same other places.

    A ring of so many keeps them apart, but for those of one coordinate.
    """
    # times of different places are different, and only those at which something begins or ends count
    place = _places(others, ranges)
    begins = place * ranges.length + ranges.born
    ends = np.maximum(place * ranges.length + ranges.last, begins + 1)
    times, both = np.unique(np.concatenate([begins, ends]), return_inverse=True)
    begin, end = both[: len(begins)], both[len(begins) :]
    at = ranges.coordinates[:, along]
    level = np.floor(np.log2(end - begin)).astype(np.int64)
    top = int(level.max())
    least, most = int(at.min()), int(at.max())
    # of 2^k times from each on: the smallest and greatest coordinate that is there for all of them
    low, high = np.full(len(times), most), np.full(len(times), least)
    for k in reversed(range(top + 1)):
        step = 1 << k
        if k < top:
            for bound, merge in ((low, np.minimum), (high, np.maximum)):
                wide = bound.copy()
                merge(bound[step:], wide[:-step], out=bound[step:])
        here = level == k
        for start in (begin[here], end[here] - step):
            np.minimum.at(low, start, at[here])
            np.maximum.at(high, start, at[here])
    return max(1, int((high - low).max()) + 1)


def widen_axes(axes: tuple[Axis, ...], new: Sequence[LiveRanges]) -> tuple[Axis, ...]:
    """Axes that have places for more values."""
    found: list[Axis] = []
    for axis in axes:
        low, end = axis.first, axis.first + axis.size
        if not axis.ring:
            for ranges in new:
                if len(ranges.born):
                    along = ranges.coordinates[:, axis.coordinate]
                    low, end = min(low, int(along.min())), max(end, int(along.max()) + 1)
        found.append(replace(axis, size=end - low, first=low))
    return tuple(found)


def apart(axes: Sequence[Axis], all_ranges: Sequence[LiveRanges]) -> bool:
    """Whether no two values of one place live at once; none is born where another is."""
    place = np.concatenate([_places(axes, ranges) for ranges in all_ranges])
    born = np.concatenate([ranges.born for ranges in all_ranges])
    last = np.concatenate([ranges.last for ranges in all_ranges])
    if (born[1:] < born[:-1]).any():
        order = np.argsort(born, kind="stable")
        place, born, last = place[order], born[order], last[order]
    order = _by_place(place, prod(axis.size for axis in axes))
    place, born, last = place[order], born[order], last[order]
    meets = (born[1:] < last[:-1]) | (born[1:] == born[:-1])
    return not bool((meets & (place[1:] == place[:-1])).any())


def _places(axes: Sequence[Axis], ranges: LiveRanges) -> Array:
    """The place of each value as one number."""
    code = np.zeros(len(ranges.born), np.int64)
    for axis in axes:
        code = code * axis.size + axis.place(ranges.coordinates[:, axis.coordinate])
    return code


def _by_place(place: Array, count: int) -> Array:
    """The order of values by their places, of which there are so many, and then as they are given."""
    # NumPy sorts short numbers in one turn for each of their bytes
    return np.argsort(place.astype(np.uint16) if count <= 1 << 16 else place, kind="stable")
