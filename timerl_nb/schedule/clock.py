"""All points of a schedule in order, by number: affine times evaluated on whole arrays at once."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from timerl_nb.errors import BoundsError
from timerl_nb.symbolic.arrays import values
from timerl_nb.symbolic.domain import Domain
from timerl_nb.symbolic.polyhedra import Point, Set
from timerl_nb.symbolic.scheduling import ScheduleTree

Array = np.ndarray[Any, np.dtype[Any]]

# A plan takes some 100 bytes for each.
MOST_POINTS: Final = 50_000_000


class Clock:
    """Ranks of all points of all statements in the order of the schedule."""

    def __init__(self, schedule: ScheduleTree, bounds: Point) -> None:
        self.schedule, self.bounds = schedule, bounds
        self.sizes = {d.name: d.count(bounds) for d in schedule.dims}
        count = sum(prod(self.sizes[d] for d in s.domain) for s in schedule.statements.values())
        if count > MOST_POINTS:
            raise BoundsError(
                f"the program runs step by step at {count:,} points: too many to plan its memory.",
                hint="give smaller bounds, or leave vectorize and lift on.",
            )
        self.times = schedule.times()
        self.points = {name: self.grid(points) for name, points in schedule.statements.items()}
        vectors = {name: self._vectors(name, pts) for name, pts in self.points.items()}
        stacked = np.concatenate(list(vectors.values()))
        self._low = stacked.min(0) if len(stacked) else np.zeros(stacked.shape[1], np.int64)
        self._radix = (stacked.max(0) - self._low + 1) if len(stacked) else self._low + 1
        self.order = np.sort(self._encode(stacked))
        self.ranks = {n: np.searchsorted(self.order, self._encode(v)) for n, v in vectors.items()}

    def grid(self, points: Set) -> Array:
        """All points of a set, one row each."""
        axes = [np.arange(self.sizes[d]) for d in points.domain]
        if not axes:
            rows = np.zeros((1, 0), np.int64)
        else:
            rows = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
        inside = values(
            points.condition(Set.of(points.dims, points.domain)), self.env(points.domain, rows)
        )
        return rows[np.broadcast_to(inside, len(rows))]

    def env(self, domain: Domain, rows: Array) -> dict[str, Any]:
        return {**self.bounds, **{d: rows[:, k] for k, d in enumerate(domain)}}

    def _vectors(self, name: str, rows: Array) -> Array:
        env = self.env(self.schedule.statements[name].domain, rows)
        parts = [np.broadcast_to(values(e, env), len(rows)) for e in self.times[name]]
        return np.stack(parts, axis=1).astype(np.int64) if parts else np.zeros((len(rows), 1), int)

    def _encode(self, vectors: Array) -> Array:
        code = np.zeros(len(vectors), np.int64)
        for k in range(vectors.shape[1]):
            code = code * self._radix[k] + (vectors[:, k] - self._low[k])
        return code

    def at(self, rank: int) -> tuple[str, dict[str, int]]:
        """The statement and the point that run at a rank."""
        for name, ranks in self.ranks.items():
            (found,) = np.nonzero(ranks == rank)
            if len(found):
                domain = self.schedule.statements[name].domain
                point = self.points[name][found[0]].tolist()
                return name, dict(zip(domain, point, strict=True))
        raise AssertionError(f"nothing runs at {rank}")

    def codes(self, domain: Domain, rows: Array) -> Array:
        """A number per row, the same for equal points of a domain."""
        code = np.zeros(len(rows), np.int64)
        for k, d in enumerate(domain):
            code = code * self.sizes[d] + rows[:, k]
        return code

    def rank(self, name: str, rows: Array) -> Array:
        """The ranks of the given points of a statement."""
        return np.searchsorted(self.order, self._encode(self._vectors(name, rows)))
