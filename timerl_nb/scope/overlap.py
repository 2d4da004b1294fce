"""Where the time of each lane went: phase x operation x library on top x whether a device was busy.

For every nanosecond of a lane, what is on top of its three stacks, and whether some device runs a kernel
or a copy (RL-Scope, paper 002, section 3.3). A stretch between two edges is of one kind but for the device,
which is found from running sums; so edges take linear time, in pieces that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.columns import aligned
from timerl_nb.scope.edges import Library
from timerl_nb.scope.lanes import Lane, Lanes
from timerl_nb.scope.pieces import PIECE, UNOBSERVED, pieces, without_gaps

Column = Literal["phase", "operation", "library", "used"]


class Used(IntEnum):
    """What a nanosecond was spent on: the thread, a device beside it, or a device that it waits for."""

    CPU = 0
    BOTH = 1
    GPU = 2


@dataclass(frozen=True)
class Cell:
    """A kind of time.

    Attributes:
        phase, operation: names, "" where there was none.
        library: the one on top, "python" where there was none, or "unobserved".
        used: the thread's time, a device's, or both.
    """

    phase: str
    operation: str
    library: str
    used: Used


@dataclass(frozen=True)
class Breakdown:
    """Nanoseconds by kind of time. They sum up to the wall time of the lanes, to the nanosecond."""

    cells: Mapping[Cell, int]

    @property
    def total(self) -> int:
        """All nanoseconds."""
        return sum(self.cells.values())

    def by(self, *columns: Column) -> dict[tuple[str | Used, ...], int]:
        """Nanoseconds by some columns, the most first."""
        found: dict[tuple[str | Used, ...], int] = {}
        for cell, ns in self.cells.items():
            key = tuple(getattr(cell, column) for column in columns)
            found[key] = found.get(key, 0) + ns
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    def __add__(self, other: Breakdown) -> Breakdown:
        keys = dict.fromkeys((*self.cells, *other.cells))
        return Breakdown({k: self.cells.get(k, 0) + other.cells.get(k, 0) for k in keys})

    def __str__(self) -> str:
        total = self.total
        rows = [("operation", "library", "ms", "share")]
        for (operation, library), ns in self.by("operation", "library").items():
            shares = f"{ns / 1e6:,.3f}", f"{ns / total:.1%}"
            rows.append((str(operation) or "-", str(library), *shares))
        return "\n".join([f"{total / 1e6:,.3f} ms", *aligned(rows, left=(0, 1))])

    __repr__ = __str__


@dataclass(frozen=True, eq=False)
class Busy:
    """When devices run something: disjoint, sorted stretches of nanoseconds."""

    begin: Array
    end: Array

    @classmethod
    def of(cls, begin: Array, end: Array) -> Busy:
        """The union of intervals [begin, end), in any order, of any streams and devices; empty ones are nothing."""
        begin, end = (np.asarray(x, np.int64) for x in (begin, end))
        some = end > begin
        order = np.argsort(begin[some], kind="stable")
        begin, reach = begin[some][order], np.maximum.accumulate(end[some][order])
        first = np.ones(len(begin), bool)
        first[1:] = begin[1:] > reach[:-1]
        last = np.append(np.flatnonzero(first)[1:] - 1, len(begin) - 1)[: first.sum()]
        return cls(begin[first], reach[last])

    def before(self, moments: Array) -> Array:
        """The busy nanoseconds before each of some moments."""
        if not len(self.begin):
            return np.zeros(len(moments), np.int64)
        done = np.concatenate([[0], np.cumsum(self.end - self.begin)])
        k = np.searchsorted(self.begin, moments, side="right") - 1
        at = np.maximum(k, 0)
        part = np.clip(moments - self.begin[at], 0, self.end[at] - self.begin[at])
        return np.where(k < 0, 0, done[at] + part)


NEVER: Final = Busy(np.zeros(0, np.int64), np.zeros(0, np.int64))


def overlap_of(recording: Lanes, busy: Busy = NEVER) -> Breakdown:
    """Where the time of all lanes of a recording went.

    Args:
        busy: when some device was.
    """
    found: dict[Cell, int] = {}
    names = recording.names
    for lane in recording.lanes:
        for (phase, operation, on), (ns, shared) in _stretches(lane, busy).items():
            word = "unobserved" if on == UNOBSERVED else Library(on).name.lower()
            beside = Used.GPU if on == Library.WAITING else Used.BOTH
            for used, part in ((Used.CPU, ns - shared), (beside, shared)):
                if part:
                    cell = Cell(names[phase], names[operation], word, used)
                    found[cell] = found.get(cell, 0) + part
    return Breakdown(found)


def _stretches(lane: Lane, busy: Busy) -> dict[tuple[int, ...], tuple[int, int]]:
    """By (phase, operation, library) the nanoseconds of a lane, and those of them at which devices are busy."""
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    starts = [int(t) for t in lane.edges["ts"][PIECE::PIECE]]
    for piece, end in zip(pieces(lane), [*starts, lane.end], strict=False):
        moments = np.append(piece.ts, end)
        spent, shared = np.diff(moments), np.diff(busy.before(moments))
        for key, ns, part in _summed(piece.phase, piece.operation, piece.on, spent, shared):
            a, b = found.get(key, (0, 0))
            found[key] = a + ns, b + part
    return found


def _summed(*columns: Array) -> Iterator[tuple[tuple[int, ...], int, int]]:
    *keys, spent, shared = columns
    code, rows = without_gaps(*keys)
    # sums of integers below 2**53, which floating-point numbers hold exactly
    totals, parts = (np.bincount(code, x).astype(np.int64).tolist() for x in (spent, shared))
    yield from zip(rows, totals, parts, strict=True)
