"""View-model of the values that a paused run holds: heat maps with named axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.execution.results.live_values import LiveValues
from timerl_nb.show.view_model import View, amounts, ints

MOST: Final = 48  # rows and columns of a heat map
_NAN, _PLUS, _MINUS = 1, 2, 3


@dataclass(frozen=True)
class HeatMapAxis:
    """Axis of a heat map.

    Attributes:
        name: the dimensions and axes along it, such as `t` or `t, axis 0`.
        size: the number of values along it.
        labels: the positions of the first value of each cell, such as `3` or `3, 0`.
    """

    name: str
    size: int
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Values of one tensor as a table of cells.

    Attributes:
        name: the name of the tensor.
        op_ids: the operation that computes it.
        dtype: its element type.
        rows, columns: the axes.
        cells: float64 (rows * columns,), row by row, the mean of the finite values of each cell; 0 if there are none.
        marks: int32 (rows * columns,), 1 for a cell with a NaN, 2 with infinity, 3 with minus infinity, else 0.
        least, most: the range of the finite values; None if there are none.
        nans: the number of NaNs.
        infinities: the number of infinite values.
    """

    name: str
    op_ids: tuple[int, ...]
    dtype: str
    rows: HeatMapAxis
    columns: HeatMapAxis
    cells: Array
    marks: Array
    least: float | None
    most: float | None
    nans: int
    infinities: int

    def __str__(self) -> str:
        axes = " × ".join(
            f"{one.size} along {one.name or 'one row'}" for one in (self.rows, self.columns)
        )
        found = "no finite value" if self.least is None else f"{self.least:.4g} to {self.most:.4g}"
        odd = [
            f"{n:,} {what}" for n, what in ((self.nans, "NaN"), (self.infinities, "infinite")) if n
        ]
        return f"{self.name}: {self.dtype}, {axes}: {', '.join([found, *odd])}"


@dataclass(frozen=True)
class ValuesView(View):
    """Values that a paused run holds, as heat maps.

    Attributes:
        at: the position of the run, such as `after 3 iterations`.
        maps: a heat map for each tensor.
        missing: names of tensors without a value now.

    Example:
        >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
        >>> with program.start(paused=True) as run:
        ...     run.step(3)
        ...     ok = run.wait()
        ...     view = trl.show.ValuesView.from_values(run.live_values(), "after 3 iterations")
        >>> [one.columns.size for one in view.maps if one.name == "actor.weight'"]
        [2]
    """

    view = "values"

    at: str
    maps: tuple[HeatMap, ...]
    missing: tuple[str, ...] = ()

    @classmethod
    def from_values(
        cls,
        values: Mapping[str, LiveValues],
        at: str = "",
        tensors: Mapping[Tensor, str] | None = None,
    ) -> ValuesView:
        """Return heat maps of values.

        Args:
            values: values by the names of their tensors, as from `Running.live_values`.
            at: the position of the run.
            tensors: the tensors to show, with their names; all by default.
        """
        shown = {n: one for n, one in values.items() if tensors is None or one.tensor in tensors}
        found = {one.tensor for one in shown.values()}
        missing = (name for tensor, name in (tensors or {}).items() if tensor not in found)
        maps = tuple(_heat_map(name, one) for name, one in shown.items())
        return cls(at, maps, tuple(missing))

    def __str__(self) -> str:
        lines = [str(one) for one in self.maps]
        lines += [f"{name}: no value is stored at this instant" for name in self.missing]
        return "\n".join([f"values {self.at}" if self.at else "values", *lines])


@dataclass(frozen=True)
class _Side:
    """Side of a table: the names of its coordinates, its length, and the coordinates of row or column k."""

    names: Sequence[str]
    size: int
    place: Callable[[int], Iterable[int]]

    def axis(self) -> HeatMapAxis:
        labels = (", ".join(map(str, self.place(k))) for k in _edges(self.size).tolist())
        return HeatMapAxis(", ".join(self.names), self.size, tuple(labels))


def _heat_map(name: str, live: LiveValues) -> HeatMap:
    """Return the values of a tensor as a matrix: the last axis as columns, points and other axes as rows."""
    values = np.asarray(live.values)
    order = np.lexsort(live.points.T[::-1]) if live.dims else np.arange(len(values))
    points, values = live.points[order], values[order]
    if values.ndim == 1:
        table, rows, columns = _arrange_numbers(points, live.dims, values)
    else:
        names = [axis or f"axis {k}" for k, axis in enumerate(live.axes)]
        inner = values.shape[1:-1]
        each = prod(inner)
        rows = _Side(
            (*live.dims, *names[:-1]),
            len(points) * each,
            lambda k: (*points[k // each], *np.unravel_index(k % each, inner)),
        )
        columns = _Side(names[-1:], values.shape[-1], lambda k: (k,))
        table = values.reshape(rows.size, columns.size)
    numbers = table.astype(np.float64)
    finite = np.isfinite(numbers)
    cells, marks = _cells(numbers, finite)
    known = numbers[finite]
    return HeatMap(
        name,
        (live.tensor[0],),
        str(values.dtype),
        rows.axis(),
        columns.axis(),
        amounts(cells.ravel()),
        ints(marks.ravel()),
        float(known.min()) if len(known) else None,
        float(known.max()) if len(known) else None,
        int(np.isnan(numbers).sum()),
        int(np.isinf(numbers).sum()),
    )


def _arrange_numbers(
    points: Array, dims: Sequence[str], values: Array
) -> tuple[Array, _Side, _Side]:
    """Arrange one number per point: the last dimension that varies along the columns, the others along the rows.

    Points that fill no rectangle, such as a triangle, become one row.
    """
    last = next((k for k in reversed(range(len(dims))) if len(np.unique(points[:, k])) > 1), None)
    if last is not None and len(dims) > 1:
        rest = [k for k in range(len(dims)) if k != last]
        rows, row_of = np.unique(points[:, rest], axis=0, return_inverse=True)
        columns, column_of = np.unique(points[:, last], return_inverse=True)
        if len(rows) * len(columns) == len(values):
            table = np.empty((len(rows), len(columns)), values.dtype)
            table[row_of.reshape(-1), column_of] = values
            above = _Side([dims[k] for k in rest], len(rows), lambda k: rows[k])
            return table, above, _Side([dims[last]], len(columns), lambda k: (columns[k],))
    return (
        values.reshape(1, -1),
        _Side((), 1, lambda _: ()),
        _Side(dims, len(points), lambda k: points[k]),
    )


def _cells(numbers: Array, finite: Array) -> tuple[Array, Array]:
    """Return the mean and the mark of each cell."""
    edges = [_edges(size) for size in numbers.shape]

    def total(x: Array) -> Array:
        for axis, starts in enumerate(edges):
            x = np.add.reduceat(x, starts, axis=axis) if x.shape[axis] else x
        return x

    counts = total(finite.astype(np.int64))
    cells = total(np.where(finite, numbers, 0.0)) / np.maximum(counts, 1)
    marks = np.zeros(cells.shape, np.int32)
    for mark, found in (
        (_MINUS, np.isneginf(numbers)),
        (_PLUS, np.isposinf(numbers)),
        (_NAN, np.isnan(numbers)),
    ):
        marks[total(found.astype(np.int64)) > 0] = mark
    return cells, marks


def _edges(size: int) -> Array:
    """Return the first value of each cell along an axis."""
    return np.unique(np.linspace(0, size, min(size, MOST), endpoint=False).astype(np.int64))
