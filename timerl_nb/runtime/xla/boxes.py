"""Boxes: the fewest places, along a tensor's coordinates, that keep apart what is there at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from timerl_nb.memory.lives import series
from timerl_nb.memory.stores import by_place
from timerl_nb.memory.timeline import Away

Array = np.ndarray[Any, np.dtype[Any]]

# Boxes of point maps: so many sizes are tried along each dimension.
_TRIES = 8
_FIRST = 1 << 11
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Axis:
    """Places along one coordinate: `size` of them from `first` on, used in turns where `ring`."""

    coordinate: int
    size: int
    first: int
    ring: bool


@dataclass(frozen=True)
class Guests:
    """Values in a buffer: their coordinates, a row each, and when each is made and read last."""

    coordinates: Array
    born: Array
    last: Array


@dataclass(frozen=True)
class Written:
    """The values of a buffer in the order in which they are written.

    Attributes:
        earlier: how many of them are written ahead of each point of time.
    """

    coordinates: Array
    earlier: Array

    @classmethod
    def of(cls, guests: Sequence[Guests], end: int) -> Written | None:
        """The values that a buffer holds until some end; None where some are written at once."""
        born = np.concatenate([g.born for g in guests])
        at = np.bincount(born, minlength=end)
        if (at > 1).any():
            return None
        columns = np.concatenate([g.coordinates.T for g in guests], axis=1)
        return cls(columns[:, np.argsort(born, kind="stable")].T, np.cumsum(at) - at)


def widened(axes: tuple[Axis, ...], new: Sequence[Guests]) -> tuple[Axis, ...]:
    """Axes that have places for more values."""
    found: list[Axis] = []
    for axis in axes:
        low, end = axis.first, axis.first + axis.size
        if not axis.ring:
            for guests in new:
                if len(guests.born):
                    along = guests.coordinates[:, axis.coordinate]
                    low, end = min(low, int(along.min())), max(end, int(along.max()) + 1)
        found.append(Axis(axis.coordinate, end - low, low, axis.ring))
    return tuple(found)


def box(guests: Guests, along: Sequence[int]) -> tuple[Axis, ...]:
    """A small box along some coordinates that keeps live values apart."""
    if not len(guests.born):
        return tuple(Axis(k, 1, 0, True) for k in along)
    low = guests.coordinates.min(axis=0)
    high = guests.coordinates.max(axis=0)
    axes = [Axis(k, int(high[k] - low[k]) + 1, int(low[k]), False) for k in along]
    most, first = _most_at_once(guests), _first(guests)
    for k in reversed(range(len(axes))):
        for size in range(1, min(axes[k].size, _TRIES + 1)):
            smaller = [*axes[:k], Axis(along[k], size, 0, True), *axes[k + 1 :]]
            if prod(axis.size for axis in smaller) >= most and all(
                apart(smaller, [some]) for some in (first, guests)
            ):
                axes = smaller
                break
    return tuple(axes)


def _first(guests: Guests) -> Guests:
    """Those that are there first: most boxes that are too small are so for them."""
    some = np.argsort(guests.born, kind="stable")[:_FIRST]
    return Guests(guests.coordinates[some], guests.born[some], guests.last[some])


def _most_at_once(guests: Guests) -> int:
    """How many values are there at once, one that is born as another is read last not counted."""
    end = int(max(guests.last.max(), guests.born.max())) + 2
    return max(1, int(series(guests.born, guests.last - 1, 1, end).max()))


def apart(axes: Sequence[Axis], all_guests: Sequence[Guests]) -> bool:
    """Whether no two values of one place live at once.

    A value may be born where another is read for the last time: a kernel reads before it writes.
    """
    place = np.concatenate([_codes(axes, guests) for guests in all_guests])
    born = np.concatenate([guests.born for guests in all_guests])
    last = np.concatenate([guests.last for guests in all_guests])
    if (born[1:] < born[:-1]).any():
        order = np.argsort(born, kind="stable")
        place, born, last = place[order], born[order], last[order]
    order = by_place(place, prod(axis.size for axis in axes))
    place, born, last = place[order], born[order], last[order]
    meets = (born[1:] < last[:-1]) | (born[1:] == born[:-1])
    return not bool((meets & (place[1:] == place[:-1])).any())


def _codes(axes: Sequence[Axis], guests: Guests) -> Array:
    """The place of each value as one number; the rows of a block are one place."""
    code = np.zeros(len(guests.born), np.int64)
    for axis in axes:
        along = guests.coordinates[:, axis.coordinate] - axis.first
        code = code * axis.size + (along % axis.size if axis.ring else along)
    return code


def while_there(guests: Guests, codes: Array, away: Sequence[Away], end: int) -> Guests:
    """Values that leave their places in between, once for every time that they are there.

    They leave behind a statement and return ahead of one, so that times are counted in halves.

    Args:
        codes: of the guests, as `away` counts them.
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
    last = 2 * guests.last
    last[which[for_good]] = _NEVER
    whose = np.concatenate([np.arange(len(codes)), which])
    begins = np.concatenate([2 * guests.born, np.where(for_good, _NEVER, 2 * back - 1)])
    ends = np.concatenate([last, 2 * used + 1])
    # a value's gaps follow one another, so that both in order of time pair up
    begun, ended = np.lexsort((begins, whose)), np.lexsort((ends, whose))
    there = begins[begun] < _NEVER
    begun, ended = begun[there], ended[there]
    return Guests(guests.coordinates[whose[begun]], begins[begun], ends[ended])
