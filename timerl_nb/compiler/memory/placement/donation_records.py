"""Records of donation: the use of an operand's memory by an output."""

from __future__ import annotations

from dataclasses import dataclass

from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.symbolic.index_expressions import FALSE, Cond, Lin

Slot = tuple[int, int]  # an operation's id, and the number of an operand


@dataclass(frozen=True)
class Leaf:
    """One tensor behind an operand.

    Attributes:
        tensor: the tensor.
        index: the index of the read.
        cond: the condition for reading this tensor rather than another.
        taken: the condition for reusing the tensor's memory.
    """

    tensor: Tensor
    index: tuple[Lin, ...]
    cond: Cond
    taken: Cond


@dataclass(frozen=True)
class Donation:
    """Donation of one operand, or the reason against it.

    Attributes:
        op_id, slot: the kernel and the operand.
        output: the output in the operand's memory, or None.
        why: the reason against donation, or the condition for it.
        leaves: the tensors behind the operand.
        taken: the condition for overwriting the operand's own value instead of a copy.
    """

    op_id: int
    slot: int
    output: int | None
    why: str
    leaves: tuple[Leaf, ...] = ()
    taken: Cond = FALSE
