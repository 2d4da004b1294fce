"""What becomes of a kernel's operands: records of donation."""

from __future__ import annotations

from dataclasses import dataclass

from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.symbolic.index_expressions import FALSE, Cond, Lin

Slot = tuple[int, int]  # an operation's id, and the number of an operand


@dataclass(frozen=True)
class Leaf:
    """A tensor behind an operand, where it is that tensor, and where it is taken over."""

    tensor: Tensor
    index: tuple[Lin, ...]
    cond: Cond
    taken: Cond


@dataclass(frozen=True)
class Donation:
    """What becomes of one operand.

    Attributes:
        op_id, slot: the kernel and the operand.
        output: the output that lives in the operand's memory; None where there is none.
        why: the reason why there is none, or where a copy is given instead.
        taken: where the operand's own value is taken over.
    """

    op_id: int
    slot: int
    output: int | None
    why: str
    leaves: tuple[Leaf, ...] = ()
    taken: Cond = FALSE
