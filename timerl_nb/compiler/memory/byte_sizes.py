"""Sizes of values under actual bounds.

An axis of symbolic length has a static capacity: the greatest length at any point.
"""

from __future__ import annotations

from math import prod

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Op, Read, is_sliced
from timerl_nb.compiler.ir.shapes import NUMPY, Shape, Size, TensorType
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Slice

# A slice of more points than this is gathered into one array before its kernel runs.
MANY = 16


def sizes_of(pdg: Pdg, bounds: Point) -> Sizes:
    """Return the sizes of a graph, cached with it: bounds and plans of one graph share them."""
    return pdg.analysis(_sizes, frozenset(bounds.items()))


def _sizes(pdg: Pdg, bounds: frozenset[tuple[str, int]]) -> Sizes:
    return Sizes(pdg, dict(bounds))


def moving_symbols(pdg: Pdg, op: Op) -> frozenset[str]:
    """Return the symbols with different values at different points of an operation."""
    return frozenset((*op.domain, *pdg.dims.lengths(op.domain)))


class Sizes:
    """Capacities and byte sizes of a graph's values under actual bounds.

    Attributes:
        temporaries: cached results of `kernel_temporaries`.
    """

    def __init__(self, pdg: Pdg, bounds: Point) -> None:
        self.pdg, self.bounds = pdg, bounds
        self.temporaries: dict[tuple[int, frozenset[int], frozenset[int]], int] = {}
        self._capacities: dict[tuple[int, Size], int] = {}
        self._varying: dict[tuple[int, Size], bool] = {}

    def capacity(self, op: Op, size: Size) -> int:
        """Return the greatest value of a size over an operation's domain."""
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
        """Return whether an axis is shorter than its capacity at some point of an operation.

        Blocks do not vary if their size divides the blocked length.
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
        """Return the bytes of one value of an output."""
        return self.type_bytes(op, op.outputs[out].type)

    def point_shape(self, read: Read) -> tuple[int, ...]:
        """Return the shape of one value of a read's source."""
        return self.shape(self.pdg[read.source], self.pdg.output(read).type.shape)

    def span(self, op: Op, read: Read) -> int:
        """Return the greatest number of points in a read's slices; 1 without slices."""
        return prod(self.capacity(op, e.length) for e in read.index if isinstance(e, Slice))

    def is_gathered(self, op: Op, read: Read) -> bool:
        """Return whether a read is gathered into one array before the kernel runs."""
        return is_sliced(read) and self.span(op, read) > MANY

    def gathered_bytes(self, op: Op, read: Read) -> int:
        """Return the bytes of an operand that is gathered before the kernel runs, else 0."""
        if op.kind == "udf" or not self.is_gathered(op, read):  # a udf gathers itself
            return 0
        return self.span(op, read) * self.point_bytes(read)

    def point_bytes(self, read: Read) -> int:
        """Return the bytes of one value of a read's source."""
        return prod(self.point_shape(read)) * NUMPY[self.pdg.output(read).type.dtype].itemsize
