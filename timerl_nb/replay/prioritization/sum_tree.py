"""Sum tree: draws entries in proportion to their priorities. Source: PEARL §4.1.

Every update recomputes a parent from its children. Inner nodes are therefore a function of the leaves:
rounding errors do not accumulate, and results are bitwise reproducible.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array, indices
from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError
from timerl_nb.compiler.language.argument_checks import integer, is_whole, number
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.replay.prioritization.tree_engine import engine_of
from timerl_nb.replay.prioritization.tree_levels import Levels

_F64 = np.dtype(np.float64)
FANOUTS = tuple(2**k for k in range(1, 9))


@explain_constructor
class SumTree:
    """Sum tree over numbered entries; all priorities are zero at first.

    Args:
        capacity: the number of entries.
        fanout: the number of children per node: 2, 4, …, 256. Eight 64-bit sums fill one cache line.
        engine: "c", "numba" or "numpy", with bitwise equal results. By default the first of these that is
            installed.

    Raises:
        OptionError: the fan-out or the engine is unknown, or the engine is not installed.

    Example:
        >>> tree = trl.replay.SumTree(4)
        >>> tree.update([0, 3], [1.0, 3.0])
        >>> tree.total
        4.0
        >>> sorted(set(tree.draw(100, np.random.default_rng(0)).tolist()))
        [0, 3]
    """

    def __init__(self, capacity: int, fanout: int = 8, *, engine: str | None = None) -> None:
        capacity = integer("the capacity", capacity, least=1, most=2**40)
        if not is_whole(fanout) or fanout not in FANOUTS:
            raise OptionError(
                f"fanout={fanout!r} is not supported.",
                hint=f"choose one of {', '.join(map(str, FANOUTS))}.",
            )
        self.levels = Levels(capacity, int(fanout))
        self._engine = engine_of(engine)
        self._sums = self.levels.zeros()
        self._least = self.levels.zeros(np.inf)
        # keeps the sum of all priorities finite
        self._most = np.finfo(np.float64).max / self.levels.widths[0]
        # leading arguments of the engine's functions
        shift, most = self.levels.shift, float(self._most)
        self.arguments = self._sums, self._least, self.levels.starts, shift, capacity, most

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
        """The priorities of all entries, f64[capacity]: a read-only view."""
        found = self._sums[: self.capacity]
        found.flags.writeable = False
        return found

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._sums[self.levels.starts[-2]])

    @property
    def least_priority(self) -> float:
        """The smallest positive priority; infinite if there is none."""
        return float(self._least[self.levels.starts[-2]])

    def update(self, index: Any, priority: Any) -> None:
        """Set the priorities of some entries. If an index occurs twice, its last priority counts.

        Args:
            index: the entries, i64[count].
            priority: f64[count], or one number for all.

        Raises:
            ShapeError: an index is out of range, or a priority is negative, NaN or too great; nothing
                changes.
        """
        at = np.array(indices("the index of entries", index)).reshape(-1)
        self._write(at, priority)

    def insert(self, start: int, priority: Any, count: int | None = None) -> None:
        """Set the priorities of consecutive entries; entry 0 follows the last entry.

        Args:
            start: the first entry.
            priority: f64[count], or one number for all `count` entries.
            count: the number of entries; by default the number of priorities.

        Raises:
            ShapeError: an argument is out of range; nothing changes.
        """
        values = convert_array("priorities", priority, _F64)
        start = integer("the first entry", start, least=0)
        if start >= self.capacity:
            raise ShapeError(
                f"entry {start:,} is out of range for {self.capacity:,} entries.",
                hint="entries are numbered from 0.",
            )
        if count is None and not values.ndim:
            raise ShapeError(
                "a single priority needs a count of entries.",
                hint="call tree.insert(start, priority, count).",
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
                    f"priorities of the shape {list(np.shape(priority))} do not match {len(at)} entries.",
                    hint="pass one priority per entry, or one number for all.",
                ) from None
        wrong = self._engine.change(*self.arguments, at, values)
        if wrong >= 0:
            raise self._refusal(wrong, int(at[wrong]), float(values[wrong]))

    def _refusal(self, place: int, entry: int, value: float) -> ShapeError:
        if not 0 <= entry < self.capacity:
            return ShapeError(
                f"entry {entry} at index {place} is out of range for {self.capacity:,} entries.",
                hint=f"choose entries from 0 to {self.capacity - 1:,}. Nothing has changed.",
            )
        return ShapeError(
            f"the priority {value} of entry {entry}, at index {place}, is out of range.",
            hint=f"choose priorities from 0 to {self._most:.3g}. Nothing has changed.",
        )

    def check(self, priorities: Array) -> None:
        """Check the range of priorities without storing them.

        Raises:
            ShapeError: a priority is negative, NaN or too great.
        """
        right = (priorities >= 0) & (priorities <= self._most)
        if not right.all():
            wrong = int(np.argmin(right))
            raise self._refusal(wrong, wrong, float(priorities[wrong]))

    def retrieve(self, index: Any) -> Array:
        """Return the priorities of some entries, f64[count].

        Args:
            index: the entries, i64[count].

        Raises:
            ShapeError: an index is out of range.
        """
        at = indices("the index of entries", index)
        if at.size and not (at.min() >= 0 and at.max() < self.capacity):
            wrong = int(at.reshape(-1)[np.argmax((at < 0) | (at >= self.capacity))])
            raise self._refusal(0, wrong, 0.0)
        return self._sums[at]

    def draw(self, count: int, random: np.random.Generator, *, stratified: bool = True) -> Array:
        """Draw entries with replacement, in proportion to their priorities.

        Args:
            count: the number of draws.
            random: the random generator.
            stratified: divide the sum of priorities into `count` equal intervals and draw one entry from
                each, in order. The probabilities are the same, with a smaller variance. If False, each draw
                is independent.

        Returns:
            The entries, i64[count].

        Raises:
            ExecutionError: all priorities are zero.
        """
        count = integer("the number of draws", count, least=0)
        total = self.total
        if not total:
            raise ExecutionError(
                "no entry can be drawn: all priorities are zero.", hint="insert entries first."
            )
        shares = random.random(count)
        if stratified:
            shares += np.arange(count)
            shares /= max(count, 1)
        shares *= total
        return self._descend(shares)

    def entries_at(self, shares: Any) -> Array:
        """Return the entries at fractions of the total priority, i64[count].

        Args:
            shares: numbers from 0 to 1.
        """
        return self._descend(np.array(convert_array("shares", shares, _F64)) * self.total)

    def entries_at_sums(self, targets: Array) -> Array:
        """Return the entries at sums of priorities, i64[count].

        Args:
            targets: numbers from 0 to `total`, f64[count].
        """
        return self._descend(np.array(targets, np.float64))

    def _descend(self, targets: Array) -> Array:
        return self._engine.descend(self._sums, self.levels.starts, self.levels.shift, targets)

    def path(self, share: float) -> list[tuple[int, list[float], int, float]]:
        """Return the path of a draw from the root to a leaf.

        Args:
            share: the draw as a fraction of the total priority, from 0 to 1.

        Returns:
            For each level below the root: the number of the group's first child, the children's sums, the
                chosen child, and the remaining value at the start of the level.
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
