"""The levels of a sum tree, one behind the other in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timerl_nb.base.array_conversion import Array

_LINE = 8  # numbers in a line of a cache


@dataclass(frozen=True)
class Levels:
    """A tree of leaves in groups: the numbers of a level are sums over the groups of the level below.

    Attributes:
        capacity: how many leaves there are.
        fanout: how many make a group, a power of two.
    """

    capacity: int
    fanout: int

    @property
    def shift(self) -> int:
        """By how many bits an index is shorter one level up."""
        return self.fanout.bit_length() - 1

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Of each level, from the leaves up to the root alone; whole groups, but for the root."""
        groups = -(-self.capacity // self.fanout)
        found = [groups * self.fanout]
        while groups > 1:
            groups = -(-groups // self.fanout)
            found.append(groups * self.fanout)
        return (*found, 1)

    @cached_property
    def starts(self) -> Array:
        """Where each level begins, i64[levels + 1]; groups lie in whole lines of a cache, or together in one."""
        lines = [-(-width // _LINE) * _LINE for width in self.widths]
        return np.cumsum([0, *lines]).astype(np.int64)

    def zeros(self, fill: float = 0.0) -> Array:
        """An array for all levels, f64, that begins with a line of the cache."""
        count = int(self.starts[-1])
        held = np.full(count + _LINE, fill)
        skipped = -held.ctypes.data // held.itemsize % _LINE
        return held[skipped : skipped + count]
