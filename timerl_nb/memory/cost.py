"""What a program would cost: a few numbers, for comparing candidates within one compilation.

A statement's point costs a launch and what its kernel does, the longer of its arithmetic and of
moving its operands and results. The machine is nominal: the constants below are of the order of one
CPU core under the interpreter, and only their ratios matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from timerl_nb.ir.attrs import ConvAttrs, DotAttrs
from timerl_nb.ir.ops import OPERAND, DataflowAttrs, Op
from timerl_nb.ir.shapes import Shape
from timerl_nb.memory.sizes import Sizes

LAUNCH: Final = 40e-6  # seconds per launch of a kernel or call of a host function
FLOPS: Final = 2e10  # operations on elements per second
BYTES: Final = 1e10  # bytes moved per second
HOST: Final = 5e9  # bytes per second between device and host


def point_seconds(sizes: Sizes, op: Op) -> float:
    """Seconds for one point of a statement."""
    if not isinstance(op.attrs, DataflowAttrs):
        return LAUNCH
    work = sum(_elements(sizes, op, inner) for inner in op.attrs.body)
    return LAUNCH + max(work / FLOPS, _moved(sizes, op) / BYTES)


def _moved(sizes: Sizes, op: Op) -> int:
    """Bytes of all operands and results."""
    read = sum(sizes.type_bytes(op, sizes.pdg.read_type(read)) for read in op.inputs)
    return read + sum(sizes.output_bytes(op, k) for k in range(len(op.outputs)))


def _elements(sizes: Sizes, op: Op, inner: Op) -> int:
    """How many operations on elements an operation inside a region takes."""
    assert isinstance(op.attrs, DataflowAttrs)
    body = {one.id: one for one in op.attrs.body}
    shapes: Sequence[Shape] = [
        sizes.pdg.read_type(op.inputs[r.out]).shape if r.source == OPERAND else body[r.source].shape
        for r in inner.inputs
    ]
    counts = [prod(sizes.shape(op, shape)) for shape in (*shapes, inner.shape)]
    if not isinstance(inner.attrs, DotAttrs | ConvAttrs):
        return max(counts)
    attrs = inner.attrs
    right = zip(attrs.right, sizes.shape(op, shapes[1]), strict=True)
    return 2 * counts[-1] * prod(n for label, n in right if label not in attrs.out)
