"""Predicted communication between the devices of a divided program: the results of sums over the divided dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op, Read
from timerl_nb.compiler.ir.shapes import TensorType
from timerl_nb.compiler.memory.byte_sizes import sizes_of
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.per_device_memory import Share, divided_axis


def predict_sum_bytes(plan: MemoryPlan, share: Share) -> Mapping[str, int]:
    """Return the bytes of partial sums that each device has to combine with others in a run, by operation.

    A contraction, sum, minimum or maximum over the divided dimension has a partial result on every device. All other
    operations find their operands on their own device.
    """
    pdg, sizes = plan.pdg, sizes_of(plan.pdg, plan.bounds)
    found: dict[str, int] = {}
    for statement, points in plan.counts.items():
        op = plan.statements.ops[statement]
        for inner in _reductions(plan, op, share):
            nbytes = sum(sizes.type_bytes(op, one.type) for one in inner.outputs) * points
            name = pdg.names[op.id]
            found[name] = found.get(name, 0) + nbytes
    return found


def _reductions(plan: MemoryPlan, op: Op, share: Share) -> Iterator[Op]:
    """Yield the operations of a kernel that have an operand with the divided axis, and a result without it."""
    if not isinstance(op.attrs, DataflowAttrs):
        return
    body = {inner.id: inner for inner in op.attrs.body}

    def type_of(read: Read) -> TensorType:
        if read.source == OPERAND:
            return plan.pdg.read_type(op.inputs[read.out])
        return body[read.source].outputs[read.out].type

    for inner in op.attrs.body:
        into = any(
            divided_axis(type_of(read).shape, share.dim) is not None for read in inner.inputs
        )
        if into and all(divided_axis(one.type.shape, share.dim) is None for one in inner.outputs):
            yield inner
