"""Results as tables of pandas, where that is installed."""

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
    """Runs side by side: the dimension that counts them, and the seed of each."""

    dim: str
    seeds: range

    def select_run(
        self, s: int, x: Array, at: Coordinates | None
    ) -> tuple[Array, Coordinates | None]:
        """Of an output, and of where its values are, those of one run."""
        if at is None:
            return x[s], None
        here = at[self.dim] == s
        return x[here], {d: places[here] for d, places in at.items() if d != self.dim}

    @property
    def to_json_data(self) -> dict[str, Any]:
        """As it is kept in files."""
        return {"dim": self.dim, "seeds": [self.seeds.start, self.seeds.stop]}


@dataclass(frozen=True)
class Along:
    """What outputs are stacked over.

    Attributes:
        outer: the dimension that turns are of, or else the first that an output has alone; `bound` is
            the name of its bound.
        dims: of each output by name.
        rows: the runs side by side, along the first dimension of every output; None of one run.
    """

    outer: str | None = None
    bound: str | None = None
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    rows: Rows | None = None

    def of_one(self) -> Along:
        """Of one of the runs side by side."""
        return replace(self, dims={n: dims[1:] for n, dims in self.dims.items()}, rows=None)


def turns_frame(
    values: Mapping[str, Array],
    coordinates: Mapping[str, Coordinates],
    lengths: Mapping[str, Array],
    along: Along,
) -> Any:
    """A row per point of the outermost dimension, a column per output that is one number there."""
    pandas, outer = _pandas(), along.outer
    names = [n for n, x in values.items() if along.dims.get(n) == (outer,) and x.ndim == 1]
    if outer is None or not names:
        raise OptionError(
            "no output is one number per turn: there is no table of them.",
            hint=f"result.frame(name) is that of one output: {one_of('', list(values))}.",
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
    """The tables of runs side by side as one, behind their seeds."""
    return _pandas().concat(tables, names=[dim])


def output_frame(name: str, x: Array, at: Coordinates | None, along: Along) -> Any:
    """A row per number of one output, indexed by its dimensions and then by its axes."""
    pandas, dims = _pandas(), along.dims.get(name, ())
    places: list[Array] = [*np.unravel_index(np.arange(x.size), x.shape)] if x.ndim else []
    if at is not None:  # one after the other, of places of their own
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
    """An array of an element type that pandas knows."""
    return x if x.dtype.kind in "biuf" else x.astype(np.float32)


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise MissingPartError(
            f"a frame is a table of pandas, which cannot be imported: {error}.",
            hint="pip install 'timerl-nb[frame]', or pandas itself; result[name] are NumPy arrays.",
        ) from error
