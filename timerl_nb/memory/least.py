"""The least that a program needs on the device at once, whatever waits on the host.

A statement's operands are there together while a point of it runs, and so are its results; only
where a result takes over an operand's memory do both count once. No schedule is needed to know.
"""

from __future__ import annotations

from timerl_nb.ir.accesses import tensors
from timerl_nb.ir.ops import Op, Tensor, is_sliced
from timerl_nb.ir.pdg import Pdg
from timerl_nb.memory.sizes import Sizes
from timerl_nb.symbolic.expr import TRUE
from timerl_nb.symbolic.polyhedra import Point


def least(pdg: Pdg, bounds: Point) -> int:
    """Bytes below which no plan of a fused graph comes, under actual bounds."""
    sizes = Sizes(pdg, bounds)
    # what runs under a condition may not run at all
    always = (op for op in pdg if op.kind not in ("merge", "output") and op.where is TRUE)
    return max((max(_read(sizes, op), _made(sizes, op)) for op in always), default=0)


def inevitable(pdg: Pdg, bounds: Point) -> int:
    """Bytes below which no compilation of a graph comes: a value that the run returns is made."""
    sizes = Sizes(pdg, bounds)
    returned = (op.inputs[0] for op in pdg.sinks if op.kind == "output" and op.where is TRUE)
    return max((sizes.point_bytes(read) for read in returned), default=0)


def _made(sizes: Sizes, op: Op) -> int:
    return sum(sizes.output_bytes(op, out) for out in range(len(op.outputs)))


def _read(sizes: Sizes, op: Op) -> int:
    """Bytes of the operands; two that may be one value count once."""
    total, seen = 0, set[Tensor]()
    for read in op.inputs:
        found = tensors(sizes.pdg, read)
        if op.kind == "udf" and is_sliced(read):  # gathered on the host
            continue
        if seen.isdisjoint(found):
            total += sizes.span(op, read) * sizes.point_bytes(read)
        seen |= found
    return total
