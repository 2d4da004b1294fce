"""A sum tree's work in loops, as Numba compiles them; they make the same bits as `tree_arrays`.

All release the interpreter's lock. Without Numba they are not called.
"""

from __future__ import annotations

import numpy as np

from timerl_nb.arrays import Array


def write(sums: Array, least: Array, index: Array, values: Array) -> None:
    for k in range(len(index)):
        sums[index[k]] = values[k]
        least[index[k]] = values[k] if values[k] > 0 else np.inf


def refresh(sums: Array, least: Array, starts: Array, shift: int, index: Array) -> None:
    fanout = 1 << shift
    groups = index.copy()
    count = len(groups)
    part = np.empty(fanout)
    for level in range(len(starts) - 2):
        base, above = starts[level], starts[level + 1]
        here = (above - base) >> shift
        if here <= count:  # every group, rather than some of them twice
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
                part[child] = sums[at + child]
                low = min(low, least[at + child])
            width = fanout
            while width > 1:
                width >>= 1
                for child in range(width):
                    part[child] = part[2 * child] + part[2 * child + 1]
            sums[above + group] = part[0]
            least[above + group] = low
            groups[done] = group
            done += 1
        count = done


def descend(sums: Array, starts: Array, shift: int, targets: Array) -> Array:
    fanout = 1 << shift
    found = np.zeros(len(targets), np.int64)
    left = targets.copy()
    for level in range(len(starts) - 3, -1, -1):
        for k in range(len(found)):  # one level of all: their misses of the cache overlap
            at = starts[level] + (found[k] << shift)
            x, ahead, chosen = left[k], 0.0, -1
            last, before = 0, 0.0
            for child in range(fanout):
                one = sums[at + child]
                if x < ahead + one:
                    chosen = child
                    break
                if one > 0:
                    last, before = child, ahead
                ahead += one
            if chosen < 0:
                chosen, ahead = last, before
            left[k] = x - ahead
            found[k] = (found[k] << shift) + chosen
    return found


def first_wrong(index: Array, values: Array, capacity: int, most: float) -> int:
    for k in range(len(index)):
        if not (0 <= index[k] < capacity and 0 <= values[k] <= most):
            return k
    return -1
