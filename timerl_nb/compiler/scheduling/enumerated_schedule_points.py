"""All points of a schedule in order, by number: affine times evaluated on whole arrays at once.

Times are laid out as addresses, in their order and nearly without gaps, so that the place of a time
among all others is one look into a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import BoundsError
from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree
from timerl_nb.compiler.isl.sets_and_relations import Point, Set
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import Cond
from timerl_nb.compiler.symbolic.value_ranges import Range, simplify_condition

# A plan takes some 100 bytes for each.
MOST_POINTS: Final = 50_000_000

# So many addresses for each point have a table, which takes four bytes for each of them.
_GAPS: Final = 4


def most_points(schedule: ScheduleTree, bounds: Point) -> dict[Domain, int]:
    """By domain the points of all statements over it, conditions left aside."""
    found = Counter[Domain]()
    for points in schedule.statements.values():
        found[points.domain] += prod(schedule.dims[d].count(bounds) for d in points.domain)
    return found


class Clock:
    """Ranks of all points of all statements in the order of the schedule.

    Rows of points are arrays whose columns are contiguous: they are looked at one by one.

    Attributes:
        found: what users have found out about points, for as long as one of them holds it.
    """

    def __init__(self, schedule: ScheduleTree, bounds: Point) -> None:
        self.schedule, self.bounds = schedule, bounds
        self.found: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self.sizes = {d.name: d.count(bounds) for d in schedule.dims}
        counts = most_points(schedule, bounds)
        if (count := sum(counts.values())) > MOST_POINTS:
            over = ", ".join(max(counts, key=lambda domain: counts[domain]))
            raise BoundsError(
                f"the program runs step by step at {count:,} points, and no few of its turns are known "
                "to say what all do: too many to plan its memory.",
                hint=f"give smaller bounds: most are of statements over ({over}), not vectorised.",
            )
        exact = {name: (value, value) for name, value in bounds.items()}
        self._within = {**exact, **{d: (0, size - 1) for d, size in self.sizes.items()}}
        self._times = schedule.times()
        self.points = {name: self.grid(points) for name, points in schedule.statements.items()}
        times = {name: self.time(name, rows.T) for name, rows in self.points.items()}
        run = {name: len(rows) for name, rows in self.points.items() if len(rows)}
        size, self._layout = _laid_out({name: [_reach(e) for e in times[name]] for name in run})
        found = {n: np.broadcast_to(self._address(n, times[n]), run[n]) for n in run}
        self._order = _Order(size, list(found.values()))
        none = np.zeros(0, np.int64)
        self.ranks = {n: self._order.ranks(found.get(n, none)) for n in self.points}

    def __len__(self) -> int:
        return sum(map(len, self.points.values()))

    def box(self, domain: Domain) -> Array:
        """All points of some dimensions, one row each, in the order of their codes."""
        sizes = [self.sizes[d] for d in domain]
        columns = np.empty((len(sizes), *sizes), np.int64)
        for column, along in zip(columns, np.ogrid[*map(slice, sizes)], strict=True):
            column[...] = along
        return columns.reshape(len(sizes), prod(sizes)).T

    def grid(self, points: Set) -> Array:
        """All points of a set, one row each."""
        rows, there = (
            self.box(points.domain),
            points.condition(Set.from_condition(points.dims, points.domain)),
        )
        inside = self.evaluate_condition(there, self.env(points.domain, rows))
        if inside is True:
            return rows
        return np.compress(np.broadcast_to(inside, len(rows)), rows.T, axis=1).T

    def env(self, domain: Domain, rows: Array) -> dict[str, Any]:
        return {**self.bounds, **dict(zip(domain, rows.T, strict=True))}

    def evaluate_condition(self, cond: Cond, env: Mapping[str, Any]) -> Any:
        """Where a condition holds: an array, or one value where it is the same everywhere.

        Args:
            env: the bounds, and coordinates of points.
        """
        return values(simplify_condition(cond, self._within), env)

    def point_at(self, rank: int) -> tuple[str, dict[str, int]]:
        """The statement and the point that run at a rank."""
        for name, ranks in self.ranks.items():
            (found,) = np.nonzero(ranks == rank)
            if len(found):
                domain = self.schedule.statements[name].domain
                point = self.points[name][found[0]].tolist()
                return name, dict(zip(domain, point, strict=True))
        raise AssertionError(f"nothing runs at {rank}")

    @cached_property
    def turns(self) -> tuple[str | None, Array]:
        """The dimension that the outermost loop runs along, and its value at every executed point.

        None where there is not one; -1 outside that loop.
        """
        schedule, turn = self.schedule, np.full(len(self), -1, np.int64)
        along = [at for loops in schedule.loops().values() for loop, at in loops if loop == 0]
        dims = {d for at in along for d in schedule.dims.ordered(at.symbols)}
        if len(dims) != 1:
            return None, turn
        (outer,) = dims
        for name, points in schedule.statements.items():
            if outer in points.domain:
                turn[self.ranks[name]] = self.points[name][:, points.domain.index(outer)]
        return outer, turn

    def codes(self, domain: Domain, rows: Array) -> Array:
        """A number per row, the same for equal points of a domain."""
        code = np.zeros(len(rows), np.int64)
        for k, d in enumerate(domain):
            code = code * self.sizes[d] + rows[:, k]
        return code

    def coordinate(self, domain: Domain, name: str, codes: Array) -> Array:
        """One coordinate of the points of a domain that some numbers stand for."""
        inner = prod(self.sizes[d] for d in domain[domain.index(name) + 1 :])
        return codes // inner % self.sizes[name]

    def rank(self, name: str, rows: Array) -> Array:
        """The ranks of the given points of a statement."""
        return self.rank_at(name, list(rows.T), len(rows))

    def rank_at(self, name: str, coordinates: Sequence[Any], count: int) -> Array:
        """The ranks of points of a statement.

        Args:
            coordinates: by dimension, an array of them, or one that all points have.
            count: how many points there are.
        """
        if not count:
            return np.zeros(0, np.int64)
        address = self._address(name, self.time(name, coordinates))
        return self._order.ranks(np.broadcast_to(address, count))

    def time(self, name: str, coordinates: Iterable[Any]) -> list[Any]:
        """The components of a statement's time at points, given by dimension."""
        domain = self.schedule.statements[name].domain
        env = {**self.bounds, **dict(zip(domain, coordinates, strict=True))}
        return [values(e, env) for e in self._times[name]]

    def _address(self, name: str, time: Sequence[Any]) -> Any:
        address, weights = self._layout[name]
        for weight, part in zip(weights, time, strict=True):
            if weight:
                address = address + weight * part
        return address


def _reach(part: Any) -> Range:
    return int(np.min(part)), int(np.max(part))


def _laid_out(
    times: Mapping[str, Sequence[Range]], depth: int = 0
) -> tuple[int, dict[str, tuple[int, tuple[int, ...]]]]:
    """Addresses for times, in the same order: how many, and every statement's first and weights.

    Statements of which each has one value of a component are laid out one behind another, others
    share the places of the component's values.

    Args:
        times: from where to where each component of a statement's time goes.
        depth: the first component that counts.
    """
    if not times or depth == len(next(iter(times.values()))):
        return min(1, len(times)), dict.fromkeys(times, (0, ()))
    at = {name: time[depth] for name, time in times.items()}
    if any(low != high for low, high in at.values()):
        size, found = _laid_out(times, depth + 1)
        low, end = min(low for low, _ in at.values()), max(high for _, high in at.values())
        return (end - low + 1) * size, {
            name: (first - low * size, (size, *weights)) for name, (first, weights) in found.items()
        }
    groups: dict[int, dict[str, Sequence[Range]]] = {}
    for name, (value, _) in at.items():
        groups.setdefault(value, {})[name] = times[name]
    total, whole = 0, dict[str, tuple[int, tuple[int, ...]]]()
    for value in sorted(groups):
        size, found = _laid_out(groups[value], depth + 1)
        whole |= {n: (total + first, (0, *weights)) for n, (first, weights) in found.items()}
        total += size
    return total, whole


class _Order:
    """The places of addresses among all that are there."""

    def __init__(self, size: int, addresses: Sequence[Array]) -> None:
        self._table = self._sorted = np.zeros(0, np.int64)
        if size > _GAPS * sum(map(len, addresses)):
            self._sorted = np.sort(np.concatenate(addresses))
            return
        there = np.zeros(size, np.bool_)
        for some in addresses:
            there[some] = True
        self._table = np.cumsum(there, dtype=np.int32)
        self._table -= there

    def ranks(self, addresses: Array) -> Array:
        if len(self._sorted):
            return np.searchsorted(self._sorted, addresses)
        return self._table[addresses].astype(np.int64)
