"""What a run needs to go on between two turns: values by tensor and point, whoever held them, and what is not in values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.loops.iteration_cuts import Cut
from timerl_nb.runtime.state.run_folder import damaged_run_file_error

# The points of a tensor that are held, a row each, and their values, one after the other.
Held = tuple[Array, Array]


@dataclass(frozen=True)
class RunState:
    """A run between two turns.

    Attributes:
        seed: of all random streams, whose draws depend on nothing else but where they are made.
        turn: how many turns are done.
        cut: where that is in the loop nest; None at its end.
        values: what is needed still, or returned.
        lengths: a dynamic bound at every point of what it varies over, its ceiling where it is not
            known yet.
        resources: what those on the host said of themselves, in the order of the program.
    """

    seed: int
    turn: int
    cut: Cut | None
    values: Mapping[Tensor, Held]
    lengths: Array | None = None
    resources: Sequence[Mapping[str, Array]] = field(default_factory=tuple[Mapping[str, Array]])

    @property
    def nbytes(self) -> int:
        """The bytes of the values."""
        return sum(points.nbytes + values.nbytes for points, values in self.values.values())

    def arrays(self, names: Mapping[Tensor, str]) -> dict[str, Array]:
        """All that is in arrays, by name."""
        found: dict[str, Array] = {}
        for tensor, (points, values) in self.values.items():
            found |= {_POINTS + names[tensor]: points, _VALUES + names[tensor]: values}
        if self.lengths is not None:
            found[_LENGTHS] = self.lengths
        for k, arrays in enumerate(self.resources):
            found |= {f"resource {k}: {name}": array for name, array in arrays.items()}
        return found


class Saved:
    """What was saved of a run, in arrays by name.

    Args:
        path: the file that they were in.
        resources: how many there are to be.

    Attributes:
        values: by the names of tensors.
        lengths, resources: as in a state.

    Raises:
        ExecutionError: points without values, or values without points.
    """

    def __init__(self, path: Path, arrays: Mapping[str, Array], resources: int) -> None:
        def arrays_with_prefix(start: str) -> dict[str, Array]:
            return {n.removeprefix(start): x for n, x in arrays.items() if n.startswith(start)}

        points, values = arrays_with_prefix(_POINTS), arrays_with_prefix(_VALUES)
        for name in points.keys() | values.keys():
            if not _are_of(points.get(name), values.get(name)):
                raise damaged_run_file_error(
                    path, f"does not hold a value of {name!r} for each of its points"
                )
        self.values = {name: (points[name], found) for name, found in values.items()}
        self.lengths = arrays.get(_LENGTHS)
        self.resources = [arrays_with_prefix(f"resource {k}: ") for k in range(resources)]


def _are_of(points: Array | None, values: Array | None) -> bool:
    """Whether there are as many values as points, which are rows of integers."""
    if points is None or values is None or not values.ndim:
        return False
    return points.ndim == 2 and points.dtype.kind == "i" and len(points) == len(values)


_POINTS, _VALUES, _LENGTHS = "points of ", "values of ", "lengths"
