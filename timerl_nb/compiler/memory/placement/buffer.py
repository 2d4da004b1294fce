"""An array of a lowered program, and the places in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from timerl_nb.compiler.ir.shapes import NUMPY, Shape
from timerl_nb.compiler.memory.placement.ring_sizes import Axis


@dataclass(frozen=True)
class Buffer:
    """An array that holds the values of one tensor, and of initial values that it continues.

    Attributes:
        axes: the places, outermost first.
        shape: of one value.
        fill: what is there before anything is written.
        tensors: their names, the recurrence's first.
        sizes: that shape as the program has it.
        beyond: what its places hold more than the store of the memory plan, and why.
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
        """The shape of the array."""
        return (*self.slot_counts, *self.shape)

    @property
    def nbytes(self) -> int:
        return prod(self.array_shape) * NUMPY[self.dtype].itemsize

    def place(self, coordinates: Sequence[Any]) -> tuple[Any, ...]:
        """Where the value of a point is in the array; or the values of several, from arrays."""
        return tuple(axis.place(coordinates[axis.coordinate]) for axis in self.axes)

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.slot_counts))
        held = " and ".join(self.tensors)
        kind = f"{self.dtype}{list(self.shape)}"
        more = f" ({self.beyond})" if self.beyond else ""
        places = f"[{shape}] places of" if shape else "a place of"
        return f"{self.name}: {held}: {places} {kind}, {self.nbytes:,} bytes{more}"
