"""Sum tree operations in NumPy: level by level, for a whole batch of entries."""

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
    """Set the priorities of leaves, and recompute their ancestors. If an index occurs twice, its last value
    counts.

    Returns:
        -1; or the position of the first invalid index or priority, with nothing changed.
    """
    right = (index >= 0) & (index < capacity) & (values >= 0) & (values <= most)
    if not right.all():
        return int(np.argmin(right))
    sums[index] = values
    least[index] = np.where(values > 0, values, np.inf)
    _refresh(sums, least, starts, shift, index)
    return -1


def descend(sums: Array, starts: Array, shift: int, targets: Array) -> Array:
    """Return the leaves at these cumulative priorities, i64[count]."""
    fanout = 1 << shift
    found = np.zeros(len(targets), np.int64)
    left = targets.astype(np.float64)
    for level in range(len(starts) - 3, -1, -1):
        part = sums[starts[level] + (found[:, None] << shift) + np.arange(fanout)]
        ahead = np.cumsum(part, axis=1)
        child = (ahead <= left[:, None]).sum(axis=1)
        # rounding can lead past the last child with a positive sum
        last = fanout - 1 - np.argmax(part[:, ::-1] > 0, axis=1)
        child = np.where(child == fanout, last, child)
        before = np.take_along_axis(ahead, np.maximum(child - 1, 0)[:, None], axis=1)[:, 0]
        left = left - np.where(child > 0, before, 0.0)
        found = (found << shift) + child
    return found


def _refresh(sums: Array, least: Array, starts: Array, shift: int, index: Array) -> None:
    """Recompute the ancestors of some leaves. Sums are pairwise: first of each two children, then of each two
    results.
    """
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
