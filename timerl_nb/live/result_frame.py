"""Results as tables of pandas, where that is installed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.errors import MissingPartError, OptionError, one_of
from timerl_nb.ir.selected import Coordinates


@dataclass(frozen=True)
class Along:
    """What outputs are stacked over.

    Attributes:
        outer: the dimension that turns are of, or else the first that an output has alone; `bound` is
            the name of its bound.
        dims: of each output by name.
    """

    outer: str | None = None
    bound: str | None = None
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


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


def output_frame(name: str, x: Array, at: Coordinates | None, dims: tuple[str, ...]) -> Any:
    """A row per number of one output, indexed by its dimensions and then by its axes."""
    pandas = _pandas()
    places: list[Array] = [*np.unravel_index(np.arange(x.size), x.shape)] if x.ndim else []
    if at is not None:  # one after the other, of places of their own
        row, *places = places
        places = [*(at[d][row] for d in dims), *places]
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
