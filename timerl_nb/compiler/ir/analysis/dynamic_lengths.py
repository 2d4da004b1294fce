"""Dependences on a dynamic bound.

The existence, the reads and the values of a point may depend on the end of a dynamic dimension. `ending`
and `waits` express these dependences as reads of the bound's operand, for the detection of cycles. `exprs`
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


def ending(pdg: Pdg, op: Op) -> Read | None:
    """Return the read that decides whether a point exists: the bound's operand, one point earlier."""
    dim = pdg.dims.dynamic
    if dim is None or not pdg.dims.ends(op.domain):
        return None
    return _operand(pdg, sym(dim.name) - 1)


def waits(
    pdg: Pdg,
    op: Op,
    reads: Iterable[Read] | None = None,
    others: Iterable[Op] = (),
    *,
    whole: bool = False,
) -> list[Read]:
    """Return an operation's dependences on a dynamic bound, as reads of the bound's operand.

    An expression with the bound depends on all points before its value, approximately.

    Args:
        pdg: the graph.
        op: the operation.
        reads: the operation's reads, if other than its operands.
        others: operations that run together with it, at its point.
        whole: whether its value must have the exact length; otherwise a ceiling suffices.
    """
    dim = pdg.dims.dynamic
    if dim is None or not pdg.dims.is_bound_known(op.domain):
        return []
    before = ending(pdg, op)
    found = [] if before is None else [before]
    ends: dict[Lin, None] = {}
    for read in op.inputs if reads is None else reads:
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
    waiting = (_operand(pdg, span(0, end)) for end in ends)
    return [*found, *(read for read in waiting if read is not None)]


def _operand(pdg: Pdg, entry: Entry) -> Read | None:
    """Return the bound's operand at an index of the dynamic dimension, with the reader's own other indices."""
    bound, dim = pdg.bound, pdg.dims.dynamic
    if bound is None or dim is None:
        return None
    index = tuple(entry if d == dim.name else sym(d) for d in bound.domain)
    (inner,) = bound.inputs
    made = compose(Read(bound.id, 0, index), bound.domain, inner)
    if made is None and isinstance(entry, Slice):
        return _operand(pdg, entry.hi)
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
