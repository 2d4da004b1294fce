"""Independence of operations along an axis: whether each point of a dimension is computed separately.

An operation is independent if position k of its result needs only position k of each operand's axis for the
dimension, or operands without this axis. Nothing is reduced, shifted or looked up along it, so any range of
positions can be computed separately. `axis_propagation` has the rule of each kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from timerl_nb.compiler.ir.operation_attributes import (
    ConstAttrs,
    ReindexAttrs,
    RngAttrs,
    ValueAttrs,
)
from timerl_nb.compiler.ir.operations import OPERAND, Op, Tensor
from timerl_nb.compiler.ir.shapes import Shape
from timerl_nb.compiler.passes.vectorization.axis_propagation import propagate_axis
from timerl_nb.compiler.passes.vectorization.batching_rules import Refused
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import Lin

Axis = int | None
_LAID_OUT = RngAttrs | ConstAttrs | ValueAttrs


def axis_of(shape: Shape, dim: Dim) -> Axis:
    """Return the axis of a value with one position per point of a dimension; None if it has none.

    Raises:
        Refused: several axes have this length, or one has another length with the bound in it.
    """
    found = [k for k, s in enumerate(shape) if isinstance(s, Lin) and s.as_symbol == dim.bound]
    others = [s for k, s in enumerate(shape) if k not in found and isinstance(s, Lin)]
    odd = next((s for s in others if dim.bound in s.symbols), None)
    if odd is not None:
        raise Refused(f"one of its axes has {odd} positions")
    if len(found) > 1:
        raise Refused(f"it needs all points of {dim.name} at each of them")
    return found[0] if found else None


def result_axis(op: Op, shapes: Sequence[Shape], axes: Sequence[Axis], dim: Dim) -> Axis:
    """Return the axis of an operation's result for a dimension, from the axes of its operands.

    Args:
        op: the operation.
        shapes: the shapes of the operands.
        axes: the axes of the operands.
        dim: the dimension.

    Raises:
        Refused: a position of the result needs several, or other, positions of an operand.
    """
    axis, attrs = axis_of(op.shape, dim), op.attrs
    at_once = f"it needs all points of {dim.name} together"
    if isinstance(attrs, _LAID_OUT):
        mine = axis is not None and attrs.axes[axis : axis + 1] == (dim.name,)
        moved = not isinstance(attrs, ValueAttrs) and bool(attrs.starts)
        if axis is not None and (moved or not mine):
            raise Refused(at_once)
        return axis
    by_positions = isinstance(attrs, ReindexAttrs)
    if not by_positions and any(dim.bound in e.symbols for e in attrs.parameters):
        raise Refused(f"it depends on {dim.bound}")
    if axis is None:
        if any(one is not None for one in axes):
            raise Refused(at_once)
        return None
    if by_positions and axis == attrs.axis and attrs.size is not None:
        raise Refused(f"it reads other points of {dim.name} than its own")
    if propagate_axis(op, axis, shapes) != tuple(axes):
        raise Refused(at_once)
    return axis


def followed_through(
    body: Sequence[Op], shapes: Sequence[Shape], axes: Sequence[Axis], dim: Dim
) -> tuple[dict[Tensor, Axis], dict[int, str]]:
    """Return the axis of each independent operation of a kernel, and the reasons for dependent ones.

    Readers of dependent operations are in neither.

    Args:
        body: the operations.
        shapes: the shapes of the kernel's operands.
        axes: the axes of the kernel's operands.
        dim: the dimension.
    """
    known: dict[Tensor, Axis] = {(OPERAND, k): axis for k, axis in enumerate(axes)}
    sizes = {(OPERAND, k): shape for k, shape in enumerate(shapes)}
    why: dict[int, str] = {}
    for op in body:
        reads = [read.tensor for read in op.inputs]
        sizes[op.id, 0] = op.shape
        if any(tensor not in known for tensor in reads):
            continue  # its operand is refused already
        try:
            operands = [sizes[k] for k in reads], [known[k] for k in reads]
            known[op.id, 0] = result_axis(op, *operands, dim)
        except Refused as refusal:
            why[op.id] = str(refusal)
    return known, why
