"""Given arrays as buffers of a lowered program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Op, Tensor
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.passed_data import arrays_of, is_free, passed_on
from timerl_nb.compiler.symbolic.index_expressions import TRUE


def whole(plan: MemoryPlan, tensor: Tensor, buffer: Buffer) -> Array | None:
    """Return the part of a given array equal to a tensor's buffer; None if a copy is necessary."""
    op = plan.pdg[tensor[0]]
    attrs, dims = passed_on(op, tensor[1]), plan.pdg.dims
    domain = op.outputs[tensor[1]].domain
    if attrs is None or attrs.value.array.size < 2 or tensor in plan.swaps.tensors:
        return None
    if dims.dynamic or dims.endless is not None or op.where is not TRUE:
        return None
    if (*domain, *attrs.axes) != attrs.dims or len(buffer.axes) != len(domain):
        return None
    if any(plan.sizes.varies(op, size) for size in buffer.sizes):
        return None
    firsts: list[int] = []
    for k, (axis, d) in enumerate(zip(buffer.axes, domain, strict=True)):
        goes_round = axis.ring and axis.first + axis.size < dims[d].count(plan.bounds)
        if axis.coordinate != k or axis.prologue or goes_round or (axis.ring and axis.first):
            return None
        firsts.append(axis.first)
    for start in attrs.starts or [None] * len(attrs.axes):
        if start is not None and not start.is_const:
            return None
        firsts.append(0 if start is None else start.const)
    firsts += [0] * (len(buffer.array_shape) - len(firsts))
    pairs = zip(firsts, buffer.array_shape, strict=True)
    found = attrs.value.array[tuple(slice(first, first + n) for first, n in pairs)]
    same = found.shape == buffer.array_shape and found.dtype == NUMPY[buffer.dtype]
    return found if same else None


def held_by(plan: MemoryPlan, given: Mapping[Tensor, Array], ops: Iterable[Op]) -> int:
    """Return the bytes of given arrays in use as buffers of a lowered program.

    Args:
        plan: the memory plan.
        given: the result of `whole` per tensor.
        ops: the operations with kernels.
    """
    used = arrays_of(op for op in ops if not is_free(op, given))
    arrays = {
        attrs.value: array
        for (op_id, out), array in given.items()
        if (attrs := passed_on(plan.pdg[op_id], out)) is not None
    }
    found = (v for v, array in arrays.items() if v not in used or array.size == v.array.size)
    return sum(value.array.nbytes for value in found)
