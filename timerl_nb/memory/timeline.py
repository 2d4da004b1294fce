"""Live bytes over schedule time, without running: from the schedule and the lifetimes alone.

Every point's time and every value's end are affine, so all of them are computed at once with NumPy
and sorted. The loop AST and the executors are not asked: that the ledger of a run agrees is a test
of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from timerl_nb.memory.lifetimes import Lifetime
from timerl_nb.schedule.clock import Clock
from timerl_nb.symbolic.arrays import values

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Holder:
    """Who holds how many bytes."""

    tensor: str
    nbytes: int
    points: int

    def __str__(self) -> str:
        return f"{self.tensor}: {self.nbytes:,} bytes in {self.points} values"


@dataclass(frozen=True)
class Timeline:
    """Live bytes while each executed point runs, in execution order.

    `time` counts executed points; `bytes` are live bytes during each; `turn` is the value of the
    dimension `outer` that the outermost loop runs along, -1 outside that loop.
    """

    time: Array
    bytes: Array
    spans: tuple[Span, ...]
    transient: Array
    outer: str | None
    turn: Array

    @property
    def peak(self) -> int:
        """The greatest number of live bytes."""
        return int(self.bytes.max(initial=0))

    @property
    def peak_time(self) -> int:
        return int(self.bytes.argmax()) if len(self.bytes) else 0

    @cached_property
    def by_tensor(self) -> Mapping[str, Array]:
        """Live bytes of each tensor over time."""
        found: dict[str, Array] = {}
        for span in self.spans:
            for name, nbytes in span.tensors:
                series = _series(span.born, span.dies, nbytes, len(self.time))
                found[name] = found[name] + series if name in found else series
        return found

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Who holds the bytes at the peak, the largest first."""
        return self.holders_at(self.peak_time)

    def holders_at(self, time: int) -> tuple[Holder, ...]:
        """Who holds the live bytes at a time, the largest first."""
        found: list[Holder] = []
        for span in self.spans:
            count = int(((span.born <= time) & (span.dies >= time)).sum())
            if count:
                found += [Holder(name, nbytes * count, count) for name, nbytes in span.tensors]
        if len(self.transient) and self.transient[time]:
            found.append(Holder("gathered operands", int(self.transient[time]), 1))
        return tuple(sorted(found, key=lambda h: (-h.nbytes, h.tensor)))


@dataclass(frozen=True)
class Span:
    """When the values of one lifetime are born and die, and the bytes of each tensor's value.

    `points` has a row per value.
    """

    tensors: tuple[tuple[str, int], ...]
    points: Array
    born: Array
    dies: Array

    @cached_property
    def most_at_once(self) -> int:
        """How many values live at the same time at most."""
        if not len(self.born):
            return 0
        end = int(max(self.dies.max(), self.born.max())) + 2
        return int(_series(self.born, self.dies, 1, end).max())


def _series(born: Array, dies: Array, nbytes: int, length: int) -> Array:
    change = np.zeros(length + 1, np.int64)
    np.add.at(change, np.minimum(born, length), nbytes)
    np.add.at(change, np.minimum(dies + 1, length), -nbytes)
    return np.cumsum(change[:length])


def predict(
    clock: Clock,
    lifetimes: Sequence[Lifetime],
    sizes: Mapping[tuple[int, int], int],
    tensors: Mapping[tuple[int, int], str],
    gathered: Mapping[str, int],
) -> Timeline:
    """The timeline of a schedule.

    Args:
        sizes: bytes of one value (or block) of each tensor.
        tensors: what tensors are called.
        gathered: bytes of operands that a statement materialises while it runs.
    """
    total = len(clock.order)
    live = np.zeros(total, np.int64)
    spans: list[Span] = []
    for life in lifetimes:
        span = _span(clock, life, sizes, tensors)
        spans.append(span)
        live += _series(span.born, span.dies, sum(n for _, n in span.tensors), total)
    transient = np.zeros(total, np.int64)
    for name, nbytes in gathered.items():
        transient[clock.ranks[name]] += nbytes
    outer, turn = _turns(clock)
    return Timeline(
        np.arange(total),
        live + transient,
        tuple(spans),
        transient,
        outer,
        turn,
    )


def _turns(clock: Clock) -> tuple[str | None, Array]:
    """The dimension that the outermost loop runs along, and its value at every executed point."""
    schedule, turn = clock.schedule, np.full(len(clock.order), -1, np.int64)
    along = [at for loops in schedule.loops().values() for loop, at in loops if loop == 0]
    dims = {d for at in along for d in schedule.dims.ordered(at.symbols)}
    if len(dims) != 1:
        return None, turn
    (outer,) = dims
    for name, points in schedule.statements.items():
        if outer in points.domain:
            turn[clock.ranks[name]] = clock.points[name][:, points.domain.index(outer)]
    return outer, turn


def _span(
    clock: Clock,
    life: Lifetime,
    sizes: Mapping[tuple[int, int], int],
    tensors: Mapping[tuple[int, int], str],
) -> Span:
    made, ranks = clock.points[life.producer], clock.ranks[life.producer]
    producer = clock.schedule.statements[life.producer].domain
    rows = made[:, [producer.index(d) for d in life.domain]]
    end = len(clock.order)
    points, born = rows, ranks
    if life.domain != producer:  # values that several points add to are born at the first
        code = np.zeros(len(rows), np.int64)
        for k, d in enumerate(life.domain):
            code = code * clock.sizes[d] + rows[:, k]
        _, first, which = np.unique(code, return_index=True, return_inverse=True)
        points, born = rows[first], np.full(len(first), end, np.int64)
        np.minimum.at(born, which, ranks)
    dies = np.full(len(points), end, np.int64)
    env = clock.env(life.domain, points)
    for edge in life.frees:
        for where, reader in edge.pairs.pieces():
            here = np.broadcast_to(values(where, env), len(points))
            if not here.any():
                continue
            at = [np.broadcast_to(values(e, env), len(points)) for e in reader]
            target = np.stack(at, axis=1)[here] if at else np.zeros((int(here.sum()), 0), np.int64)
            dies[here] = clock.rank(edge.sink, target)
    named = tuple((tensors[t], sizes[t]) for t in life.tensors)
    return Span(named, points, born, dies)
