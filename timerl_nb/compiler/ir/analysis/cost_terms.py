"""How long an operation computes, and how long memory takes: the terms that every forecast of seconds is made of.

Passes put them together for arrays before anything is fused (`compiler/passes/tiling/reduction_block_size_model`), the memory plan for
fused kernels and their buffers (`compiler/memory/budget/candidate_cost`). Both are for comparing, not for promising.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, prod
from typing import Final

from timerl_nb.base.machine_model import Machine
from timerl_nb.compiler.ir.operation_attributes import ConvAttrs, DotAttrs
from timerl_nb.compiler.ir.operation_kinds import LAYOUT, SINKS
from timerl_nb.compiler.ir.operations import Op

# How often the bytes of an array cross to memory: its lines are fetched and written; and read again.
MADE: Final = 2
READ: Final = 1
# Nothing is computed there, or nobody knows how long; XLA reads through what lies out anew.
_FREE: Final = LAYOUT | SINKS | {"const", "data", "value", "concat", "merge", "udf"}


def computing(
    op: Op, operands: Sequence[Sequence[int]], result: Sequence[int], machine: Machine
) -> float:
    """Seconds for the arithmetic of one point of an operation, on arrays in the cache."""
    if isinstance(op.attrs, DotAttrs | ConvAttrs):
        right = zip(op.attrs.right, operands[1], strict=True)
        products = prod(result) * prod(n for label, n in right if label not in op.attrs.out)
        return 2 * products / machine.flops
    if op.kind in _FREE:
        return 0.0
    looked_at = () if op.kind == "gather" else operands
    return max(map(prod, (*looked_at, result))) / machine.elements


def moving(nbytes: int, held: int, machine: Machine) -> float:
    """Seconds for so many bytes that cross to memory, where arrays of `held` bytes live at once.

    What fits the cache stays there; what is far larger goes to memory and comes back for each use.
    """
    if held <= machine.near:
        return 0.0
    lost = min(1.0, log(held / machine.near) / log(machine.far / machine.near))
    return lost * nbytes / machine.bandwidth
