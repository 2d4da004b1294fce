"""Conversion of results to pandas data frames. pandas is an optional dependency."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import MissingPartError, OptionError, one_of
from timerl_nb.compiler.ir.analysis.partial_outputs import Coordinates


@dataclass(frozen=True)
class Rows:
    """Batched runs with several seeds: the batch dimension, and the seed of each row."""

    dim: str
    seeds: range

    def select_run(
        self, s: int, x: Array, at: Coordinates | None
    ) -> tuple[Array, Coordinates | None]:
        """Return the values of one run, and their coordinates."""
        if at is None:
            return x[s], None
        here = at[self.dim] == s
        return x[here], {d: places[here] for d, places in at.items() if d != self.dim}

    @property
    def to_json_data(self) -> dict[str, Any]:
        """JSON form, for result files."""
        return {"dim": self.dim, "seeds": [self.seeds.start, self.seeds.stop]}


@dataclass(frozen=True)
class OutputDimensions:
    """Dimensions that outputs are stacked over.

    Attributes:
        outer: Dimension of the outermost loop, or else the first dimension that some output has alone.
        bound: Name of the bound of `outer`.
        dims: Dimensions of each output, by name.
        rows: Batched runs along the first dimension of every output; None for a single run.
    """

    outer: str | None = None
    bound: str | None = None
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    rows: Rows | None = None

    def of_one(self) -> OutputDimensions:
        """Return the dimensions of one run of a batch."""
        return replace(self, dims={n: dims[1:] for n, dims in self.dims.items()}, rows=None)


def turns_frame(
    values: Mapping[str, Array],
    coordinates: Mapping[str, Coordinates],
    lengths: Mapping[str, Array],
    along: OutputDimensions,
) -> Any:
    """Return a frame with a row per point of `along.outer`, and a column per scalar output there."""
    pandas, outer = _pandas(), along.outer
    names = [n for n, x in values.items() if along.dims.get(n) == (outer,) and x.ndim == 1]
    if outer is None or not names:
        raise OptionError(
            "no output is one number per turn, so a table of turns has no columns.",
            hint=f"call result.frame(name) for the table of one output: {one_of('', list(values))}.",
        )
    length = lengths.get(along.bound or "")
    columns: dict[str, Any] = {}
    for name in names:
        x = _plain(values[name])
        x = x if length is None or length.ndim else x[: int(length)]
        at = coordinates[name][outer] if name in coordinates else np.arange(len(x))
        columns[name] = pandas.Series(x, index=at)
    made = pandas.DataFrame(columns)
    made.index.name = outer
    return made


def seeds_frame(tables: Mapping[int, Any], dim: str) -> Any:
    """Concatenate the frames of all seeds; the seed is the first index level."""
    return _pandas().concat(tables, names=[dim])


def output_frame(name: str, x: Array, at: Coordinates | None, along: OutputDimensions) -> Any:
    """Return a frame with a row per element of one output, indexed by dimensions, then by axes."""
    pandas, dims = _pandas(), along.dims.get(name, ())
    places: list[Array] = [*np.unravel_index(np.arange(x.size), x.shape)] if x.ndim else []
    if at is not None:  # the first axis enumerates defined points; `at` has their coordinates
        row, *places = places
        places = [*(at[d][row] for d in dims), *places]
    if along.rows is not None:
        places[0] = np.array([along.rows.seeds[s] for s in places[0]])
    axes = [f"axis {k}" for k in range(len(places) - len(dims))]
    levels = dict(zip([*dims, *axes], places, strict=True))
    index = None
    if levels:
        index = pandas.MultiIndex.from_arrays(list(levels.values()), names=list(levels))
    if len(levels) == 1:
        ((level, points),) = levels.items()
        index = pandas.Index(points, name=level)
    return pandas.DataFrame({name: _plain(x).ravel()}, index=index)


def _plain(x: Array) -> Array:
    """Convert to float32 if pandas does not know the element type."""
    return x if x.dtype.kind in "biuf" else x.astype(np.float32)


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise MissingPartError(
            f"a frame needs pandas, and pandas cannot be imported: {error}.",
            hint="pip install 'timerl-nb[frame]', or use the NumPy arrays result[name].",
        ) from error
