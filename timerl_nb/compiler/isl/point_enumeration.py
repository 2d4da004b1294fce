"""Enumeration of the points of a set as rows of an array.

Points are generated one dimension at a time, from its bounds in terms of the previous dimensions.
Time and memory are proportional to the number of points, unlike isl's own enumeration or a masked
grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import islpy as isl
import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.isl.operation_limit import coalesce_pieces, spend
from timerl_nb.compiler.isl.sets_and_relations import (
    Point,
    Relation,
    Set,
    primed_name,
    pw_expression,
)
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond, Lin

_SET, _IN = isl.dim_type.set, isl.dim_type.in_


class Listing:
    """Repeated enumeration of a set, for different values of its first dimensions.

    Args:
        points: the set.
        bounds: actual bounds.
        known: the number of leading dimensions with values given for each enumeration.
    """

    def __init__(self, points: Set, bounds: Point, known: int = 0) -> None:
        raw, n = points.with_bounds(bounds).raw, len(points.domain)
        self._bounds, self._domain, self._known_count = dict(bounds), points.domain, known
        self._is_empty = raw.is_empty()
        self._given = TRUE
        self._columns: list[_Column] = []
        if self._is_empty:
            return
        if known:
            given = spend(isl.Set.project_out, raw, _SET, known, n - known)
            self._given = Set(points.dims, points.domain[:known], given).condition()
        for k in range(known, n):
            upto = spend(isl.Set.project_out, raw, _SET, k + 1, n - k - 1)
            self._columns.append(_column(upto, k, points))

    def points(self, *known: int) -> Array:
        """Return all points with the given first coordinates, one per row.

        They are in lexicographic order.
        """
        rows = np.array([known], np.int64).reshape(1, self._known_count)
        if self._is_empty or not values(self._given, self._env(rows[0])):
            return np.zeros((0, len(self._domain)), np.int64)
        for column in self._columns:
            env = self._env(rows.T)
            low = np.broadcast_to(values(column.low, env), len(rows))
            if column.high is None:
                rows = np.concatenate([rows, low[:, None]], axis=1)
                continue
            high = np.broadcast_to(values(column.high, env), len(rows))
            count = high - low + 1
            first = np.cumsum(count) - count
            spread = np.repeat(low - first, count) + np.arange(int(count.sum()))
            rows = np.concatenate([np.repeat(rows, count, axis=0), spread[:, None]], axis=1)
            if column.there is not None:
                there = values(column.there, self._env(rows.T))
                rows = rows[np.broadcast_to(there, len(rows))]
        return rows

    def _env(self, columns: Array) -> dict[str, Any]:
        return {**self._bounds, **dict(zip(self._domain, columns, strict=False))}


@dataclass(frozen=True)
class _Column:
    """Range of one dimension of a set, in terms of the previous dimensions.

    Attributes:
        low, high: the smallest and largest value. If `high` is None, `low` is the only value.
        there: a further condition if the range has holes, else None.
    """

    low: Lin
    high: Lin | None = None
    there: Cond | None = None


def _column(upto: isl.Set, k: int, points: Set) -> _Column:
    """Return the range of dimension k, given a set of the first k + 1 dimensions."""
    names, bounds = points.domain, points.dims.bounds
    step = isl.Map.from_range(upto).move_dims(_IN, 0, _SET, 0, k)
    low = pw_expression(spend(isl.Map.dim_min, step, 0), names[:k], bounds)
    if spend(isl.Map.is_single_valued, step):
        return _Column(low)
    high = pw_expression(spend(isl.Map.dim_max, step, 0), names[:k], bounds)
    parts = spend(isl.Set.compute_divs, coalesce_pieces(upto)).get_basic_sets()
    if len(parts) == 1 and not parts[0].dim(isl.dim_type.div):
        return _Column(low, high)
    return _Column(low, high, Set(points.dims, names[: k + 1], upto).condition())


def all_points(points: Set, bounds: Point) -> Array:
    """Return all points of a set under actual bounds, one per row, in lexicographic order."""
    return Listing(points, bounds).points()


def pairs_set(pairs: Relation) -> Set:
    """Return the pairs of a relation as a set over the left and the primed right dimensions."""
    names = (*pairs.left, *map(primed_name, pairs.right))
    return Set(pairs.dims, names, pairs.raw.wrap().flatten())


def all_pairs(pairs: Relation, bounds: Point) -> tuple[Array, Array]:
    """Return all pairs of a relation under actual bounds, as left rows and right rows."""
    rows = all_points(pairs_set(pairs), bounds)
    return rows[:, : len(pairs.left)], rows[:, len(pairs.left) :]
