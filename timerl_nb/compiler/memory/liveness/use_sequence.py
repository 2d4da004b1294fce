"""Uses of values under actual bounds: writer, readers, times, and gaps between uses.

`compiler/isl/reuse_intervals` describes groups of gaps as relations, for swapped values only. This
module lists the gaps of all values, without isl.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.isl.isl_scheduler import Edge
from timerl_nb.compiler.isl.point_enumeration import all_pairs
from timerl_nb.compiler.isl.reuse_intervals import Ends, Times
from timerl_nb.compiler.memory.liveness.last_uses import Lifetime
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock
from timerl_nb.compiler.symbolic.array_evaluation import values


@dataclass(frozen=True, eq=False)
class Pause:
    """A group of gaps, one entry per gap, ordered by value and then by time.

    Attributes:
        ends: the statements at the two ends, and their distance.
        codes: the value of each gap, as a number.
        used: the rank of the use before the gap.
        back: the rank of the point before which the value is needed again; after the last rank if
            never.
    """

    ends: Ends
    codes: Array
    used: Array
    back: Array


class Calendar:
    """Times of all points of a schedule.

    Attributes:
        names: the statements with points, in the order of the schedule tree.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._turns: dict[str, _Turns] = {}

    @cached_property
    def times(self) -> Times:
        return Times(self.clock.schedule, self.clock.bounds)

    @cached_property
    def names(self) -> list[str]:
        return list(self.times.theta)

    @cached_property
    def _components(self) -> list[Array]:
        """The components of time, per rank."""
        clock = self.clock
        found: list[Array] = []
        for name, rows in clock.points.items():
            for k, part in enumerate(clock.time(name, rows.T)):
                if k == len(found):
                    found.append(np.zeros(len(clock), np.int64))
                found[k][clock.ranks[name]] = part
        return found

    def depths(self, some: Array, others: Array) -> Array:
        """Return the first component in which pairs of times differ, given their ranks."""
        found = np.full(len(some), -1, np.int64)
        for k, part in reversed(list(enumerate(self._components))):
            found[part[some] != part[others]] = k
        return found

    def ranks_of_earlier_turns(self, name: str, used: Array, back: Array, ahead: int) -> Array:
        """Return the ranks of points moved to an earlier iteration of their innermost loop.

        A point moves to the first iteration if the loop has fewer iterations before it. It stays if
        it would otherwise precede the previous use.

        Args:
            name: the statement.
            used: the ranks of the previous uses.
            back: the ranks to move.
            ahead: the number of iterations.
        """
        loop = self.times.innermost[name]
        if not ahead or loop is None:
            return back
        if name not in self._turns:
            self._turns[name] = _Turns(self.clock.ranks[name], self._components, loop)
        return self._turns[name].ranks_of_earlier_turns(used, back, ahead)


class Uses:
    """All uses of a lifetime's values, ordered by value and then by rank."""

    def __init__(self, calendar: Calendar, life: Lifetime) -> None:
        self._calendar, self._life = calendar, life
        clock = calendar.clock
        who: list[Array] = []
        codes, ranks = list[Array](), list[Array]()
        for use in life.uses:
            if use.sink in calendar.times.theta:
                made, points = used_pairs(clock, use)
                codes.append(clock.codes(life.domain, made))
                ranks.append(clock.rank(use.sink, points))
                who.append(np.full(len(points), calendar.names.index(use.sink)))
        all_codes, all_ranks = np.concatenate(codes), np.concatenate(ranks)
        order = np.lexsort((all_ranks, all_codes))
        keep = np.ones(len(order), np.bool_)
        keep[1:] = (np.diff(all_codes[order]) != 0) | (np.diff(all_ranks[order]) != 0)
        order = order[keep]  # a point may read a value twice
        self._codes, self._ranks = all_codes[order], all_ranks[order]
        self._who = np.concatenate(who)[order]

    def pauses(self, ahead: int) -> list[Pause]:
        """Return the gaps between uses, and for returned values the gap after the last use.

        Args:
            ahead: the prefetch distance between the return of a value and its use, in iterations of
                the reader's innermost loop. A prefetch never precedes the start of the gap.
        """
        return [*self._pauses_between_uses(ahead), *self._behind_the_last()]

    def _pauses_between_uses(self, ahead: int) -> list[Pause]:
        (at,) = np.nonzero(self._codes[1:] == self._codes[:-1])
        calendar, found = self._calendar, list[Pause]()
        before, after = self._who[at], self._who[at + 1]
        pairs: set[tuple[int, int]] = set(zip(before.tolist(), after.tolist(), strict=True))
        for first, second in sorted(pairs):
            mine = at[(before == first) & (after == second)]
            used, back = self._ranks[mine], self._ranks[mine + 1]
            depths = calendar.depths(used, back)
            name = calendar.names[second]
            for depth in np.unique(depths).tolist():
                here = depths == depth
                ends = Ends(calendar.names[first], name, depth)
                moved = calendar.ranks_of_earlier_turns(name, used[here], back[here], ahead)
                found.append(Pause(ends, self._codes[mine][here], used[here], moved))
        return found

    def _behind_the_last(self) -> list[Pause]:
        life, clock = self._life, self._calendar.clock
        if life.returned is None:
            return []
        last = np.ones(len(self._codes), np.bool_)
        last[:-1] = self._codes[1:] != self._codes[:-1]
        last &= np.isin(self._codes, clock.codes(life.domain, clock.grid(life.returned)))
        found: list[Pause] = []
        for which in map(int, np.unique(self._who[last])):
            (at,) = np.nonzero(last & (self._who == which))
            never = np.full(len(at), len(clock), np.int64)
            ends = Ends(self._calendar.names[which], None, -1)
            found.append(Pause(ends, self._codes[at], self._ranks[at], never))
        return found


class _Turns:
    """Points of a statement in order, grouped by iterations of one surrounding loop."""

    def __init__(self, ranks: Array, components: list[Array], loop: int) -> None:
        self._ranks = np.sort(ranks)
        mine = [part[self._ranks] for part in components]
        self._turn = mine[loop]
        begins = _changes(mine[:loop], len(ranks))
        self._nest = np.cumsum(begins)  # the execution of the loop
        self._first = self._ranks[np.flatnonzero(begins)][self._nest - 1]
        inner = np.lexsort(mine[loop + 1 :]) if mine[loop + 1 :] else np.arange(len(ranks))
        self._inner = np.empty(len(ranks), np.int64)  # the position within an iteration
        self._inner[inner] = np.cumsum(
            _changes([part[inner] for part in mine[loop + 1 :]], len(ranks))
        )

    def ranks_of_earlier_turns(self, used: Array, back: Array, ahead: int) -> Array:
        at = np.searchsorted(self._ranks, back)
        key, keys = self._key(at, ahead), self._key(np.arange(len(self._ranks)), 0)
        order = np.argsort(keys)
        place = np.minimum(np.searchsorted(keys, key, sorter=order), len(keys) - 1)
        there = (keys[order][place] == key) & (self._turn[at] - ahead >= self._turn.min())
        moved = np.where(there, self._ranks[order[place]], -1)
        first = self._first[at]
        return np.where(moved > used, moved, np.where(first > used, first, back))

    def _key(self, at: Array, ahead: int) -> Array:
        low, high = self._turn.min(), self._turn.max()
        turn = self._turn[at] - ahead - low
        return (self._nest[at] * (high - low + 1) + turn) * (self._inner.max() + 1) + self._inner[
            at
        ]


def _changes(columns: list[Array], count: int) -> Array:
    """Return whether each row differs from the previous one; True for the first."""
    found = np.zeros(count, np.bool_)
    found[:1] = True
    for column in columns:
        found[1:] |= np.diff(column) != 0
    return found


def used_pairs(clock: Clock, use: Edge) -> tuple[Array, Array]:
    """Return values and the points that use them, one pair per row."""
    read = use.pairs.inverse()
    if not read.is_single_valued or not read.pieces:
        return all_pairs(use.pairs, clock.bounds)
    points, found = clock.points[use.sink], list[tuple[Array, Array]]()
    env = clock.env(read.left, points)
    for where, value in read.pieces:
        here = np.broadcast_to(clock.evaluate_condition(where, env), len(points))
        rows = np.empty((len(points), len(value)), np.int64)
        for k, e in enumerate(value):
            rows[:, k] = values(e, env)
        found.append((rows[here], points[here]))
    made, used = zip(*found, strict=True)
    return np.concatenate(made), np.concatenate(used)
