"""All points of a set as the rows of an array: one dimension at a time, by its bounds in the others.

Unlike isl's own listing, and unlike a grid with a mask, it takes time and memory in proportion to the
points that there are.
"""

# islpy's stubs lack the enumerations whose names end in an underscore.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import Any

import islpy as isl
import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.symbolic.arrays import values
from timerl_nb.symbolic.ceiling import coalesced, spend
from timerl_nb.symbolic.polyhedra import Point, Relation, Set, primed, pw_expression

_SET, _IN = isl.dim_type.set, isl.dim_type.in_


def all_points(points: Set, bounds: Point) -> Array:
    """Every point of a set under actual bounds, one row each, in lexicographic order."""
    raw, n = points.at(bounds).raw, len(points.domain)
    if raw.is_empty():
        return np.zeros((0, n), np.int64)
    rows = np.zeros((1, 0), np.int64)
    for k in range(n):
        names = points.domain[: k + 1]
        upto = spend(isl.Set.project_out, raw, _SET, k + 1, n - k - 1)
        step = isl.Map.from_range(upto).move_dims(_IN, 0, _SET, 0, k)
        low = _column(spend(isl.Map.dim_min, step, 0), points, rows, bounds)
        if spend(isl.Map.is_single_valued, step):
            rows = np.concatenate([rows, low[:, None]], axis=1)
            continue
        high = _column(spend(isl.Map.dim_max, step, 0), points, rows, bounds)
        count = high - low + 1
        first = np.cumsum(count) - count
        spread = np.repeat(low - first, count) + np.arange(int(count.sum()))
        rows = np.concatenate([np.repeat(rows, count, axis=0), spread[:, None]], axis=1)
        parts = spend(isl.Set.compute_divs, coalesced(upto)).get_basic_sets()
        if len(parts) > 1 or parts[0].dim(isl.dim_type.div):  # there may be holes
            there = Set(points.dims, names, upto).condition()
            rows = rows[np.broadcast_to(values(there, _env(names, rows, bounds)), len(rows))]
    return rows


def all_pairs(pairs: Relation, bounds: Point) -> tuple[Array, Array]:
    """Every pair of a relation under actual bounds: the rows of its two sides."""
    names = (*pairs.left, *map(primed, pairs.right))
    rows = all_points(Set(pairs.dims, names, pairs.raw.wrap().flatten()), bounds)
    return rows[:, : len(pairs.left)], rows[:, len(pairs.left) :]


def _column(end: isl.PwAff, points: Set, rows: Array, bounds: Point) -> Array:
    """A function of a set's first dimensions at every row."""
    known = points.domain[: rows.shape[1]]
    e = pw_expression(end, known, points.dims.bounds)
    return np.broadcast_to(values(e, _env(known, rows, bounds)), len(rows))


def _env(names: tuple[str, ...], rows: Array, bounds: Point) -> dict[str, Any]:
    return {**bounds, **{name: rows[:, k] for k, name in enumerate(names)}}
