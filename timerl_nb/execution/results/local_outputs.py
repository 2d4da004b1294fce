"""Outputs of one process of a distributed program (`Result.local`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.compiler.ir.analysis.partial_outputs import Coordinates
from timerl_nb.runtime.output_assembly import OwnPart


@dataclass(frozen=True)
class LocalOutputs(Mapping[str, Array]):
    """Outputs of one process: a mapping of names to NumPy arrays.

    A distributed program divides one dimension among its processes. Outputs with this dimension are
    restricted to the points of this process. All other outputs are complete.

    Attributes:
        dim: Name of the divided dimension; None in a program of one process.
        points: Points of this process in the divided dimension; None in a program of one process.
        coordinates: As `Result.coordinates`, for the points of this process.

    Example:
        >>> ctx.output("root", trl.sqrt(trl.data(np.arange(3.0), domain=i)))
        >>> local = ctx.compile({B: 1, I: 3, T: 1}).execute().local
        >>> local.points, local["root"].shape  # one process: everything is local
        (None, (3,))
    """

    dim: str | None
    points: range | None
    _arrays: Mapping[str, Array] = field(repr=False)
    coordinates: Mapping[str, Coordinates] = field(repr=False)

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            raise OptionError(
                f"the result has no output {name!r}.", hint=one_of(name, list(self._arrays))
            )
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{k}: {v.dtype}{list(v.shape)}" for k, v in self._arrays.items())
        span = "all points" if self.points is None else f"{self.dim} = {format_span(self.points)}"
        return f"LocalOutputs({shapes}; {span})"


def format_span(points: range) -> str:
    """Return the first and the last of some points."""
    return f"{points.start} to {points.stop - 1}"


def restrict_outputs(
    outputs: Mapping[str, Array],
    coordinates: Mapping[str, Coordinates],
    dims: Mapping[str, tuple[str, ...]],
    own: OwnPart | None,
    parts: Mapping[str, Array],
) -> LocalOutputs:
    """Return the outputs of one process.

    Args:
        outputs: Complete outputs.
        coordinates: Positions of the values of conditional outputs, complete or partial like their values.
        dims: Dimensions of each output.
        own: Part of this process; None in a program of one process.
        parts: Outputs of which this process has only its own part.
    """
    if own is None:
        return LocalOutputs(None, None, outputs, coordinates)
    points = own.points
    arrays, places = {**outputs, **parts}, dict(coordinates)
    for name, x in outputs.items():
        if own.dim not in dims.get(name, ()):
            continue
        if name in coordinates:
            at = coordinates[name][own.dim]
            here = (at >= points.start) & (at < points.stop)
            arrays[name] = x[here]
            places[name] = {d: found[here] for d, found in coordinates[name].items()}
            continue
        index: list[Any] = [slice(None)] * dims[name].index(own.dim)
        arrays[name] = x[(*index, slice(points.start, points.stop))]
    return LocalOutputs(own.dim, points, arrays, places)
