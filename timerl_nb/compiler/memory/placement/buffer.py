"""Buffers of a lowered program, and the slots in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from timerl_nb.compiler.ir.shapes import NUMPY, Shape
from timerl_nb.compiler.memory.placement.ring_sizes import Axis


@dataclass(frozen=True)
class Buffer:
    """An array with the values of one tensor, and possibly of the initial values of its recurrence.

    Attributes:
        name: the name of the buffer.
        axes: the axes of slots, outermost first.
        shape: the shape of one value.
        dtype: the element type.
        fill: the content before the first write.
        tensors: the names of the tensors, starting with the recurrence.
        sizes: the shape of one value, with symbolic sizes.
        beyond: the reason for more slots than in the memory plan, or empty.
    """

    name: str
    axes: tuple[Axis, ...]
    shape: tuple[int, ...]
    dtype: str
    fill: float
    tensors: tuple[str, ...]
    sizes: Shape
    beyond: str = ""

    @property
    def slot_counts(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def array_shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return (*self.slot_counts, *self.shape)

    @property
    def nbytes(self) -> int:
        return prod(self.array_shape) * NUMPY[self.dtype].itemsize

    def place(self, coordinates: Sequence[Any]) -> tuple[Any, ...]:
        """Return the slot of a point; for arrays of coordinates, the slots of several points."""
        return tuple(axis.place(coordinates[axis.coordinate]) for axis in self.axes)

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.slot_counts))
        held = " and ".join(self.tensors)
        kind = f"{self.dtype}{list(self.shape)}"
        more = f" ({self.beyond})" if self.beyond else ""
        places = f"[{shape}] slots of" if shape else "one slot of"
        return f"{self.name}: {held}: {places} {kind}, {self.nbytes:,} bytes{more}"
