"""Cost model for comparing candidates within one compilation.

A point of a statement costs `launch + max(arithmetic, transfer)` seconds. The transfer moves its
operands and results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from timerl_nb.base.machine_model import Machine
from timerl_nb.compiler.ir.analysis.cost_terms import MADE, READ, computing, moving
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op
from timerl_nb.compiler.ir.shapes import Shape
from timerl_nb.compiler.memory.byte_sizes import Sizes, sizes_of
from timerl_nb.compiler.scheduling.statements import Statements


def graph_seconds(pdg: Pdg, bounds: Mapping[str, int], machine: Machine) -> float:
    """Return the estimated seconds of a fused graph, ignoring conditions."""
    sizes = sizes_of(pdg, bounds)
    return sum(
        prod(pdg.dims[d].count(bounds) for d in op.domain) * point_seconds(sizes, op, machine)
        for op in Statements.from_graph(pdg).ops.values()
    )


def point_seconds(sizes: Sizes, op: Op, machine: Machine) -> float:
    """Return the estimated seconds of one point of a statement."""
    if not isinstance(op.attrs, DataflowAttrs):
        return machine.launch
    read = sum(sizes.type_bytes(op, sizes.pdg.read_type(read)) for read in op.inputs)
    made = sum(sizes.output_bytes(op, k) for k in range(len(op.outputs)))
    moved = moving(READ * read + MADE * made, read + made, machine)
    return machine.launch + max(computing_seconds(sizes, op, machine), moved)


def computing_seconds(sizes: Sizes, op: Op, machine: Machine) -> float:
    """Return the estimated seconds of arithmetic for one point of a kernel."""
    assert isinstance(op.attrs, DataflowAttrs)
    body = {one.id: one for one in op.attrs.body}

    def operands(inner: Op) -> Sequence[Shape]:
        return [
            sizes.pdg.read_type(op.inputs[r.out]).shape
            if r.source == OPERAND
            else body[r.source].shape
            for r in inner.inputs
        ]

    return sum(
        computing(
            inner,
            [sizes.shape(op, shape) for shape in operands(inner)],
            sizes.shape(op, inner.shape),
            machine,
        )
        for inner in op.attrs.body
    )
