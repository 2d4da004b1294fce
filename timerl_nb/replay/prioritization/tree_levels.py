"""Memory layout of a sum tree: all levels in one array, aligned to cache lines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timerl_nb.base.array_conversion import Array

_LINE = 8  # numbers of 64 bits per cache line


@dataclass(frozen=True)
class Levels:
    """Layout of a tree: each number of a level is the sum of one group of the level below.

    Attributes:
        capacity: the number of leaves.
        fanout: the number of children per group, a power of two.
    """

    capacity: int
    fanout: int

    @property
    def shift(self) -> int:
        """The number of bits by which an index shrinks per level."""
        return self.fanout.bit_length() - 1

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The number of nodes per level, from the leaves to the root. All levels except the root have whole
        groups.
        """
        groups = -(-self.capacity // self.fanout)
        found = [groups * self.fanout]
        while groups > 1:
            groups = -(-groups // self.fanout)
            found.append(groups * self.fanout)
        return (*found, 1)

    @cached_property
    def starts(self) -> Array:
        """The offset of each level, i64[levels + 1]. Every level starts at a cache line."""
        lines = [-(-width // _LINE) * _LINE for width in self.widths]
        return np.cumsum([0, *lines]).astype(np.int64)

    def zeros(self, fill: float = 0.0) -> Array:
        """Return an array for all levels, f64, aligned to a cache line."""
        count = int(self.starts[-1])
        held = np.full(count + _LINE, fill)
        skipped = -held.ctypes.data // held.itemsize % _LINE
        return held[skipped : skipped + count]
