"""Sum tree operations as loops for Numba, bitwise equal to `tree_numpy`.

The compiled functions release the interpreter lock.
"""

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
    """Set leaves, and recompute the sums and minima above them.

    Args:
        sums, least: the sums and the smallest positive priorities, all levels in one array.
        starts: the first position of each level, leaves first.
        shift: the binary logarithm of the fan-out.
        capacity: the number of leaves.
        most: the largest permitted value.
        index, values: the leaves and their new values.

    Returns:
        The position of the first invalid leaf or value, in which case nothing has changed; -1 if all are valid.
    """
    for k in range(len(index)):
        if not (0 <= index[k] < capacity and 0 <= values[k] <= most):
            return k
    for k in range(len(index)):
        sums[index[k]] = values[k]
        least[index[k]] = values[k] if values[k] > 0 else np.inf
    fanout = 1 << shift
    groups = index.copy()
    count = len(groups)
    part = np.empty(fanout)
    for level in range(len(starts) - 2):
        base, above = starts[level], starts[level + 1]
        here = (above - base) >> shift
        if here <= count:  # refresh every group once rather than some groups twice
            for k in range(here):
                groups[k] = k << shift
            count = here
        done, before = 0, np.int64(-1)
        for k in range(count):
            group = groups[k] >> shift
            if group == before:
                continue
            before = group
            at = base + (group << shift)
            low = np.inf
            for child in range(fanout):
                low = least[at + child] if least[at + child] < low else low
            # sum each pair while reading it
            width = fanout >> 1
            for child in range(width):
                part[child] = sums[at + 2 * child] + sums[at + 2 * child + 1]
            while width > 1:
                width >>= 1
                for child in range(width):
                    part[child] = part[2 * child] + part[2 * child + 1]
            sums[above + group] = part[0]
            least[above + group] = low
            groups[done] = group
            done += 1
        count = done
    return -1


def descend(sums: Array, starts: Array, shift: int, targets: Array) -> Array:
    """Return for each target the leaf whose interval of cumulative sums contains it."""
    fanout = 1 << shift
    width = min(fanout, 8)
    found = np.zeros(len(targets), np.int64)
    left = targets.copy()
    for level in range(len(starts) - 3, -1, -1):
        for k in range(
            len(found)
        ):  # process one level for all targets, so that their cache misses overlap
            at = starts[level] + (found[k] << shift)
            x, ahead, before, chosen = left[k], 0.0, 0.0, 0
            for first in range(
                0, fanout, width
            ):  # blocks of children without branches: a mispredicted branch costs more than the additions
                for child in range(first, first + width):
                    ahead += sums[at + child]
                    chosen += ahead <= x
                    before = ahead if ahead <= x else before
                if chosen < first + width:
                    break
            if chosen == fanout:  # rounding can lead past the last child with a positive sum
                ahead, chosen = 0.0, 0
                for child in range(fanout):
                    if sums[at + child] > 0:
                        chosen, before = child, ahead
                    ahead += sums[at + child]
            left[k] = x - before
            found[k] = (found[k] << shift) + chosen
    return found
