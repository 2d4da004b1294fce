"""How large things are under actual bounds.

An axis of symbolic length has a static capacity: the greatest length at any point (semantics.md §3).
"""

from __future__ import annotations

from math import prod

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Op, Read, is_sliced
from timerl_nb.compiler.ir.shapes import NUMPY, Shape, Size, TensorType
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Slice

# A slice of more points than this is gathered into one array before the kernel that reads it runs.
MANY = 16


def moving_symbols(pdg: Pdg, op: Op) -> frozenset[str]:
    """The symbols that have another value at another point of an operation."""
    return frozenset((*op.domain, *pdg.dims.lengths(op.domain)))


class Sizes:
    """Capacities and bytes of a graph's values under actual bounds."""

    def __init__(self, pdg: Pdg, bounds: Point) -> None:
        self.pdg, self.bounds = pdg, bounds
        self._capacities: dict[tuple[int, Size], int] = {}
        self._varying: dict[tuple[int, Size], bool] = {}

    def capacity(self, op: Op, size: Size) -> int:
        """The greatest value of a size at any point of an operation's domain."""
        if isinstance(size, int):
            return size
        key = (op.id, size)
        if key not in self._capacities:
            moving = size.symbols.intersection(moving_symbols(self.pdg, op))
            points = self.pdg.points(op)
            value = points.greatest(size, self.bounds) if moving else evaluate(size, self.bounds)
            self._capacities[key] = max(0, value)
        return self._capacities[key]

    def varies(self, op: Op, size: Size) -> bool:
        """Whether an axis is shorter than its capacity at some point of an operation's domain.

        Blocks whose size divides what they are cut from are not.
        """
        if isinstance(size, int) or not size.symbols & moving_symbols(self.pdg, op):
            return False
        key = (op.id, size)
        if key not in self._varying:
            least = -self.pdg.points(op).greatest(-size, self.bounds)
            self._varying[key] = least < self.capacity(op, size)
        return self._varying[key]

    def shape(self, op: Op, shape: Shape) -> tuple[int, ...]:
        return tuple(self.capacity(op, s) for s in shape)

    def type_bytes(self, op: Op, kind: TensorType) -> int:
        return prod(self.shape(op, kind.shape)) * NUMPY[kind.dtype].itemsize

    def output_bytes(self, op: Op, out: int) -> int:
        """Bytes of one value of an output."""
        return self.type_bytes(op, op.outputs[out].type)

    def point_shape(self, read: Read) -> tuple[int, ...]:
        """The shape of one point's value of what is read."""
        return self.shape(self.pdg[read.source], self.pdg.output(read).type.shape)

    def span(self, op: Op, read: Read) -> int:
        """How many points a read's slices span at most; 1 where it has none."""
        return prod(self.capacity(op, e.length) for e in read.index if isinstance(e, Slice))

    def is_gathered(self, op: Op, read: Read) -> bool:
        """Whether a read is gathered into one array before the kernel runs."""
        return is_sliced(read) and self.span(op, read) > MANY

    def gathered_bytes(self, op: Op, read: Read) -> int:
        """Bytes of one operand if it is gathered before the kernel runs, else 0."""
        if op.kind == "udf" or not self.is_gathered(op, read):  # that gathers on the host
            return 0
        return self.span(op, read) * self.point_bytes(read)

    def point_bytes(self, read: Read) -> int:
        """Bytes of one point's value of what is read."""
        return prod(self.point_shape(read)) * NUMPY[self.pdg.output(read).type.dtype].itemsize
