"""Recurrences along several dimensions: first point, previous point, number of the point.

Points are in lexicographic order, the last dimension fastest: after the last minibatch of an iteration comes the
first one of the next.
"""

from __future__ import annotations

from timerl_nb.compiler.ir.operations import Read
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, value_of
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import all_of, eq, ge, sym


def initial_branch(x: RecurrentTensor, along: Domain) -> Read:
    """Return the branch that reads `x` at the first point."""
    start = all_of(*(eq(sym(d), 0) for d in along))
    return Read(x.read.source, x.read.out, x.read.index, start)


def previous_branches(x: RecurrentTensor, along: Domain) -> list[Read]:
    """Return the branches that read `x` at the previous point, one per dimension that a step can advance."""
    reads: list[Read] = []
    for k in reversed(range(len(along))):
        step, inner = along[k], along[k + 1 :]
        ends = {d: x.ctx.space[d].size - 1 for d in inner}
        before = x.at({step: sym(step) - 1, **ends}).read
        when = all_of(ge(sym(step), 1), *(eq(sym(d), 0) for d in inner))
        reads.append(Read(before.source, before.out, before.index, when))
    return reads


def ordinal(x: RecurrentTensor, along: Domain) -> RecurrentTensor:
    """Return the number of the current point, counted from 1, as int32 in the context of `x`."""
    ctx, outer = x.ctx, along[:-1]
    count = value_of(ctx, sym(along[-1]) + 1)
    for k, d in enumerate(outer):
        row = value_of(ctx, sym(d))
        for inner in along[k + 1 :]:
            row = row * value_of(ctx, ctx.space[inner].size)
        count = count + row
    return count
