"""Values that a run holds between two iterations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.runtime.state.resumable_state import StoredValues


@dataclass(frozen=True, eq=False)
class LiveValues:
    """Values of one tensor that later iterations read.

    Attributes:
        tensor: Id of the operation that computes the tensor, and the number of its output.
        dims: Dimensions of the tensor's points, one per column of `points`.
        points: int64 (n, len(dims)). The points of the values.
        axes: Names of the axes of one value: the dimension that an axis replaces (its bound, if several dimensions
            have this bound), or "" for an axis of a constant size.
        values: (n, ...). A copy of the value at each point, which the caller may change.
    """

    tensor: Tensor
    dims: tuple[str, ...]
    points: Array
    axes: tuple[str, ...]
    values: Array

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.values.shape[1:]))
        at = f"{len(self.points)} points of ({', '.join(self.dims)})"
        return f"LiveValues({self.values.dtype}[{shape}] at {at})"


def name_values(plan: MemoryPlan, held: Mapping[Tensor, StoredValues]) -> dict[str, LiveValues]:
    """Return live values by the names of their tensors; tensors without a value are omitted."""
    dims = plan.pdg.dims

    def name_axis(size: object) -> str:
        same = [dim.name for dim in dims if dim.bound == str(size)]
        return "" if isinstance(size, int) else same[0] if len(same) == 1 else str(size)

    found: dict[str, LiveValues] = {}
    for tensor, (points, values) in held.items():
        output = plan.pdg[tensor[0]].outputs[tensor[1]]
        axes = tuple(map(name_axis, output.type.shape))
        if len(points):
            found[plan.names[tensor]] = LiveValues(tensor, output.domain, points, axes, values)
    return found
