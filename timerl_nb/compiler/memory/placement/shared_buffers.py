"""Tensors with shared memory, and the reasons, for buffers and for stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.buffer_layout import Layout
from timerl_nb.compiler.symbolic.index_expressions import FALSE

How = Literal["starts from", "in place of", "takes over"]


@dataclass(frozen=True)
class Sharing:
    """Memory of a tensor's values inherited from other values.

    Attributes:
        how: "starts from" if the tensor shares a buffer with its initial values, "in place of" if
            each value overwrites the previous one, "takes over" if the values reuse the memory of
            an operand.
        tensor: the new owner of the memory.
        before: the previous owner.
        why: the reason, and possible exceptions.
    """

    how: How
    tensor: Tensor
    before: Tensor
    why: str


def in_buffers(layout: Layout) -> Mapping[str, tuple[Sharing, ...]]:
    """Return the memory shared in each buffer of a layout, by the buffer's name."""
    return {
        name: tuple(_in_buffer(layout, buffer, *held))
        for (name, buffer), held in zip(layout.buffers.items(), holders(layout), strict=True)
    }


def holders(layout: Layout) -> Iterator[tuple[Tensor, ...]]:
    """Yield the tensors in each buffer of a layout: its own tensor, and initial values."""
    named = {name: tensor for tensor, name in layout.plan.names.items()}
    for buffer in layout.buffers.values():
        yield tuple(named[name] for name in buffer.tensors)


def _in_buffer(layout: Layout, buffer: Buffer, own: Tensor, *starts: Tensor) -> Iterator[Sharing]:
    plan, names = layout.plan, layout.plan.names
    joined = [plan.pdg.names[k] for k, home in layout.merges.items() if home.buffer == buffer]
    for start in starts:
        why = f"its slot precedes the first of {names[own]}, and is free when that is needed"
        read = f"; {', '.join(joined)} is read without a choice" if joined else ""
        yield Sharing("starts from", own, start, why + read)
    op = plan.pdg[own[0]]
    if op.outputs[own[1]].reduce is not None:
        yield Sharing("in place of", own, own, "each point adds to the value in the slot")
    elif prod(buffer.slot_counts) == 1 and _is_made_of_itself(plan, own):
        name = plan.pdg.names[op.id]
        why = f"{name} is the last reader of the previous value when it writes the next"
        yield Sharing("in place of", own, own, why)


def _is_made_of_itself(plan: MemoryPlan, tensor: Tensor) -> bool:
    """Return whether the kernel of a tensor reads the tensor."""
    return any(tensor in one.tensors for one in plan.statements.of_op(tensor[0]).operands)


def by_donation(plan: MemoryPlan) -> Mapping[Tensor, tuple[Sharing, ...]]:
    """Return the memory inherited from operands, per tensor, if kernels run one by one."""
    found: dict[Tensor, list[Sharing]] = {}
    for one in plan.donations.values():
        if one.output is not None:
            made = one.op_id, one.output
            taken = (leaf.tensor for leaf in one.leaves if leaf.taken is not FALSE)
            for before in dict.fromkeys(taken):
                how: How = "in place of" if before == made else "takes over"
                found.setdefault(made, []).append(Sharing(how, made, before, one.why))
    return {tensor: tuple(ones) for tensor, ones in found.items()}


def not_given(plan: MemoryPlan) -> Mapping[Tensor, Mapping[int, str]]:
    """Return the reasons why readers do not reuse a tensor's memory, by tensor and kernel id."""
    found: dict[Tensor, dict[int, str]] = {}
    for one in plan.donations.values():
        for leaf in one.leaves:
            if leaf.taken is FALSE:
                found.setdefault(leaf.tensor, {})[one.op_id] = "it gets a copy"
        if one.output is None:
            operand = plan.statements.of_op(one.op_id).operands[one.slot]
            for tensor in sorted(operand.tensors):
                found.setdefault(tensor, {})[one.op_id] = one.why
    return found
