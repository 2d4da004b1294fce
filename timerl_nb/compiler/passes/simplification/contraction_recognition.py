"""Recognition of contractions: sums of products become matrix products.

A weight gradient, the sum over b of x[b] * dy[b], becomes one matrix product over the merged axes, instead
of a broadcast, a multiplication and a reduction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit, Rewritten
from timerl_nb.compiler.ir.operation_attributes import ConvAttrs, DotAttrs, ScatterAttrs, ShapeAttrs
from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.ir.shapes import is_float
from timerl_nb.compiler.passes.simplification.local_rules_cse_dce import (
    Answer,
    Look,
    Rule,
    apply_rules,
    remove_dead,
    remove_duplicates,
)


def _sum_of_dot(look: Look) -> Answer:
    """Merge a sum over axes of a contraction (convolution, scatter) into the contraction."""
    op = look.op
    inner = look.operand(0) if op.kind == "sum" else None
    if inner is None or inner.kind not in ("dot", "conv", "scatter_add"):
        return None
    dot: DotAttrs | ConvAttrs | ScatterAttrs = inner.attrs
    gone = {dot.out[a] for a in op.attrs.axes}
    out = "".join(x for x in dot.out if x not in gone)
    if not gone <= set(dot.left) & set(dot.right):
        return None  # an axis of one operand only should be summed before the product
    if isinstance(dot, ConvAttrs) and gone & {s.label for s in dot.sweeps}:
        return None
    return look.rebuild(inner.kind, inner.inputs, replace(dot, out=out))


def _sum_of_outer(look: Look) -> Answer:
    """Replace sum over a of x[a, i, 1] * y[a, 1, j] by a contraction over a."""
    op = look.op
    inner = look.operand(0) if op.kind == "sum" else None
    if inner is None or inner.kind != "mul" or not is_float(op.dtype):
        return None
    inside = Look(look.edit, inner)
    shapes = [inside.shape(k) for k in (0, 1)]
    labels = "abcdefghijklmnopq"[: len(inner.shape)]
    if any(len(shape) != len(labels) for shape in shapes):
        return None
    mine = ["".join(x for x, s in zip(labels, shape, strict=True) if s != 1) for shape in shapes]
    gone = {labels[a] for a in op.attrs.axes}
    out = "".join(x for k, x in enumerate(labels) if x not in gone and inner.shape[k] != 1)
    alone = [set(mine[k]) - set(mine[1 - k]) for k in (0, 1)]
    if not all(alone) or not gone <= set(mine[0]) & set(mine[1]) or len(out) != len(op.shape):
        return None
    reads = [_without_ones(look, inner, k) for k in (0, 1)]
    return look.rebuild("dot", reads, DotAttrs(mine[0], mine[1], out))


def _without_ones(look: Look, inner: Op, k: int) -> Read:
    shape = Look(look.edit, inner).shape(k)
    kept = tuple(s for s in shape if s != 1)
    if len(kept) == len(shape):
        return inner.inputs[k]
    made = look.edit.add("reshape", [inner.inputs[k]], ShapeAttrs(kept), like=look.op)
    return look.edit.read_same_point(made)


RULES: Final[Mapping[str, Rule]] = {
    "sum of a contraction": _sum_of_dot,
    "sum of an outer product": _sum_of_outer,
}


@dataclass(frozen=True)
class Contract:
    """The pass `contract`: turns sums of products into single contractions over merged axes."""

    name: str = "contract"

    def run(self, pdg: Pdg) -> Rewritten:
        edit = Edit(pdg)
        apply_rules(edit, RULES)
        remove_duplicates(edit)
        remove_dead(edit)
        return edit.finish()
