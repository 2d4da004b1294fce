"""Ranks of all points of a schedule, with affine times evaluated on whole arrays.

Times are mapped to addresses that preserve their order and have few gaps. The rank of a time is
then one lookup in a table.
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

# A memory plan takes some 100 bytes for each.
MOST_POINTS: Final = 50_000_000

# The table is used if it has at most this many addresses per point, at four bytes each.
_GAPS: Final = 4


def most_points(schedule: ScheduleTree, bounds: Point) -> dict[Domain, int]:
    """Return the number of points of all statements per domain, ignoring conditions."""
    found = Counter[Domain]()
    for points in schedule.statements.values():
        found[points.domain] += prod(schedule.dims[d].count(bounds) for d in points.domain)
    return found


class Clock:
    """Ranks of all points of all statements in the order of the schedule.

    Arrays of points have one row per point and contiguous columns, since users process them by
    column.

    Attributes:
        found: a cache for results that users compute from the points; entries live as long as a
            user holds them.
    """

    def __init__(self, schedule: ScheduleTree, bounds: Point) -> None:
        self.schedule, self.bounds = schedule, bounds
        self.found: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self.sizes = {d.name: d.count(bounds) for d in schedule.dims}
        counts = most_points(schedule, bounds)
        if (count := sum(counts.values())) > MOST_POINTS:
            over = ", ".join(max(counts, key=lambda domain: counts[domain]))
            raise BoundsError(
                f"the program executes statements at {count:,} points, too many to plan its memory, "
                "and its iterations have no known steady state.",
                hint=f"choose smaller bounds, or vectorise the statements over ({over}). They have "
                "the most points.",
            )
        exact = {name: (value, value) for name, value in bounds.items()}
        self._within = {**exact, **{d: (0, size - 1) for d, size in self.sizes.items()}}
        self._times = schedule.times()
        self.points = {name: self.grid(points) for name, points in schedule.statements.items()}
        times = {name: self.time(name, rows.T) for name, rows in self.points.items()}
        run = {name: len(rows) for name, rows in self.points.items() if len(rows)}
        size, self._layout = _assign_addresses(
            {name: [_reach(e) for e in times[name]] for name in run}
        )
        found = {n: np.broadcast_to(self._address(n, times[n]), run[n]) for n in run}
        self._order = _Order(size, list(found.values()))
        none = np.zeros(0, np.int64)
        self.ranks = {n: self._order.ranks(found.get(n, none)) for n in self.points}

    def __len__(self) -> int:
        return sum(map(len, self.points.values()))

    def box(self, domain: Domain) -> Array:
        """Return all points of a domain, one per row, in the order of their codes."""
        sizes = [self.sizes[d] for d in domain]
        columns = np.empty((len(sizes), *sizes), np.int64)
        for column, along in zip(columns, np.ogrid[*map(slice, sizes)], strict=True):
            column[...] = along
        return columns.reshape(len(sizes), prod(sizes)).T

    def grid(self, points: Set) -> Array:
        """Return all points of a set, one per row."""
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
        """Return the value of a condition at points: an array, or a single value if it is constant.

        Args:
            cond: the condition.
            env: the bounds, and the coordinates of the points.
        """
        return values(simplify_condition(cond, self._within), env)

    def point_at(self, rank: int) -> tuple[str, dict[str, int]]:
        """Return the statement and the point that run at a rank."""
        for name, ranks in self.ranks.items():
            (found,) = np.nonzero(ranks == rank)
            if len(found):
                domain = self.schedule.statements[name].domain
                point = self.points[name][found[0]].tolist()
                return name, dict(zip(domain, point, strict=True))
        raise AssertionError(f"nothing runs at {rank}")

    @cached_property
    def turns(self) -> tuple[str | None, Array]:
        """The dimension of the outermost loop, and its value at every executed point.

        The dimension is None if there is not exactly one such loop. The value is -1 outside the
        loop.
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
        """Return a number per row that identifies the point of the domain."""
        code = np.zeros(len(rows), np.int64)
        for k, d in enumerate(domain):
            code = code * self.sizes[d] + rows[:, k]
        return code

    def coordinate(self, domain: Domain, name: str, codes: Array) -> Array:
        """Return one coordinate of the points with the given codes."""
        inner = prod(self.sizes[d] for d in domain[domain.index(name) + 1 :])
        return codes // inner % self.sizes[name]

    def rank(self, name: str, rows: Array) -> Array:
        """Return the ranks of a statement's points, given as rows."""
        return self.rank_at(name, list(rows.T), len(rows))

    def rank_at(self, name: str, coordinates: Sequence[Any], count: int) -> Array:
        """Return the ranks of a statement's points.

        Args:
            name: the statement.
            coordinates: per dimension an array, or a single value shared by all points.
            count: the number of points.
        """
        if not count:
            return np.zeros(0, np.int64)
        address = self._address(name, self.time(name, coordinates))
        return self._order.ranks(np.broadcast_to(address, count))

    def time(self, name: str, coordinates: Iterable[Any]) -> list[Any]:
        """Return the components of a statement's time at points, given by dimension."""
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


def _assign_addresses(
    times: Mapping[str, Sequence[Range]], depth: int = 0
) -> tuple[int, dict[str, tuple[int, tuple[int, ...]]]]:
    """Return addresses for times in the same order.

    If each statement has a single value of a component, statements with different values get
    separate address ranges. Otherwise the statements share the addresses of the component's values.

    Args:
        times: the range of each component of a statement's time.
        depth: the first component to lay out.

    Returns:
        The number of addresses, and an offset and weights per statement.
    """
    if not times or depth == len(next(iter(times.values()))):
        return min(1, len(times)), dict.fromkeys(times, (0, ()))
    at = {name: time[depth] for name, time in times.items()}
    if any(low != high for low, high in at.values()):
        size, found = _assign_addresses(times, depth + 1)
        low, end = min(low for low, _ in at.values()), max(high for _, high in at.values())
        return (end - low + 1) * size, {
            name: (first - low * size, (size, *weights)) for name, (first, weights) in found.items()
        }
    groups: dict[int, dict[str, Sequence[Range]]] = {}
    for name, (value, _) in at.items():
        groups.setdefault(value, {})[name] = times[name]
    total, whole = 0, dict[str, tuple[int, tuple[int, ...]]]()
    for value in sorted(groups):
        size, found = _assign_addresses(groups[value], depth + 1)
        whole |= {n: (total + first, (0, *weights)) for n, (first, weights) in found.items()}
        total += size
    return total, whole


class _Order:
    """The rank of each address among all addresses in use."""

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
