"""All points of a set as the rows of an array: one dimension at a time, by its bounds in the others.

Unlike isl's own listing, and unlike a grid with a mask, it takes time and memory in proportion to the
points that there are.
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
    """Lists the points of a set under actual bounds, again and again for other values of its first dimensions.

    Args:
        known: how many of the first dimensions are given when it is asked.
    """

    def __init__(self, points: Set, bounds: Point, known: int = 0) -> None:
        raw, n = points.with_bounds(bounds).raw, len(points.domain)
        self._bounds, self._domain, self._known = dict(bounds), points.domain, known
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
        """Every point that begins so, one row each, in lexicographic order."""
        rows = np.array([known], np.int64).reshape(1, self._known)
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
    """One dimension of a set in terms of those before it.

    Attributes:
        low, high: from where to where it goes; there is one value where no `high` is given.
        there: what must hold besides, if there may be holes.
    """

    low: Lin
    high: Lin | None = None
    there: Cond | None = None


def _column(upto: isl.Set, k: int, points: Set) -> _Column:
    """The last dimension of a set's first k + 1."""
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
    """Every point of a set under actual bounds, one row each, in lexicographic order."""
    return Listing(points, bounds).points()


def pairs_set(pairs: Relation) -> Set:
    """The pairs of a relation as points: those of its left side, and then of its right, primed."""
    names = (*pairs.left, *map(primed_name, pairs.right))
    return Set(pairs.dims, names, pairs.raw.wrap().flatten())


def all_pairs(pairs: Relation, bounds: Point) -> tuple[Array, Array]:
    """Every pair of a relation under actual bounds: the rows of its two sides."""
    rows = all_points(pairs_set(pairs), bounds)
    return rows[:, : len(pairs.left)], rows[:, len(pairs.left) :]
