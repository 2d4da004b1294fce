"""The sum tree: entries drawn in proportion to their priorities (003_bc3f8b946743a61e, §4.1).

A parent is recomputed from its children, never changed by a difference, so that the tree is a function
of its leaves alone: no drift, and the same bits whatever came before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array, indices
from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError
from timerl_nb.compiler.language.argument_checks import integer, is_whole, number
from timerl_nb.replay.prioritization.tree_engine import engine_of
from timerl_nb.replay.prioritization.tree_levels import Levels

_F64 = np.dtype(np.float64)
FANOUTS = tuple(2**k for k in range(1, 9))


class SumTree:
    """Priorities of numbered entries, zero at first.

    Args:
        capacity: how many entries there are.
        fanout: how many children a sum has: 2, 4, … 256. Eight are a line of the cache.
        engine: "numba" or "numpy", which make the same bits; by default Numba where it is installed.

    Raises:
        OptionError: no such fan-out or engine.
    """

    def __init__(self, capacity: int, fanout: int = 8, *, engine: str | None = None) -> None:
        capacity = integer("the capacity", capacity, least=1, most=2**40)
        if not is_whole(fanout) or fanout not in FANOUTS:
            raise OptionError(
                f"fanout={fanout!r} is none.", hint=f"one of {', '.join(map(str, FANOUTS))}."
            )
        self.levels = Levels(capacity, int(fanout))
        self._engine = engine_of(engine)
        self._sums = self.levels.zeros()
        self._least = self.levels.zeros(np.inf)
        # the sum of all is finite, whatever they are
        self._most = np.finfo(np.float64).max / self.levels.widths[0]

    @property
    def capacity(self) -> int:
        return self.levels.capacity

    @property
    def fanout(self) -> int:
        return self.levels.fanout

    @property
    def engine(self) -> str:
        return self._engine.name

    @property
    def priorities(self) -> Array:
        """Of all entries, f64[capacity]: a view that cannot be written to."""
        found = self._sums[: self.capacity]
        found.flags.writeable = False
        return found

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._sums[self.levels.starts[-2]])

    @property
    def least_priority(self) -> float:
        """The least priority that is not zero; infinite where there is none."""
        return float(self._least[self.levels.starts[-2]])

    def update(self, index: Any, priority: Any) -> None:
        """Give entries other priorities; of an entry that is named twice, the last counts.

        Args:
            index: i64[count].
            priority: of each, or one for all.

        Raises:
            ShapeError: the index is no list of entries, or a priority negative, NaN or not finite; nothing
                is changed then.
        """
        at = np.array(indices("the index of entries", index)).reshape(-1)
        self._write(at, priority)

    def insert(self, start: int, priority: Any, count: int | None = None) -> None:
        """Give as many entries in a row their priorities, the first again after the last.

        Args:
            start: the first of them.
            priority: f64[count], or one for all `count`.

        Raises:
            ShapeError: an argument does not fit; nothing is changed then.
        """
        values = convert_array("priorities", priority, _F64)
        start = integer("the first entry", start, least=0)
        if start >= self.capacity:
            raise ShapeError(
                f"entry {start:,} is none of {self.capacity:,}.", hint="entries count from 0 on."
            )
        if count is None and not values.ndim:
            raise ShapeError(
                "one priority for several entries needs their count.",
                hint="tree.insert(start, priority, count).",
            )
        many = len(values) if count is None else integer("count", count, least=0)
        at = np.arange(start, start + many)
        self._write(at if start + many <= self.capacity else at % self.capacity, values)

    def _write(self, at: Array, priority: Any) -> None:
        values = convert_array("priorities", priority, _F64)
        if values.shape != at.shape or not values.flags.carray:
            try:
                values = np.array(np.broadcast_to(values, at.shape))
            except ValueError:
                raise ShapeError(
                    f"{len(at)} entries have {list(np.shape(priority))} priorities."
                ) from None
        levels = self.levels
        wrong = self._engine.change(
            self._sums,
            self._least,
            levels.starts,
            levels.shift,
            self.capacity,
            self._most,
            at,
            values,
        )
        if wrong >= 0:
            raise self._refusal(wrong, int(at[wrong]), float(values[wrong]))

    def _refusal(self, place: int, entry: int, value: float) -> ShapeError:
        if not 0 <= entry < self.capacity:
            return ShapeError(
                f"entry {entry} at place {place} is none of {self.capacity:,}.",
                hint=f"entries are numbered 0 to {self.capacity - 1:,}; nothing was changed.",
            )
        return ShapeError(
            f"the priority {value} of entry {entry}, at place {place}, is none.",
            hint=f"priorities are numbers from 0 to {self._most:.3g}; nothing was changed.",
        )

    def check(self, priorities: Array) -> None:
        """Check priorities without a change.

        Raises:
            ShapeError: one is negative, NaN or too great.
        """
        right = (priorities >= 0) & (priorities <= self._most)
        if not right.all():
            wrong = int(np.argmin(right))
            raise self._refusal(wrong, wrong, float(priorities[wrong]))

    def retrieve(self, index: Any) -> Array:
        """The priorities of entries, f64[count].

        Raises:
            ShapeError: there is no such entry.
        """
        at = indices("the index of entries", index)
        if at.size and not (at.min() >= 0 and at.max() < self.capacity):
            wrong = int(at.reshape(-1)[np.argmax((at < 0) | (at >= self.capacity))])
            raise self._refusal(0, wrong, 0.0)
        return self._sums[at]

    def draw(self, count: int, random: np.random.Generator, *, stratified: bool = True) -> Array:
        """Entries, each as often as its share of the whole; none whose priority is zero.

        Args:
            count: how many, perhaps more than there are entries.
            random: where chance comes from.
            stratified: one from each of `count` even parts of the whole, in their order: the same chances, less
                spread. Otherwise each from the whole.

        Returns i64[count].

        Raises:
            ExecutionError: all priorities are zero.
        """
        count = integer("the number of draws", count, least=0)
        total = self.total
        if not total:
            raise ExecutionError(
                "there is nothing to draw: all priorities are zero.", hint="insert entries first."
            )
        shares = random.random(count)
        if stratified:
            shares += np.arange(count)
            shares /= max(count, 1)
        shares *= total
        return self._descend(shares)

    def entries_at(self, shares: Any) -> Array:
        """The entries at these shares of the whole, numbers from 0 to 1."""
        return self._descend(np.array(convert_array("shares", shares, _F64)) * self.total)

    def _descend(self, targets: Array) -> Array:
        return self._engine.descend(self._sums, self.levels.starts, self.levels.shift, targets)

    def path(self, share: float) -> list[tuple[int, list[float], int, float]]:
        """The way of a draw at a share of the whole, from the root's children to a leaf.

        Of each level: the number of the group's first child there, the children's sums, which of them the draw is in, and
        how far it is into the group.
        """
        share = number("the share", share, least=0, most=1)
        (leaf,) = self.entries_at([share]).tolist()
        found: list[tuple[int, list[float], int, float]] = []
        left, starts, shift = share * self.total, self.levels.starts, self.levels.shift
        for level in range(len(starts) - 3, -1, -1):
            child = leaf >> (shift * level)
            first = child >> shift << shift
            here = self._sums[starts[level] + first : starts[level] + first + self.fanout].tolist()
            found.append((first, here, child - first, left))
            left -= sum(here[: child - first])
        return found

    def __repr__(self) -> str:
        return f"SumTree({self.capacity:,} entries, fan-out {self.fanout}, sum {self.total:.6g})"
