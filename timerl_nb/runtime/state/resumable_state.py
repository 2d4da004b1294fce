"""State of a run between two iterations: live values, dynamic bounds, and resources on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.loops.iteration_cuts import Cut
from timerl_nb.runtime.state.run_folder import damaged_run_file_error

# Points of a tensor, one per row, and the values at these points.
StoredValues = tuple[Array, Array]


@dataclass(frozen=True)
class RunState:
    """State of a run between two iterations.

    Attributes:
        seed: Seed of all random streams. Draws depend only on it and on their position.
        turn: Number of completed iterations.
        cut: Position in the loop nest; None at its end.
        values: Live values, and values of outputs.
        lengths: Each dynamic bound at every point, by name; its ceiling if it is unknown.
        resources: State of each resource on the host, in the order of the program.
    """

    seed: int
    turn: int
    cut: Cut | None
    values: Mapping[Tensor, StoredValues]
    lengths: Mapping[str, Array] = field(default_factory=dict[str, Array])
    resources: Sequence[Mapping[str, Array]] = field(default_factory=tuple[Mapping[str, Array]])

    @property
    def nbytes(self) -> int:
        """Total bytes of points and values."""
        return sum(points.nbytes + values.nbytes for points, values in self.values.values())

    def arrays(self, names: Mapping[Tensor, str]) -> dict[str, Array]:
        """Return all arrays of the state, by the names used in files."""
        found: dict[str, Array] = {}
        for tensor, (points, values) in self.values.items():
            found |= {_POINTS + names[tensor]: points, _VALUES + names[tensor]: values}
        only = len(self.lengths) == 1
        for name, lengths in self.lengths.items():
            found[_LENGTHS if only else f"{_LENGTHS} of {name}"] = lengths
        for k, arrays in enumerate(self.resources):
            found |= {f"resource {k}: {name}": array for name, array in arrays.items()}
        return found


class Saved:
    """Arrays of a saved state.

    Args:
        path: File of the arrays.
        arrays: Arrays by the names used in files.
        resources: Number of resources.

    Attributes:
        values: Points and values, by the name of the tensor.
        lengths: As in `RunState`; a single bound has the name "".
        resources: As in `RunState`.

    Raises:
        ExecutionError: A tensor has points without values, or values without points.
    """

    def __init__(self, path: Path, arrays: Mapping[str, Array], resources: int) -> None:
        def arrays_with_prefix(start: str) -> dict[str, Array]:
            return {n.removeprefix(start): x for n, x in arrays.items() if n.startswith(start)}

        points, values = arrays_with_prefix(_POINTS), arrays_with_prefix(_VALUES)
        for name in points.keys() | values.keys():
            if not _are_of(points.get(name), values.get(name)):
                raise damaged_run_file_error(
                    path, f"does not have a value of {name!r} for each of its points"
                )
        self.values = {name: (points[name], found) for name, found in values.items()}
        self.lengths = arrays_with_prefix(f"{_LENGTHS} of ")
        if _LENGTHS in arrays:
            self.lengths[""] = arrays[_LENGTHS]
        self.resources = [arrays_with_prefix(f"resource {k}: ") for k in range(resources)]


def _are_of(points: Array | None, values: Array | None) -> bool:
    """Whether `points` are rows of integers, with one value each."""
    if points is None or values is None or not values.ndim:
        return False
    return points.ndim == 2 and points.dtype.kind == "i" and len(points) == len(values)


_POINTS, _VALUES, _LENGTHS = "points of ", "values of ", "lengths"
