"""Lower bounds on the device memory of a program, with or without swapping.

While a statement runs, all its operands exist, and so do its results. An operand and the
result in its memory count once. The bounds need no schedule.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import ConstAttrs
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import Op, Tensor, is_sliced
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.memory.budget.kernel_temporaries import constants, contracts, temporaries
from timerl_nb.compiler.memory.byte_sizes import Sizes
from timerl_nb.compiler.memory.liveness.value_lifetimes import enter
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.block_storage import candidates
from timerl_nb.compiler.memory.placement.slice_reads import split
from timerl_nb.compiler.passes.fusion.fusion_groups import inlineable
from timerl_nb.compiler.scheduling.statements import Operand, Statement, Statements
from timerl_nb.compiler.symbolic.index_expressions import TRUE

# Operations outside kernels, which cannot be fused.
NO_KERNELS: Final = SINKS | {"merge", "udf", "call", "bound"}


def lower_bound(statements: Statements, bounds: Point) -> int:
    """Return a lower bound on the bytes of any plan of a fused graph, under actual bounds."""
    sizes = Sizes(statements.pdg, bounds)
    # a conditional statement may never run
    always = (s for s in statements if s.op.where is TRUE)
    carried = max(
        (max(_operand_bytes(sizes, s), _total_output_bytes(sizes, s.op)) for s in always), default=0
    )
    return carried + extra_kernel_bytes(statements, sizes)


def lower_bound_swapped(statements: Statements, bounds: Point) -> int:
    """Return a lower bound on the bytes of any plan with swaps.

    In such plans kernels reuse no operands except blocks.
    """
    sizes = Sizes(statements.pdg, bounds)
    return at_once(statements, sizes) + extra_kernel_bytes(statements, sizes)


def planned_lower_bound(plan: MemoryPlan, *, swap: bool) -> int:
    """Return a lower bound for plans of the same schedule with blocks or donation.

    The values live between two executed points exist in each such plan. With swapping, only
    accumulated values and the operands and results of a kernel count.

    Args:
        plan: the plan without blocks, donation and swaps.
        swap: whether values may be swapped to the host.
    """
    kept, summed = (np.zeros(len(plan.clock) + 1, np.int64) for _ in range(2))
    for life, span in zip(plan.lifetimes.values(), plan.point_by_point.spans, strict=True):
        nbytes = sum(n for _, n in span.tensors)
        enter(kept, span.birth_times, span.dies - 1, nbytes)
        if not plan.accumulated_tensors.isdisjoint(life.tensors):
            enter(summed, span.birth_times, span.dies, nbytes)
    least = int(np.cumsum(kept).max())
    if swap:
        used = at_once(plan.statements, plan.sizes)
        least = min(least, max(int(np.cumsum(summed).max()), used))
    return least + extra_kernel_bytes(plan.statements, plan.sizes)


def extra_kernel_bytes(statements: Statements, sizes: Sizes) -> int:
    """Return the bytes of temporaries and given arrays in kernels."""
    ops = statements.ops.values()
    return max((temporaries(sizes, op) for op in ops), default=0) + constants(ops)


def unfused_lower_bound(pdg: Pdg, bounds: Point) -> int:
    """Return a lower bound on the bytes of any plan of a graph, for all fusions.

    XLA stores the operands and the result of a contraction (`kernel_temporaries`); two operands may
    be the same value. A value read by an operation over another domain is the result of a kernel.
    """
    sizes, inlined = Sizes(pdg, bounds), inlineable(pdg)
    stored = {op.id for op in pdg if contracts(sizes, op, op, pdg.read_type)}

    def bytes_used(op: Op) -> int:
        made = sizes.output_bytes(op, 0)
        if op.id not in stored:
            return made
        given = (r for r in op.inputs if not isinstance(pdg[r.source].attrs, ConstAttrs))
        return made + max((sizes.type_bytes(op, pdg.read_type(r)) for r in given), default=0)

    def is_passed_on(op: Op) -> bool:
        if op.id in inlined or op.kind in NO_KERNELS:
            return False
        readers = (pdg[reader] for reader, _ in pdg.readers[op.id])
        return any(
            one.domain != op.domain and one.id not in inlined and one.kind not in NO_KERNELS
            for one in readers
        )

    found = (op for op in pdg if op.where is TRUE)
    return max((bytes_used(op) for op in found if op.id in stored or is_passed_on(op)), default=0)


def at_once(statements: Statements, sizes: Sizes) -> int:
    """Return the greatest number of bytes read, gathered and written by one point.

    Donation is excluded, except in blocks.
    """
    found = candidates(statements, sizes.bounds)

    def bytes_used(one: Statement) -> int:
        op, read = one.op, _operand_bytes(sizes, one)
        read += sum(
            sizes.gathered_bytes(op, operand)
            for slot, operand in enumerate(op.inputs)
            if (op.id, slot) not in found.parts
        )
        is_row = any((op.id, out) in found.along for out in range(len(op.outputs)))
        return read if is_row else read + _total_output_bytes(sizes, op)

    return max((bytes_used(one) for one in statements if one.op.where is TRUE), default=0)


def inevitable(pdg: Pdg, bounds: Point) -> int:
    """Return a lower bound for any compilation of a graph: the largest returned value."""
    sizes = Sizes(pdg, bounds)
    returned = (op.inputs[0] for op in pdg.sinks if op.kind == "output" and op.where is TRUE)
    return max((sizes.point_bytes(read) for read in returned), default=0)


def _total_output_bytes(sizes: Sizes, op: Op) -> int:
    return sum(sizes.output_bytes(op, out) for out in range(len(op.outputs)))


def _operand_bytes(sizes: Sizes, statement: Statement) -> int:
    """Return the bytes of the operands; operands that may be the same value count once."""
    total, seen = 0, set[Tensor]()
    for operand in statement.operands:
        if statement.op.kind == "udf" and operand.is_sliced:  # gathered on the host
            continue
        if seen.isdisjoint(operand.tensors):
            total += _count(sizes, statement.op, operand) * sizes.point_bytes(operand.read)
        seen |= operand.tensors
    return total


def _count(sizes: Sizes, op: Op, operand: Operand) -> int:
    """Return the least number of values in an operand; a merge may repeat values."""
    read = operand.read
    if not operand.is_sliced:
        return 1
    if sizes.is_gathered(op, read) or all(is_sliced(one.read) for one in operand.accesses):
        return sizes.span(op, read)
    parts = split(sizes.pdg, sizes.bounds, read)
    return 1 if isinstance(parts, str) else sum(sizes.capacity(op, one.count) for one in set(parts))
