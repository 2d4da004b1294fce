"""Slices as parts: runs of consecutive points, one per tensor or branch of a merge.

A slice of one tensor is one run. A slice of a merge (`o[i, 0:T]`, with `o[i, 0]` and `o[i, t + 1]`
from different operations) is one run per branch if it does not move. A slice used only for a lookup
(`x[t - 9:t + 1].take(at)`) is not gathered: only the selected values are read.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.compiler.ir.analysis.resolved_reads import accesses
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op, Read, Tensor
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import (
    Cond,
    Lin,
    Slice,
    const,
    invent_symbol,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst

_ALONG = invent_symbol("along")  # the point along the slice


@dataclass(frozen=True)
class PointRange:
    """Consecutive points of one tensor.

    Attributes:
        tensor: the tensor.
        index: the first point.
        along: the position of the varying dimension, or None for a single value.
        count: the number of points.
    """

    tensor: Tensor
    index: tuple[Lin, ...]
    along: int | None
    count: Lin

    @property
    def other_indices(self) -> tuple[Lin, ...]:
        """The index without the varying dimension."""
        return tuple(e for k, e in enumerate(self.index) if k != self.along)


def is_picked(op: Op, slot: int) -> bool:
    """Return whether a kernel uses a sliced operand only for lookups along the slice.

    The slice must have one dimension.
    """
    if not isinstance(op.attrs, DataflowAttrs):
        return False
    operand = OPERAND, slot
    if sum(isinstance(e, Slice) for e in op.inputs[slot].index) != 1 or operand in op.attrs.results:
        return False
    readers = [one for one in op.attrs.body if any(r.tensor == operand for r in one.inputs)]
    return bool(readers) and all(
        one.kind == "gather"
        and one.inputs[0].tensor == operand != one.inputs[1].tensor
        and one.attrs.left[0] == one.attrs.axis
        for one in readers
    )


def split(
    pdg: Pdg, bounds: Point, read: Read, kept: Container[int] = ()
) -> tuple[PointRange, ...] | str:
    """Return the parts of a sliced read, in order, or the reason why there are none.

    Args:
        pdg: the graph.
        bounds: the actual bounds.
        read: the read.
        kept: merges that parts may refer to, instead of their branches.
    """
    (at, *more) = [k for k, e in enumerate(read.index) if isinstance(e, Slice)]
    along = read.index[at]
    assert isinstance(along, Slice)
    if more:
        return "it is read in slices of several dimensions"
    if pdg[read.source].kind != "merge" or read.source in kept:
        index = tuple(e.lo if isinstance(e, Slice) else e for e in read.index)
        return (PointRange(read.tensor, index, at, along.length),)
    if not (along.lo.symbols | along.hi.symbols) <= bounds.keys():
        return "it is read through a merge in moving slices"
    first, end = evaluate(along.lo, bounds), evaluate(along.hi, bounds)
    index = tuple(sym(_ALONG) if isinstance(e, Slice) else e for e in read.index)
    found = [a.read for a in accesses(pdg, Read(read.source, read.out, index), kept)]
    return _runs(found, first, end, bounds)


def _runs(found: list[Read], first: int, end: int, bounds: Point) -> tuple[PointRange, ...] | str:
    """Return the branches of a merge as runs of consecutive points, or why this fails."""
    points = np.arange(first, end)
    which = np.full(len(points), len(found) - 1)
    for k, leaf in reversed(list(enumerate(found[:-1]))):
        if not leaf.cond.symbols <= {_ALONG, *bounds}:
            return "the branch of its merge changes from point to point"
        which[_holds(leaf.cond, points, bounds)] = k
    starts = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(points)]
    parts: list[PointRange] = []
    for start, stop in zip(starts[:-1], starts[1:], strict=True):
        if start == stop:
            continue
        leaf = found[int(which[start])]
        index = tuple(e for e in leaf.index if isinstance(e, Lin))
        moving = [k for k, e in enumerate(index) if _ALONG in e.symbols]
        shifted = len(moving) == 1 and (index[moving[0]] - sym(_ALONG)).symbols <= bounds.keys()
        if not shifted and stop - start > 1:
            return "a merge reads it backwards, with a step, or repeats a value"
        here = tuple(subst(e, {_ALONG: const(first + start)}) for e in index)
        parts.append(
            PointRange(leaf.tensor, here, moving[0] if shifted else None, const(stop - start))
        )
    return tuple(parts)


def _holds(cond: Cond, points: Any, bounds: Point) -> Any:
    return np.broadcast_to(values(cond, {**bounds, _ALONG: points}), len(points))
