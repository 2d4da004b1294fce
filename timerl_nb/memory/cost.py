"""What a program would cost: a few numbers, for comparing candidates within one compilation.

A statement's point costs a launch and what its kernel does, the longer of its arithmetic and of
moving its operands and results.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from timerl_nb.ir.attrs import ConvAttrs, DotAttrs
from timerl_nb.ir.ops import OPERAND, DataflowAttrs, Op
from timerl_nb.ir.shapes import Shape
from timerl_nb.machine import Machine
from timerl_nb.memory.sizes import Sizes


def point_seconds(sizes: Sizes, op: Op, machine: Machine) -> float:
    """Seconds for one point of a statement."""
    if not isinstance(op.attrs, DataflowAttrs):
        return machine.launch
    work = sum(_seconds(sizes, op, inner, machine) for inner in op.attrs.body)
    return machine.launch + max(work, _moved(sizes, op) / machine.bandwidth)


def _moved(sizes: Sizes, op: Op) -> int:
    """Bytes of all operands and results."""
    read = sum(sizes.type_bytes(op, sizes.pdg.read_type(read)) for read in op.inputs)
    return read + sum(sizes.output_bytes(op, k) for k in range(len(op.outputs)))


def _seconds(sizes: Sizes, op: Op, inner: Op, machine: Machine) -> float:
    """What an operation inside a region computes."""
    assert isinstance(op.attrs, DataflowAttrs)
    body = {one.id: one for one in op.attrs.body}
    shapes: Sequence[Shape] = [
        sizes.pdg.read_type(op.inputs[r.out]).shape if r.source == OPERAND else body[r.source].shape
        for r in inner.inputs
    ]
    counts = [prod(sizes.shape(op, shape)) for shape in (*shapes, inner.shape)]
    if not isinstance(inner.attrs, DotAttrs | ConvAttrs):
        return max(counts) / machine.elements
    attrs = inner.attrs
    right = zip(attrs.right, sizes.shape(op, shapes[1]), strict=True)
    products = counts[-1] * prod(n for label, n in right if label not in attrs.out)
    return 2 * products / machine.flops
