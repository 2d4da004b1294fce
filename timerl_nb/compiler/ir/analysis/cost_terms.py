"""Cost terms of operations: estimated seconds of arithmetic and of memory traffic.

Passes apply them to arrays before fusion (`compiler/passes/tiling/reduction_block_size_model`). The memory
plan applies them to fused kernels and their buffers (`compiler/memory/budget/candidate_cost`). The
estimates compare plans; they do not predict exact times.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, prod
from typing import Final

from timerl_nb.base.machine_model import Machine
from timerl_nb.compiler.ir.operation_attributes import ConvAttrs, DotAttrs
from timerl_nb.compiler.ir.operation_kinds import LAYOUT, SINKS
from timerl_nb.compiler.ir.operations import Op

# Memory transfers per array byte: a write fetches and stores each cache line; a read transfers it again.
MADE: Final = 2
READ: Final = 1
# Operations without arithmetic or with unknown cost. XLA reads through layout operations.
_FREE: Final = LAYOUT | SINKS | {"const", "data", "value", "concat", "merge", "udf"}


def computing(
    op: Op, operands: Sequence[Sequence[int]], result: Sequence[int], machine: Machine
) -> float:
    """Return the seconds of arithmetic at one point of an operation, for arrays in the cache."""
    if isinstance(op.attrs, DotAttrs | ConvAttrs):
        right = zip(op.attrs.right, operands[1], strict=True)
        products = prod(result) * prod(n for label, n in right if label not in op.attrs.out)
        return 2 * products / machine.flops
    if op.kind in _FREE:
        return 0.0
    looked_at = () if op.kind == "gather" else operands
    return max(map(prod, (*looked_at, result))) / machine.elements


def moving(nbytes: int, held: int, machine: Machine) -> float:
    """Return the seconds to transfer `nbytes` bytes, while arrays of `held` bytes are live.

    Data that fit the cache are not transferred. Much larger data are transferred at each use.
    """
    if held <= machine.near:
        return 0.0
    lost = min(1.0, log(held / machine.near) / log(machine.far / machine.near))
    return lost * nbytes / machine.bandwidth
