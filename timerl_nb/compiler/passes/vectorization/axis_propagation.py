"""Propagation of axes: from an axis of an operation's result to the axes of its operands.

An operation propagates an axis if positions lo to hi of the result need only positions lo to hi of some
axis of each operand, and everything or nothing of operands without the axis. A rule returns this axis for
each operand, or None for operands without it, such as broadcast ones. `PROPAGATION` has each kind's rule,
and `NO_PROPAGATION` the reasons for kinds without one. An inapplicable rule raises `Refused`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from timerl_nb.compiler.ir.operation_attributes import (
    ConvAttrs,
    GatherAttrs,
    JaxedAttrs,
    ReindexAttrs,
    ScatterAttrs,
    SetAttrs,
)
from timerl_nb.compiler.ir.operation_kinds import ELEMENTWISE, REDUCTIONS
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import HALF, Shape
from timerl_nb.compiler.passes.vectorization.batching_rules import Labelled, Refused
from timerl_nb.compiler.symbolic.index_expressions import lin

Axes = tuple[int | None, ...]

Rule = Callable[[Op, int, Sequence[Shape]], Axes]


def _elementwise(op: Op, axis: int, shapes: Sequence[Shape]) -> Axes:
    """Broadcast operands do not have the axis; `expand` has the same rule."""
    return tuple(axis if shape and shape[axis] != 1 else None for shape in shapes)


def _reduction(op: Op, axis: int, shapes: Sequence[Shape]) -> Axes:
    attrs: Any = op.attrs
    gone = attrs.axes if op.kind in REDUCTIONS else (attrs.axis,)
    return ([k for k in range(len(shapes[0])) if k not in gone][axis],)


def _unless_own_axis(op: Op, axis: int, shapes: Sequence[Shape]) -> Axes:
    if axis == op.attrs.axis:
        raise Refused(f"{op.kind} needs the whole axis")
    return (axis,) * len(shapes)


def _by_label(op: Op, axis: int, shapes: Sequence[Shape]) -> Axes:
    label = op.attrs.out[axis]
    if label in _own_labels(op.attrs):
        raise Refused(f"{op.kind} needs the whole axis")
    return _axes_of_label(op.attrs, label)


def _scatter_set(op: Op, axis: int, shapes: Sequence[Shape]) -> Axes:
    """The first operand and the result have the same axes."""
    return (axis, *_by_label(op, axis, shapes))


def _own_labels(attrs: Labelled) -> str:
    """Return the labels of axes with other arithmetic than products and sums."""
    if isinstance(attrs, ConvAttrs):
        return "".join(s.label for s in attrs.sweeps)
    return attrs.axis if isinstance(attrs, GatherAttrs | ScatterAttrs | SetAttrs) else ""


def _axes_of_label(attrs: Labelled, label: str) -> Axes:
    both = (attrs.left, attrs.right)
    if any(labels.count(label) > 1 for labels in both):
        raise Refused("it takes a diagonal")
    return tuple(labels.index(label) if label in labels else None for labels in both)


def _reshape(op: Op, axis: int, shapes: Sequence[Shape]) -> Axes:
    """Axes of size 1 may appear or disappear; no other axes may be joined or split."""
    (old,), new = shapes, op.shape
    kept = [[lin(s) for s in shape if s != 1] for shape in (old, new)]
    if kept[0] != kept[1]:
        raise Refused("reshape moves elements between the axis and others")
    number = sum(s != 1 for s in new[:axis])
    return ([k for k, s in enumerate(old) if s != 1][number],)


def _matrix(op: Op, axis: int, shapes: Sequence[Shape]) -> Axes:
    if axis >= len(op.shape) - 2:
        raise Refused(f"{op.kind} needs a whole matrix")
    return (axis,)


def _reindex(op: Op, axis: int, shapes: Sequence[Shape]) -> Axes:
    """Along its own axis it reads any position of its operand, so the operand stays whole."""
    attrs: ReindexAttrs = op.attrs
    if attrs.size is None:
        return (axis if axis < attrs.axis else axis + 1,)
    return (axis if axis != attrs.axis else None,)


def _created_axis(op: Op, axis: int, shapes: Sequence[Shape]) -> Axes:
    if axis >= len(op.attrs.axes):
        raise Refused("the value of one point is produced as a whole")
    return ()


def _jax_function(op: Op, axis: int, shapes: Sequence[Shape]) -> Axes:
    attrs: JaxedAttrs = op.attrs
    if axis >= len(attrs.axes):
        raise Refused("its function returns whole values")
    before = attrs.along[:axis]
    return tuple(
        sum(other[k] for other in before) if has else None
        for k, has in enumerate(attrs.along[axis])
    )


PROPAGATION: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(sorted(ELEMENTWISE), _elementwise),
    **dict.fromkeys((*REDUCTIONS, "argmax", "argmin", "discounted_sum"), _reduction),
    **dict.fromkeys(("linear_scan", "argsort", "concat"), _unless_own_axis),
    **dict.fromkeys(("sliding_sum", "sliding_max", "sliding_min"), _unless_own_axis),
    **dict.fromkeys(("rng", "data", "value"), _created_axis),
    **dict.fromkeys(("dot", "conv", "gather", "scatter_add"), _by_label),
    "scatter_set": _scatter_set,
    "orthonormal": _matrix,
    "jaxed": _jax_function,
    "reshape": _reshape,
    "expand": _elementwise,
    "transpose": lambda op, axis, shapes: (op.attrs.perm[axis],),
    "reindex": _reindex,
}
NO_PROPAGATION: Final[Mapping[str, str]] = {
    "const": "a constant always exists as a whole",
    "merge": "its branches are produced as a whole",
    "accumulate": "its slot cannot be divided",
    "dataflow": "regions are fused after incrementalisation",
    "udf": "its function returns whole values",
    "output": "the run returns whole values",
    "bound": "the condition that ends a dimension is one value",
    "checkpoint": "files hold whole values",
    "call": "its function takes whole values",
}


def propagate_axis(op: Op, axis: int, shapes: Sequence[Shape]) -> Axes:
    """Return the axis of each operand for an axis of the operation's result.

    Args:
        op: the operation.
        axis: the axis of the result.
        shapes: the shapes of the operands.

    Raises:
        Refused: the operation does not propagate the axis.
    """
    if op.kind in NO_PROPAGATION:
        raise Refused(NO_PROPAGATION[op.kind])
    return PROPAGATION[op.kind](op, axis, shapes)


def contracted_axes(op: Op) -> list[Axes]:
    """Return the axis of each operand, for each summed axis of a reduction or contraction.

    Raises:
        Refused: the operation sums over several axes of one operand together.
    """
    if op.dtype in HALF:  # a half-precision slot would be rounded at every block
        return []
    if op.kind in REDUCTIONS:
        return [(axis,) for axis in op.attrs.axes]
    if op.kind not in ("dot", "conv", "scatter_add"):
        return []
    attrs: Labelled = op.attrs
    gone = [x for x in dict.fromkeys(attrs.left + attrs.right) if x not in attrs.out]
    return [_axes_of_label(attrs, label) for label in gone]
