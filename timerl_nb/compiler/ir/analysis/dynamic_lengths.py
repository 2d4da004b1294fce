"""Dependences on dynamic bounds.

The existence, the reads and the values of a point may depend on the ends of dynamic dimensions. `ending`
and `waits` express these dependences as reads of the bounds' operands, for the detection of cycles. `exprs`
lists the relevant expressions, for exact dependences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import compose
from timerl_nb.compiler.ir.operation_attributes import POSITION, ReindexAttrs
from timerl_nb.compiler.ir.operation_kinds import ELEMENTWISE
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op, Read
from timerl_nb.compiler.ir.shapes import Shape
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import ZERO, Cond, Entry, Lin, Slice, span, sym
from timerl_nb.compiler.symbolic.substitution import subst

# Element-preserving kinds: elements beyond an axis' end stay beyond it.
CARRIES: Final = ELEMENTWISE | {
    "transpose",
    "expand",
    "reshape",
    "reindex",
    "merge",
    "accumulate",
    "output",
}


def ending(pdg: Pdg, op: Op) -> list[Read]:
    """Return the reads that decide whether a point exists: the bounds' operands, one point earlier."""
    found = (_operand(pdg, dim, dim.var - 1) for dim in pdg.dims.ending(op.domain))
    return [read for read in found if read is not None]


def waits(
    pdg: Pdg,
    op: Op,
    reads: Iterable[Read] | None = None,
    others: Iterable[Op] = (),
    *,
    whole: bool = False,
) -> list[Read]:
    """Return an operation's dependences on dynamic bounds, as reads of the bounds' operands.

    An expression with a bound depends on all points before its value, approximately.

    Args:
        pdg: the graph.
        op: the operation.
        reads: the operation's reads, if other than its operands.
        others: operations that run together with it, at its point.
        whole: whether its value must have the exact length; otherwise a ceiling suffices.
    """
    found = ending(pdg, op)
    reads, others = op.inputs if reads is None else tuple(reads), tuple(others)
    for dim in pdg.dims.known(op.domain):
        ends = _ends(pdg, dim, op, reads, others, whole=whole)
        waiting = (_operand(pdg, dim, span(0, end)) for end in ends)
        found += [read for read in waiting if read is not None]
    return found


def _ends(
    pdg: Pdg, dim: Dim, op: Op, reads: Iterable[Read], others: Iterable[Op], *, whole: bool
) -> Iterable[Lin]:
    """Return the ends of the ranges of a dynamic dimension on which an operation depends."""
    ends: dict[Lin, None] = {}
    for read in reads:
        for e in read.index:
            last = e.hi - 1 if isinstance(e, Slice) else e
            if dim.bound in e.symbols:
                ends[last if dim.bound in last.symbols else dim.size - 1] = None
        if dim.bound in read.cond.symbols:
            ends[dim.size - 1] = None
    for one in (op, *others):
        for e in exprs(pdg, one):
            if dim.bound in e.symbols:
                ends[dim.size - 1] = None
    if whole and any(dim.bound in s.symbols for o in op.outputs for s in _symbolic(o.type.shape)):
        ends[dim.size - 1] = None
    return ends


def _operand(pdg: Pdg, dim: Dim, entry: Entry) -> Read | None:
    """Return a bound's operand at an index of its dimension, with the reader's own other indices."""
    bound = pdg.ends[dim.name]
    index = tuple(entry if d == dim.name else sym(d) for d in bound.domain)
    (inner,) = bound.inputs
    made = compose(Read(bound.id, 0, index), bound.domain, inner)
    if made is None and isinstance(entry, Slice):
        return _operand(pdg, dim, entry.hi)
    return made


def exprs(pdg: Pdg, op: Op) -> list[Lin | Cond]:
    """Return the expressions that determine an operation's values, beyond the allocated capacities."""
    if not isinstance(op.attrs, DataflowAttrs):
        return [*_parameters(op), *_lengths(op, [pdg.read_type(r).shape for r in op.inputs])]
    operands = [pdg.read_type(r).shape for r in op.inputs]
    made: Mapping[int, Shape] = {inner.id: inner.shape for inner in op.attrs.body}
    found: list[Lin | Cond] = []
    for inner in op.attrs.body:
        shapes = [operands[r.out] if r.source == OPERAND else made[r.source] for r in inner.inputs]
        found += [*_parameters(inner), *_lengths(inner, shapes)]
    return list(dict.fromkeys(found))


def _parameters(op: Op) -> tuple[Lin | Cond, ...]:
    """Return the index expressions of the parameters; for a sequence of positions, that of the first."""
    if isinstance(op.attrs, ReindexAttrs):
        return (subst(op.attrs.at, {str(POSITION): ZERO}),)
    return op.attrs.parameters


def _lengths(op: Op, shapes: Iterable[Shape]) -> list[Lin]:
    """Return the operand lengths beyond which an operation must ignore elements."""
    if op.kind in CARRIES and getattr(op.attrs, "beyond", "") != "zero":
        return []
    return [s for shape in shapes for s in _symbolic(shape)]


def _symbolic(shape: Shape) -> list[Lin]:
    return [s for s in shape if isinstance(s, Lin)]
