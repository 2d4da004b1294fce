"""Lower bounds on the device memory of a program, with or without swapping.

While a statement runs, all its operands exist, and so do its results. An operand and the
result in its memory count once. The bounds need no schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Final

import numpy as np

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import ConstAttrs
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import Op, Tensor, is_sliced
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.memory.budget.kernel_temporaries import constants, contracts, temporaries
from timerl_nb.compiler.memory.byte_sizes import Sizes, sizes_of
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
    sizes = sizes_of(statements.pdg, bounds)
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
    sizes = sizes_of(statements.pdg, bounds)
    return at_once(statements, sizes) + extra_kernel_bytes(statements, sizes)


def planned_lower_bound(plan: MemoryPlan) -> int:
    """Return a lower bound for plans of the same schedule with blocks or donation, without swaps.

    The values live between two executed points exist in each such plan. While a kernel runs, its
    operands and results exist, except results that may reuse the memory of an operand.

    Args:
        plan: the plan without blocks, donation and swaps.
    """
    line, kept = plan.point_by_point, np.zeros(len(plan.clock) + 1, np.int64)
    for span in line.spans:
        enter(kept, span.birth_times, span.dies - 1, sum(n for _, n in span.tensors))
    running = line.bytes - line.transient
    for name, nbytes in _reusing_bytes(plan.statements, plan.sizes).items():
        running[plan.clock.ranks[name]] -= nbytes
    least = max(int(np.cumsum(kept).max()), int(running.max(initial=0)))
    return least + extra_kernel_bytes(plan.statements, plan.sizes)


def _reusing_bytes(statements: Statements, sizes: Sizes) -> dict[str, int]:
    """Return the bytes of each statement's results that may reuse the memory of an operand."""
    found = candidates(statements, sizes.bounds)

    def array_of(tensor: Tensor) -> tuple[tuple[int, ...], str]:
        kind = sizes.pdg[tensor[0]].outputs[tensor[1]].type
        return sizes.shape(sizes.pdg[tensor[0]], kind.shape), kind.dtype

    def bytes_reusing(one: Statement) -> int:
        operands = (operand for operand in one.operands if not operand.is_sliced)
        left = Counter(array_of(next(iter(operand.tensors))) for operand in operands)
        total = 0
        for out, output in enumerate(one.op.outputs):
            array = array_of((one.op.id, out))
            if (one.op.id, out) in found.along:
                total += sizes.output_bytes(one.op, out)
            elif output.reduce is None and left[array]:
                left[array] -= 1
                total += sizes.output_bytes(one.op, out)
        return total

    return {one.name: bytes_reusing(one) for one in statements}


def swapped_lower_bound(plan: MemoryPlan) -> int:
    """Return a lower bound for plans of the same schedule with swaps.

    Accumulated values never leave the device. The other operands and results of a kernel are on the
    device while it runs.

    Args:
        plan: the plan without blocks, donation and swaps.
    """
    live, summed = np.zeros(len(plan.clock) + 1, np.int64), plan.accumulated_tensors
    for life, span in zip(plan.lifetimes.values(), plan.point_by_point.spans, strict=True):
        if not summed.isdisjoint(life.tensors):
            enter(live, span.birth_times, span.dies, sum(n for _, n in span.tensors))
    live = np.cumsum(live)
    for name, nbytes in _bytes_by_statement(plan.statements, plan.sizes, summed).items():
        live[plan.clock.ranks[name]] += nbytes
    least = max(int(live.max()), at_once(plan.statements, plan.sizes))
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
    sizes, inlined = sizes_of(pdg, bounds), inlineable(pdg)
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
    return max(_bytes_by_statement(statements, sizes).values(), default=0)


def _bytes_by_statement(
    statements: Statements, sizes: Sizes, but: Set[Tensor] = frozenset()
) -> dict[str, int]:
    """Return the bytes read, gathered and written by one point of each unconditional statement.

    Args:
        statements: the statements.
        sizes: the sizes of values.
        but: tensors that do not count.
    """
    found = candidates(statements, sizes.bounds)

    def bytes_used(one: Statement) -> int:
        op, read = one.op, _operand_bytes(sizes, one, but)
        read += sum(
            sizes.gathered_bytes(op, operand)
            for slot, operand in enumerate(op.inputs)
            if (op.id, slot) not in found.parts
        )
        is_row = any((op.id, out) in found.along for out in range(len(op.outputs)))
        return read if is_row else read + _total_output_bytes(sizes, op, but)

    return {one.name: bytes_used(one) for one in statements if one.op.where is TRUE}


def inevitable(pdg: Pdg, bounds: Point) -> int:
    """Return a lower bound for any compilation of a graph: the largest returned value."""
    sizes = sizes_of(pdg, bounds)
    returned = (op.inputs[0] for op in pdg.sinks if op.kind == "output" and op.where is TRUE)
    return max((sizes.point_bytes(read) for read in returned), default=0)


def _total_output_bytes(sizes: Sizes, op: Op, but: Set[Tensor] = frozenset()) -> int:
    outputs = range(len(op.outputs))
    return sum(sizes.output_bytes(op, out) for out in outputs if (op.id, out) not in but)


def _operand_bytes(sizes: Sizes, statement: Statement, but: Set[Tensor] = frozenset()) -> int:
    """Return the bytes of the operands; operands that may be the same value count once."""
    total, seen = 0, set[Tensor]()
    for operand in statement.operands:
        if statement.op.kind == "udf" and operand.is_sliced:  # gathered on the host
            continue
        if seen.isdisjoint(operand.tensors) and but.isdisjoint(operand.tensors):
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
