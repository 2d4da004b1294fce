"""Algebraic rules: identities, signs, broadcasts, constants, transpositions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import (
    AxesAttrs,
    ConstArray,
    ConstAttrs,
    PermAttrs,
    ShapeAttrs,
    ValueAttrs,
)
from timerl_nb.compiler.ir.operation_kinds import ELEMENTWISE, SINKS
from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.ir.shapes import broadcast, is_float, same_shape
from timerl_nb.compiler.passes.simplification.local_rules_cse_dce import (
    Answer,
    Look,
    Rule,
    typed_constant,
)
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Lin

_FOLD_LIMIT = 256  # elements; larger constants are not folded


def _identity(look: Look) -> Answer:
    """Remove copies, and operations with a neutral operand."""
    op = look.op
    one = [look.scalar(k) == 1 for k in range(len(op.inputs))]
    zero = [look.scalar(k) == 0 for k in range(len(op.inputs))]
    match op.kind:
        case "copy" | "detach":  # gradients are computed before this pass
            return look.operand_as_result(0)
        case "reshape" | "expand" | "cast":
            return look.operand_as_result(0)  # to the same shape or dtype
        case "transpose" if op.attrs.perm == tuple(range(len(op.attrs.perm))):
            return look.operand_as_result(0)
        case "reindex" if op.attrs.is_identity:
            return look.operand_as_result(0)
        case "mul":  # x * 1 = 1 * x = x
            return (
                look.operand_as_result(0)
                if one[1]
                else look.operand_as_result(1)
                if one[0]
                else None
            )
        case "div" | "pow" if one[1]:  # x / 1 = x ** 1 = x
            return look.operand_as_result(0)
        case "add":  # x + 0 = 0 + x = x
            return (
                look.operand_as_result(0)
                if zero[1]
                else look.operand_as_result(1)
                if zero[0]
                else None
            )
        case "sub" if zero[1]:  # x - 0 = x
            return look.operand_as_result(0)
        case "where" if op.inputs[1] == op.inputs[2]:  # where(c, x, x) = x
            return look.operand_as_result(1)
        case "sum" | "prod" | "max" | "min" if not op.attrs.axes:
            return look.operand_as_result(0)
        case "concat" if len(op.inputs) == 1:
            return look.operand_as_result(0)
        case _:
            return None


def _double(look: Look) -> Answer:
    """Apply -(-x) = x, not not x = x, and the same for pairs of layout operations."""
    op = look.op
    inner = look.operand(0) if op.inputs else None
    if inner is None or inner.kind != op.kind:
        return None
    if inner.attrs == op.attrs and (
        op.kind in ("neg", "not") or (op.kind == "reindex" and op.attrs.is_reversal)
    ):
        return _inner_read(look, inner)
    if op.kind in ("reshape", "expand"):
        return look.rebuild(op.kind, inner.inputs, op.attrs) if _same_rank(inner, op) else None
    if op.kind == "transpose":
        perm = tuple(inner.attrs.perm[k] for k in op.attrs.perm)
        return look.rebuild("transpose", inner.inputs, PermAttrs(perm))
    return None


def _same_rank(inner: Op, op: Op) -> bool:
    return op.kind == "reshape" or len(inner.shape) == len(op.shape)


def _inner_read(look: Look, inner: Op) -> Read | None:
    read = inner.inputs[0]
    return read if look.edit.ops[read.source].outputs[read.out].domain == look.op.domain else None


def _signs(look: Look) -> Answer:
    """Apply x + -y = x - y; x - -y = x + y; -x + y = y - x; x * -1 = -x."""
    op = look.op
    if op.kind == "mul" and look.scalar(1) == -1 and look.operand_as_result(0):
        return look.rebuild("neg", op.inputs[:1])
    if op.kind not in ("add", "sub"):
        return None
    right, left = look.operand(1), look.operand(0)
    if right is not None and right.kind == "neg":
        return look.rebuild("sub" if op.kind == "add" else "add", (op.inputs[0], right.inputs[0]))
    if op.kind == "add" and left is not None and left.kind == "neg":
        return look.rebuild("sub", (op.inputs[1], left.inputs[0]))
    return None


def _broadcast(look: Look) -> Answer:
    """Apply f(expand(x), y) = f(x, y) if y has the full shape; the same for added axes."""
    op = look.op
    if op.kind not in ELEMENTWISE or len(op.inputs) < 2:
        return None
    for k, read in enumerate(op.inputs):
        inner = look.operand(k)
        if inner is None or inner.kind not in ("expand", "reshape") or read.out:
            continue
        source = inner.inputs[0]
        narrow = Look(look.edit, inner).shape(0)
        if inner.kind == "reshape" and narrow:
            continue
        shapes = [narrow if j == k else look.shape(j) for j in range(len(op.inputs))]
        together = broadcast(shapes)
        if together is not None and same_shape(together, op.shape):
            inputs = [source if j == k else r for j, r in enumerate(op.inputs)]
            return look.rebuild(op.kind, inputs, op.attrs)
    return None


def _sum_of_repeated(look: Look) -> Answer:
    """Apply sum(expand(x)) over repeated axes = x * count."""
    op = look.op
    inner = look.operand(0) if op.kind == "sum" else None
    if inner is None or inner.kind != "expand":
        return None
    before = Look(look.edit, inner).shape(0) or (1,) * len(inner.shape)
    axes: tuple[int, ...] = op.attrs.axes
    if len(before) != len(inner.shape) or any(before[a] != 1 for a in axes):
        return None
    sizes = [s for s in (inner.shape[a] for a in axes) if isinstance(s, int)]
    kept = tuple(s for k, s in enumerate(before) if k not in axes)
    if len(sizes) < len(axes) or not same_shape(kept, op.shape) or not prod(sizes):
        return None  # 0 times infinity differs from an empty sum
    edit = look.edit
    small = edit.add("reshape", inner.inputs, ShapeAttrs(kept), like=op)
    times = ConstAttrs(ConstArray(typed_constant(prod(sizes), op)))
    count = edit.add("const", (), times, like=op)
    return look.rebuild("mul", (edit.read_same_point(small), edit.read_same_point(count)))


def _trivial_merge(look: Look) -> Answer:
    """Replace a merge of one branch by that branch, unless it is part of a recurrence."""
    op = look.op
    if op.kind == "merge" and len(op.inputs) == 1 and not look.edit.needs(op.sources, op.id):
        return Read(op.inputs[0].source, op.inputs[0].out, op.inputs[0].index)
    return None


# kinds without a value, or with unknown duration
_NOT_FOLDED: Final = SINKS | {"merge", "accumulate", "udf", "jaxed"}


def _fold(look: Look) -> Answer:
    """Replace an operation on constants by a constant."""
    op, edit = look.op, look.edit
    if op.kind == "value":
        return _fold_value(look)
    sources = [edit.ops[r.source] for r in op.inputs]
    constant = all(source.kind == "const" and not source.domain for source in sources)
    if not constant or not op.inputs or op.kind in _NOT_FOLDED:
        return None
    if any(e.symbols for e in op.attrs.exprs):  # their values depend on the bounds
        return None
    if (
        any(not isinstance(s, int) for s in op.shape)
        or prod(s for s in op.shape if isinstance(s, int)) > _FOLD_LIMIT
    ):
        return None
    single = op.with_(
        domain=(), where=TRUE, outputs=tuple(replace(o, domain=()) for o in op.outputs)
    )
    small = Pdg(edit.dims, {source.id: source for source in (*sources, single)})
    bounds = {d.bound: 1 for d in edit.dims}
    attrs = ConstAttrs(
        ConstArray(Reference(small, bounds).evaluate_read(edit.read_same_point(single), bounds))
    )
    if not op.domain:
        return look.rebuild("const", (), attrs)
    return edit.read_same_point(edit.add("const", (), attrs, like=op))


def _fold_value(look: Look) -> Answer:
    attrs: ValueAttrs = look.op.attrs
    known = attrs.expr.const if isinstance(attrs.expr, Lin) and attrs.expr.is_const else None
    if not isinstance(attrs.expr, Lin) and not attrs.expr.symbols:
        known = attrs.expr is TRUE
    if known is None or attrs.axes or look.op.domain:
        return None
    return look.rebuild("const", (), ConstAttrs(ConstArray(typed_constant(known, look.op))))


def _constants_together(look: Look) -> Answer:
    """Apply (x * c) * d = x * (c * d), for scalars c and d."""
    op, edit = look.op, look.edit
    if op.kind != "mul" or not is_float(op.dtype):
        return None
    for k in (0, 1):
        outer, inner = look.scalar(k), look.operand(1 - k)
        if outer is None or inner is None or inner.kind != "mul":
            continue
        inside = Look(edit, inner)
        for j in (0, 1):
            c = inside.scalar(j)
            if c is not None and inside.scalar(1 - j) is None:
                with np.errstate(all="ignore"):
                    product = typed_constant(outer * c, op)
                if not np.isfinite(product) or (product == 0 and outer and c):
                    return None  # out of range, although the single steps may be in range
                both = ConstAttrs(ConstArray(product))
                folded = edit.add("const", (), both, like=op)
                return look.rebuild("mul", (inner.inputs[1 - j], edit.read_same_point(folded)))
    return None


def _sum_of_transpose(look: Look) -> Answer:
    """Apply sum(transpose(x)) = sum(x) if the remaining axes are in order."""
    op = look.op
    inner = look.operand(0) if op.kind in ("sum", "max", "min", "prod") else None
    if inner is None or inner.kind != "transpose":
        return None
    perm = inner.attrs.perm
    axes = tuple(sorted(perm[a] for a in op.attrs.axes))
    rest = [perm[k] for k in range(len(perm)) if k not in op.attrs.axes]
    if rest != sorted(rest):
        return None
    return look.rebuild(op.kind, inner.inputs, AxesAttrs(axes))


def _dot_of_transpose(look: Look) -> Answer:
    """Apply the permutation of a transposed operand to the labels of a contraction."""
    op = look.op
    if op.kind not in ("dot", "conv", "gather"):
        return None
    for k, labels in enumerate((op.attrs.left, op.attrs.right)):
        inner = look.operand(k)
        if inner is None or inner.kind != "transpose":
            continue
        perm: PermAttrs = inner.attrs
        old = "".join(labels[perm.perm.index(a)] for a in range(len(labels)))
        which = "right" if k else "left"
        inputs = [inner.inputs[0] if j == k else r for j, r in enumerate(op.inputs)]
        return look.rebuild(op.kind, inputs, replace(op.attrs, **{which: old}))
    return None


RULES: Final[Mapping[str, Rule]] = {
    "sum of a transpose": _sum_of_transpose,
    "contraction of a transpose": _dot_of_transpose,
    "identity": _identity,
    "double": _double,
    "trivial merge": _trivial_merge,
    "signs": _signs,
    "broadcast removal": _broadcast,
    "sum of repeated": _sum_of_repeated,
    "constant folding": _fold,
    "constants together": _constants_together,
}
