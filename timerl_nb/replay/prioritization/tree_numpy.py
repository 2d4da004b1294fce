"""A sum tree's work by NumPy: level by level, all entries of a batch at once."""

from __future__ import annotations

import numpy as np

from timerl_nb.base.array_conversion import Array


def change(
    sums: Array,
    least: Array,
    starts: Array,
    shift: int,
    capacity: int,
    most: float,
    index: Array,
    values: Array,
) -> int:
    """Give leaves their priorities, and make what lies above them anew; the last counts of one that is named twice.

    Returns the first place whose index is no leaf's, or whose value no priority, and changes nothing then; −1 where there is none.
    """
    right = (index >= 0) & (index < capacity) & (values >= 0) & (values <= most)
    if not right.all():
        return int(np.argmin(right))
    sums[index] = values
    least[index] = np.where(values > 0, values, np.inf)
    _refresh(sums, least, starts, shift, index)
    return -1


def descend(sums: Array, starts: Array, shift: int, targets: Array) -> Array:
    """The leaves in which these shares of the whole lie, i64[count]."""
    fanout = 1 << shift
    found = np.zeros(len(targets), np.int64)
    left = targets.astype(np.float64)
    for level in range(len(starts) - 3, -1, -1):
        part = sums[starts[level] + (found[:, None] << shift) + np.arange(fanout)]
        ahead = np.cumsum(part, axis=1)
        child = (ahead <= left[:, None]).sum(axis=1)
        # a sum that was rounded up leads beyond the last child that has any
        last = fanout - 1 - np.argmax(part[:, ::-1] > 0, axis=1)
        child = np.where(child == fanout, last, child)
        before = np.take_along_axis(ahead, np.maximum(child - 1, 0)[:, None], axis=1)[:, 0]
        left = left - np.where(child > 0, before, 0.0)
        found = (found << shift) + child
    return found


def _refresh(sums: Array, least: Array, starts: Array, shift: int, index: Array) -> None:
    """Make all that lies above these leaves anew, f64[levels]: sums of each two, of each two of these, and so on."""
    fanout = 1 << shift
    groups = index
    for level in range(len(starts) - 2):
        groups = np.unique(groups >> shift)
        at = starts[level] + (groups[:, None] << shift) + np.arange(fanout)
        part = sums[at]
        while part.shape[1] > 1:
            part = part[:, 0::2] + part[:, 1::2]
        above = starts[level + 1] + groups
        sums[above] = part[:, 0]
        least[above] = least[at].min(axis=1)
