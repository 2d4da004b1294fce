"""Ring sizes such that no two simultaneously live values share a slot.

`ring` tries sizes in ascending order. `have_disjoint_slots` proves or rejects a size: it sorts all values by slot
and birth, and compares neighbours. A live range is half-open. So the next value in a slot is born,
at the earliest, at the time of the previous one's release. A size is the smallest one unless there
are many values (`_WORK`). Both stores and buffers use these sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.memory.liveness.slot_live_ranges import LiveRanges

# Number of ring sizes to try before computing a size that is certainly large enough.
_TRIES = 8
# Number of values to check in total for sizes below that one.
_WORK = 1 << 23


@dataclass(frozen=True)
class Axis:
    """Slots along one coordinate: `size` slots, starting at coordinate `first`.

    Attributes:
        coordinate: the position of the coordinate.
        size: the number of slots.
        first: the coordinate of the first slot.
        ring: whether coordinates beyond the last slot start again at the first one.
        prologue: the number of leading slots of a ring that hold one coordinate each; only the others
            are reused.
    """

    coordinate: int
    size: int
    first: int = 0
    ring: bool = True
    prologue: int = 0

    @property
    def turns(self) -> int:
        """Number of slots that are reused."""
        return self.size - self.prologue

    def place(self, coordinate: Any) -> Any:
        """Return the slot of a coordinate, or of an array of coordinates."""
        at = coordinate - self.first
        if not self.ring:
            return at
        if self.prologue:
            beyond = at - self.prologue
            return at - (beyond >= 0) * (beyond // self.turns * self.turns)
        return 0 if self.size == 1 else at % self.size

    def has_slot(self, coordinate: Any) -> Any:
        """Return whether a coordinate, or each of an array, has a slot."""
        at = coordinate - self.first
        if not self.ring:
            return (at >= 0) & (at < self.size)
        return at >= 0 if self.prologue else True


def fit(
    ranges: LiveRanges, along: Sequence[int], moving: Mapping[int, int] | None = None
) -> tuple[Axis, ...]:
    """Return a small box of slots along some coordinates without collisions of live values.

    Args:
        ranges: the live ranges.
        along: the positions of the coordinates.
        moving: per coordinate, the first value with shorter live ranges due to swaps.
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
    """Return an axis with one slot per coordinate below `since`, and a short ring from it on."""
    there = ranges.coordinates[:, box.coordinate] >= since
    if not there.any():
        return None
    few = LiveRanges(ranges.coordinates[there], ranges.born[there], ranges.last[there])
    turns, prologue = ring(few, others, box.coordinate), since - box.first
    found = turns and Axis(box.coordinate, prologue + turns.size, box.first, prologue=prologue)
    return found if found and have_disjoint_slots([*others, found], [ranges]) else None


def ring(
    ranges: LiveRanges,
    others: Sequence[Axis],
    along: int,
    longest: int | None = None,
    tries: int = _TRIES,
) -> Axis | None:
    """Return a short ring along a coordinate without collisions of live values, or None.

    It is the shortest one unless there are many values (`_WORK`).

    Args:
        ranges: the live ranges.
        others: the slots along other coordinates.
        along: the position of the coordinate.
        longest: the greatest size to return; by default one less than the number of coordinates.
        tries: the number of sizes to try before computing a sufficient one.
    """
    least = -(-ranges.most_at_once // prod(axis.size for axis in others))
    if longest is None:
        longest = int(np.ptp(ranges.coordinates[:, along]))

    def is_large_enough(size: int) -> bool:
        axes = [*others, Axis(along, size)]
        return have_disjoint_slots(axes, [ranges.earliest]) and have_disjoint_slots(axes, [ranges])

    sizes = range(least, min(longest, least + tries - 1) + 1)
    found = next(filter(is_large_enough, sizes), None)
    if found is None and least + tries <= longest:
        enough = _reach(ranges, others, along)
        if enough <= longest:
            # With many values each check takes long, so few sizes are checked before the sufficient
            # one.
            few = least + tries + max(tries, _WORK // len(ranges.born))
            sizes = (*range(least + tries, min(few, enough)), enough)
            found = next(filter(is_large_enough, sizes), None)
    return None if found is None else Axis(along, found)


def _reach(ranges: LiveRanges, others: Sequence[Axis], along: int) -> int:
    """Return a sufficient ring size.

    It exceeds the distance between coordinates of any simultaneously live values with the same
    other slots.
    """
    # Times of different slots are made distinct. Only times at which a range begins or ends count.
    place = _places(others, ranges)
    begins = place * ranges.length + ranges.born
    ends = np.maximum(place * ranges.length + ranges.last, begins + 1)
    times, both = np.unique(np.concatenate([begins, ends]), return_inverse=True)
    begin, end = both[: len(begins)], both[len(begins) :]
    at = ranges.coordinates[:, along]
    level = np.floor(np.log2(end - begin)).astype(np.int64)
    top = int(level.max())
    least, most = int(at.min()), int(at.max())
    # low, high: extreme coordinates of the ranges that cover the 2^k times from each time on
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
    """Return the axes extended to contain more values."""
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


def have_disjoint_slots(axes: Sequence[Axis], all_ranges: Sequence[LiveRanges]) -> bool:
    """Return whether no two simultaneously live values share a slot; equal births always collide."""
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
    """Return the slot of each value as one number."""
    code = np.zeros(len(ranges.born), np.int64)
    for axis in axes:
        code = code * axis.size + axis.place(ranges.coordinates[:, axis.coordinate])
    return code


def _by_place(place: Array, count: int) -> Array:
    """Return the order of values by slot, and in the given order within a slot."""
    # NumPy's radix sort needs few passes for 16-bit numbers.
    return np.argsort(place.astype(np.uint16) if count <= 1 << 16 else place, kind="stable")
