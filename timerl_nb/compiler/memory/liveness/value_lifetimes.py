"""When the values of a lifetime live: at which executed points each is born, read last, and dies.

Both are affine, so that all values of a lifetime are looked at at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.isl.isl_scheduler import Edge
from timerl_nb.compiler.memory.liveness.last_uses import Lifetime
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock
from timerl_nb.compiler.symbolic.array_evaluation import values

# Where more points of time than this lie between values, these are counted one by one.
_SPREAD = 16


@dataclass(frozen=True, eq=False)
class Lives:
    """When values live.

    `points` has a row per value. `last` is when each is read for the last time, which is as it dies, or
    just behind where another value takes its memory over.
    """

    points: Array
    born: Array
    dies: Array
    last: Array

    @cached_property
    def most_at_once(self) -> int:
        """How many values live at the same time at most, wherever they are."""
        if not len(self.born):
            return 0
        end = int(self.born.max()) + 1
        if end < _SPREAD * len(self.born):
            return int(series(self.born, self.dies, 1, end).max())
        # most live as one is born: those that were born by then, less those that died before
        born, dies = np.sort(self.born), np.sort(self.dies)
        return int((np.arange(1, len(born) + 1) - np.searchsorted(dies, born)).max())


def lives_of(clock: Clock, life: Lifetime) -> Lives:
    """When a lifetime's values live; plans that differ elsewhere share it."""
    # a value whose memory is taken over is gone when the outputs are counted
    ends = (*((e, 0) for e in life.frees), *((e, 1) for e in life.taken))
    key = life.producer, life.domain, tuple((e.sink, early, *e.pairs.pieces) for e, early in ends)
    known = clock.found.get(key)
    if known is None:
        known = clock.found[key] = _compute_lives(clock, life, ends)
    return known


def _compute_lives(clock: Clock, life: Lifetime, ends: Sequence[tuple[Edge, int]]) -> Lives:
    points, born = _births(clock, life)
    count, end = len(points), len(clock)
    dies, last = np.full(count, end, np.int64), np.full(count, end, np.int64)
    env = clock.env(life.domain, points)
    for edge, early in ends:
        for where, reader in edge.pairs.pieces:
            here = np.broadcast_to(clock.evaluate_condition(where, env), count)
            if not here.any():
                continue
            at = [values(e, env) for e in reader]
            if not here.all():
                at = [np.broadcast_to(one, count)[here] for one in at]
            last[here] = clock.rank_at(edge.sink, at, int(here.sum()))
            dies[here] = last[here] - early
    return Lives(points, born, dies, last)


def _births(clock: Clock, life: Lifetime) -> tuple[Array, Array]:
    """The values of a lifetime, a row each, and when each is born."""
    made, ranks = clock.points[life.producer], clock.ranks[life.producer]
    producer = clock.schedule.statements[life.producer].domain
    if life.domain == producer:
        return made, ranks
    # values that several points add to are born at the first
    box = clock.box(life.domain)
    codes = clock.codes(life.domain, made[:, [producer.index(d) for d in life.domain]])
    born = np.full(len(box), len(clock), np.int64)
    np.minimum.at(born, codes, ranks)
    there = born < len(clock)
    return box[there], born[there]


def series(first: Array, last: Array, nbytes: int, length: int) -> Array:
    """The sum over time of what lasts from `first` to `last`, both included."""
    change = np.zeros(length + 1, np.int64)
    enter(change, first, last, nbytes)
    return np.cumsum(change[:length])


def enter(change: Array, first: Array, last: Array, nbytes: int) -> None:
    """Add what lasts from `first` to `last` to the changes of a series, of which the last is beyond it."""
    length = len(change) - 1
    np.add.at(change, np.minimum(first, length), nbytes)
    np.add.at(change, np.minimum(last + 1, length), -nbytes)
