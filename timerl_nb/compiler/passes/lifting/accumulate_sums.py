"""Sums over symbolic dimensions become accumulations: each point adds its part to one slot.

A reduction of x[i, 0:T] would store all of x before it runs. An unordered accumulation adds each x[i, t]
when it is produced, in any order of the schedule; concrete axes are reduced first. Branches with the
neutral value (a conditional tensor outside its condition) are not added, unless some slots would then get
no summand at all. Slices that move with the reader, such as windows and prefixes, are unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit, RewriteStep, Rewritten
from timerl_nb.compiler.ir.operation_attributes import AccumulateAttrs, AxesAttrs, CastAttrs
from timerl_nb.compiler.ir.operation_kinds import REDUCTIONS
from timerl_nb.compiler.ir.operations import Op, Output, Read, is_own, is_sliced
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import HALF
from timerl_nb.compiler.isl.sets_and_relations import Relation, Set
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    Cond,
    Lin,
    Slice,
    all_of,
    ge,
    lt,
    sym,
)


@dataclass(frozen=True)
class Accumulate:
    """The pass `accumulate`: runs reductions over whole slices of symbolic dimensions point by point."""

    name: str = "accumulate"

    def run(self, pdg: Pdg) -> Rewritten:
        edit = Edit(pdg)
        for op in pdg:
            if op.kind in REDUCTIONS and is_sliced(op.inputs[0]):
                reason = _refusal(edit, op)
                if reason is None:
                    _accumulate(edit, op)
                else:
                    edit.refused[op.id] = reason
        return edit.finish()


def _refusal(edit: Edit, op: Op) -> str | None:
    """Return the reason why the reduction cannot run point by point, or None."""
    (read,) = op.inputs
    if op.dtype in HALF and op.kind in ("sum", "prod"):
        return f"a slot of {op.dtype} would be rounded at every point"
    output = edit.ops[read.source].outputs[read.out]
    slices = 0
    for d, entry in zip(output.domain, read.index, strict=True):
        if isinstance(entry, Slice):
            slices += 1
            moving = edit.dims.ordered(entry.symbols)
            if moving:
                return f"its slice {entry} moves with {', '.join(moving)}"
            if edit.dims.mention(entry.symbols - set(edit.dims.lengths(output.domain))):
                return f"the end of its slice {entry} varies, and its operand does not end there"
        elif entry.as_symbol != d:
            return f"it reads {d} at {entry}"
    if not set(range(slices)) <= set(op.attrs.axes):
        return "it does not reduce all slices that it reads"
    return None


def _accumulate(edit: Edit, op: Op) -> None:
    """Replace a reduction over symbolic dimensions by an accumulation of its terms."""
    (read,) = op.inputs
    source = edit.ops[read.source]
    output = source.outputs[read.out]
    where: list[Cond] = []
    dims: list[str] = []
    for d, entry in zip(output.domain, read.index, strict=True):
        if isinstance(entry, Slice):
            dims.append(d)
            if entry is not edit.dims[d].full_range:
                where.append(all_of(ge(sym(d), entry.lo), lt(sym(d), entry.hi)))
        else:
            assert isinstance(entry, Lin)
    part = _all_but_neutral(edit, source, op.kind)
    if part is None or _leaves_gaps(edit, op, part) or edit.needs([part.source], op.id):
        part = edit.read_same_point(source, read.out)
    if part.cond is not TRUE:
        where.append(part.cond)
        part = Read(part.source, part.out, part.index)
    here = op.with_(where=all_of(op.where, *where))
    inner = tuple(a - len(dims) for a in op.attrs.axes if a >= len(dims))
    if inner:
        part = edit.read_same_point(edit.add(op.kind, [part], AxesAttrs(inner), like=here))
    elif output.type.dtype != op.dtype:  # sums of booleans are integers
        part = edit.read_same_point(edit.add("cast", [part], CastAttrs(op.dtype), like=here))
    edit.insert(
        op.with_(
            kind="accumulate",
            domain=edit.dims.ordered({*output.domain, *op.domain}),
            inputs=(part,),
            attrs=AccumulateAttrs(op.kind, tuple(dims)),
            outputs=(Output(op.type, op.domain, op.kind, op.label),),
            where=here.where,
        )
    )
    edit.steps.append(RewriteStep("accumulated", (op.id,), (op.id,), f"over {', '.join(dims)}"))


def _all_but_neutral(edit: Edit, merge: Op, reduce: str) -> Read | None:
    """Return the only branch of a merge with an effect on a reduction, read at the merge's own point."""
    if merge.kind != "merge":
        return None
    branches = [read for read in merge.inputs if not _is_neutral(edit, read, reduce)]
    if len(branches) != 1 or len(merge.inputs) == 1:
        return None
    (branch,) = branches
    domain = edit.ops[branch.source].outputs[branch.out].domain
    return branch if is_own(branch.index, domain) else None


def _leaves_gaps(edit: Edit, op: Op, part: Read) -> bool:
    """Whether, under some bounds, some points of a reduction get no summand while others do."""
    if part.cond.symbols.isdisjoint(op.domain):
        return False
    (read,) = op.inputs
    domain = edit.ops[read.source].outputs[read.out].domain
    all_of_it = Set.from_condition(edit.dims, op.domain, op.where).with_bounds({})
    added = Set.from_condition(edit.dims, domain, part.cond)
    some = Relation.reads(all_of_it, read.index, added).restrict_range(added).domain()
    return (all_of_it - some).exists_with(some)


def _is_neutral(edit: Edit, read: Read, reduce: str) -> bool:
    """Whether a read is a constant without effect on a reduction."""
    op = edit.ops[read.source]
    if op.kind in ("expand", "reshape"):
        return _is_neutral(edit, op.inputs[0], reduce)
    if op.kind != "const":
        return False
    array = op.attrs.value.array
    return bool(np.all(array == identity(reduce, array.dtype)))
