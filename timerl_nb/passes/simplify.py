"""Simplification: dead and duplicate code, constant folding, algebra, broadcasts, factors of sums.

Local algebra is a list of rules: a rule looks at one operation and answers with what it equals, a
read of another operation or the operation written differently. Factors that are constant along a
summed dimension are lifted out of the sum: left inside, they would make learning wait for them
(an average over all steps in every step's gradient takes the overlap away).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np

from timerl_nb.ir.attrs import (
    NO_ATTRS,
    AxesAttrs,
    ConstArray,
    ConstAttrs,
    PermAttrs,
    ShapeAttrs,
    ValueAttrs,
)
from timerl_nb.ir.kinds import ELEMENTWISE, SINKS
from timerl_nb.ir.ops import Op, Read, attr_exprs, is_own, read_symbols
from timerl_nb.ir.pdg import Pdg, crosses, read_type
from timerl_nb.ir.reference import Reference
from timerl_nb.ir.rewrite import Edit, Rewritten, Step
from timerl_nb.ir.shapes import NUMPY, Shape, broadcast, is_float, same_shape
from timerl_nb.passes.unused import restrict_to_needed
from timerl_nb.symbolic.expr import TRUE, Lin, Slice
from timerl_nb.symbolic.substitute import subst_entry

Answer = Read | Op | None
Rule = Callable[["Look"], Answer]
_FOLD_LIMIT = 256  # elements; larger constants stay as the operations that make them


@dataclass(frozen=True)
class Look:
    """One operation under a rule, with its operands in reach."""

    edit: Edit
    op: Op

    def operand(self, k: int) -> Op | None:
        """The operation behind operand `k` where it is read at the operation's own point."""
        read = self.op.inputs[k]
        return self.edit.ops[read.source] if self.is_own(read) else None

    def is_own(self, read: Read) -> bool:
        domain = self.edit.ops[read.source].outputs[read.out].domain
        return read.cond is TRUE and is_own(read.index, domain)

    def shape(self, k: int) -> Shape:
        read = self.op.inputs[k]
        return read_type(self.edit.ops[read.source].outputs[read.out], read).shape

    def scalar(self, k: int) -> float | None:
        """The value of operand `k` where it is a constant of one element and no axes."""
        source = self.operand(k)
        if source is None or source.kind != "const" or source.shape:
            return None
        return float(source.attrs.value.array)

    def keeps(self, k: int) -> Read | None:
        """Operand `k` as an answer, where it has the operation's own type."""
        read = self.op.inputs[k]
        output = self.edit.ops[read.source].outputs[read.out]
        same = same_shape(self.shape(k), self.op.shape) and output.type.dtype == self.op.dtype
        return read if same else None

    def remade(self, kind: str, inputs: Iterable[Read], attrs: Any = NO_ATTRS) -> Op:
        """The operation under its id as another kind; its type and domain stay."""
        return self.op.with_(kind=kind, inputs=tuple(inputs), attrs=attrs)


# --- rules: identities of the algebra ------------------------------------------------------------


def _identity(look: Look) -> Answer:
    """Copies, and operations whose neutral element is an operand."""
    op = look.op
    one = [look.scalar(k) == 1 for k in range(len(op.inputs))]
    zero = [look.scalar(k) == 0 for k in range(len(op.inputs))]
    match op.kind:
        case "copy" | "detach":  # gradients are written by now
            return look.keeps(0)
        case "reshape" | "expand" | "cast" | "range":
            return look.keeps(0)  # to the same shape or dtype
        case "transpose" if op.attrs.perm == tuple(range(len(op.attrs.perm))):
            return look.keeps(0)
        case "reindex" if op.attrs.at.as_symbol == op.attrs.dim:
            return look.keeps(0)
        case "mul":  # x * 1 = 1 * x = x
            return look.keeps(0) if one[1] else look.keeps(1) if one[0] else None
        case "div" | "pow" if one[1]:  # x / 1 = x ** 1 = x
            return look.keeps(0)
        case "add":  # x + 0 = 0 + x = x
            return look.keeps(0) if zero[1] else look.keeps(1) if zero[0] else None
        case "sub" if zero[1]:  # x - 0 = x
            return look.keeps(0)
        case "where" if op.inputs[1] == op.inputs[2]:  # where(c, x, x) = x
            return look.keeps(1)
        case "sum" | "prod" | "max" | "min" if not op.attrs.axes:
            return look.keeps(0)
        case "concat" if len(op.inputs) == 1:
            return look.keeps(0)
        case _:
            return None


def _double(look: Look) -> Answer:
    """-(-x) = x, not not x = x, and the same for pairs of layout operations."""
    op = look.op
    inner = look.operand(0) if op.inputs else None
    if inner is None or inner.kind != op.kind:
        return None
    if op.kind in ("neg", "not", "flip") and inner.attrs == op.attrs:
        return _inner_read(look, inner)
    if op.kind in ("reshape", "expand"):
        return look.remade(op.kind, inner.inputs, op.attrs) if _same_rank(inner, op) else None
    if op.kind == "transpose":
        perm = tuple(inner.attrs.perm[k] for k in op.attrs.perm)
        return look.remade("transpose", inner.inputs, PermAttrs(perm))
    return None


def _same_rank(inner: Op, op: Op) -> bool:
    return op.kind == "reshape" or len(inner.shape) == len(op.shape)


def _inner_read(look: Look, inner: Op) -> Read | None:
    read = inner.inputs[0]
    return read if look.edit.ops[read.source].outputs[read.out].domain == look.op.domain else None


def _signs(look: Look) -> Answer:
    """x + -y = x - y; x - -y = x + y; -x + y = y - x; x * -1 = -x."""
    op = look.op
    if op.kind == "mul" and look.scalar(1) == -1 and look.keeps(0):
        return look.remade("neg", op.inputs[:1])
    if op.kind not in ("add", "sub"):
        return None
    right, left = look.operand(1), look.operand(0)
    if right is not None and right.kind == "neg":
        return look.remade("sub" if op.kind == "add" else "add", (op.inputs[0], right.inputs[0]))
    if op.kind == "add" and left is not None and left.kind == "neg":
        return look.remade("sub", (op.inputs[1], left.inputs[0]))
    return None


def _broadcast(look: Look) -> Answer:
    """f(expand(x), y) = f(x, y) where y alone has the full shape; the same for added axes."""
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
            return look.remade(op.kind, inputs, op.attrs)
    return None


def _sum_of_repeated(look: Look) -> Answer:
    """sum(expand(x)) over the repeated axes alone = x * how often."""
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
    if len(sizes) < len(axes) or not same_shape(kept, op.shape):
        return None
    edit = look.edit
    small = edit.add("reshape", inner.inputs, ShapeAttrs(kept), like=op)
    times = ConstAttrs(ConstArray(_typed(prod(sizes), op)))
    count = edit.add("const", (), times, like=op)
    return look.remade("mul", (edit.own(small), edit.own(count)))


def _typed(value: Any, op: Op) -> Any:
    return np.asarray(value, NUMPY[op.dtype])


def _trivial_merge(look: Look) -> Answer:
    """A merge of one branch is that branch, unless it is what a recurrence passes through."""
    op = look.op
    if op.kind == "merge" and len(op.inputs) == 1 and not _closes_a_cycle(look.edit, op):
        return Read(op.inputs[0].source, op.inputs[0].out, op.inputs[0].index)
    return None


def _closes_a_cycle(edit: Edit, merge: Op) -> bool:
    """Whether the merge's branch needs the merge, through no other merge."""
    seen: set[int] = set()
    stack = [read.source for read in merge.inputs]
    while stack:
        op_id = stack.pop()
        if op_id == merge.id:
            return True
        if op_id not in seen and edit.ops[op_id].kind != "merge":
            seen.add(op_id)
            stack += [read.source for read in edit.ops[op_id].inputs]
    return False


def _fold(look: Look) -> Answer:
    """An operation of constants is a constant."""
    op, edit = look.op, look.edit
    if op.kind == "value":
        return _fold_value(look)
    constant = all(edit.ops[r.source].kind == "const" for r in op.inputs)
    if (
        not constant
        or op.domain
        or not op.inputs
        or op.kind in SINKS | {"merge", "accumulate", "udf"}
    ):
        return None
    if any(e.symbols for e in attr_exprs(op.attrs)):  # their values are the bounds'
        return None
    if (
        any(not isinstance(s, int) for s in op.shape)
        or prod(map(int, _ints(op.shape))) > _FOLD_LIMIT
    ):
        return None
    small = Pdg(edit.dims, {r.source: edit.ops[r.source] for r in op.inputs} | {op.id: op})
    bounds = {d.bound: 1 for d in edit.dims}
    array = Reference(small, bounds).read(edit.own(op), bounds)
    return look.remade("const", (), ConstAttrs(ConstArray(array)))


def _ints(shape: Shape) -> list[int]:
    return [s for s in shape if isinstance(s, int)]


def _fold_value(look: Look) -> Answer:
    attrs: ValueAttrs = look.op.attrs
    known = attrs.expr.const if isinstance(attrs.expr, Lin) and attrs.expr.is_const else None
    if not isinstance(attrs.expr, Lin) and not attrs.expr.symbols:
        known = attrs.expr is TRUE
    if known is None or attrs.axes or look.op.domain:
        return None
    return look.remade("const", (), ConstAttrs(ConstArray(_typed(known, look.op))))


def _constants_together(look: Look) -> Answer:
    """(x * c) * d = x * (c * d), for scalars c and d."""
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
                    product = _typed(outer * c, op)
                if not np.isfinite(product) or (product == 0 and outer and c):
                    return None  # beyond the range, though each step may stay inside
                both = ConstAttrs(ConstArray(product))
                folded = edit.add("const", (), both, like=op)
                return look.remade("mul", (inner.inputs[1 - j], edit.own(folded)))
    return None


def _sum_of_transpose(look: Look) -> Answer:
    """sum(transpose(x)) over the leading axes' permutation = sum(x), where the rest stays in order."""
    op = look.op
    inner = look.operand(0) if op.kind in ("sum", "max", "min", "prod") else None
    if inner is None or inner.kind != "transpose":
        return None
    perm = inner.attrs.perm
    axes = tuple(sorted(perm[a] for a in op.attrs.axes))
    rest = [perm[k] for k in range(len(perm)) if k not in op.attrs.axes]
    if rest != sorted(rest):
        return None
    return look.remade(op.kind, inner.inputs, AxesAttrs(axes))


def _dot_of_transpose(look: Look) -> Answer:
    """A contraction of a transposed operand = the contraction with its labels in the old order."""
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
        return look.remade(op.kind, inputs, replace(op.attrs, **{which: old}))
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


def apply_rules(edit: Edit, rules: Mapping[str, Rule]) -> None:
    """Apply local rules until none applies."""
    pending = dict.fromkeys(edit.ops)
    while pending:
        op_id = next(iter(pending))
        del pending[op_id]
        op = edit.ops.get(op_id)
        if op is None:
            continue
        if op_id in edit.ordered:
            edit.refused[op_id] = "an order names it"
            continue
        for name, rule in rules.items():
            before = len(edit.ops)
            answer = rule(Look(edit, op))
            if answer is None:
                continue
            if isinstance(answer, Read):
                readers = list(edit.readers[op_id])
                if not readers or not edit.redirect(op_id, answer):
                    continue
                edit.became(op_id, [answer.source])
                edit.steps.append(Step(name, (op_id,), (answer.source,)))
                edit.remove(op_id)
                pending.update(dict.fromkeys(readers))
            else:
                edit.insert(answer)
                edit.steps.append(Step(name, (op_id,), (op_id,), answer.kind))
                fresh = list(edit.ops)[before:]
                pending.update(dict.fromkeys([op_id, *fresh, *edit.readers[op_id]]))
            break


# --- whole-graph clean-up ------------------------------------------------------------------------


def remove_dead(edit: Edit) -> None:
    """Remove every operation that no sink needs."""
    alive: set[int] = set()
    stack = [op.id for op in edit.ops.values() if op.kind in SINKS]
    while stack:
        op_id = stack.pop()
        if op_id not in alive:
            alive.add(op_id)
            stack += [read.source for read in edit.ops[op_id].inputs]
    dead = [op_id for op_id in edit.ops if op_id not in alive]
    if dead:
        edit.steps.append(Step("dead code", tuple(dead), ()))
    for op_id in dead:
        edit.insert(edit.ops[op_id].with_(inputs=()))
    for op_id in dead:
        edit.became(op_id, ())
        edit.remove(op_id)


def _key(op: Op) -> tuple[Any, ...]:
    outputs = tuple((o.type.dtype, o.domain, o.reduce) for o in op.outputs)
    return (op.kind, op.inputs, op.attrs, op.domain, op.where, outputs)


def remove_duplicates(edit: Edit) -> None:
    """Let operations with the same equation be one operation."""
    changed = True
    while changed:
        changed = False
        first: dict[tuple[Any, ...], int] = {}
        for op_id in Pdg(edit.dims, edit.ops).order:
            op = edit.ops[op_id]
            if op.kind in SINKS or op.kind == "udf" or op_id in edit.ordered:
                continue
            kept = first.setdefault(_key(op), op_id)
            if kept != op_id and edit.redirect(op_id, edit.own(edit.ops[kept])):
                edit.steps.append(Step("duplicate code", (op_id, kept), (kept,)))
                if op.label and not edit.ops[kept].label:
                    edit.insert(edit.ops[kept].with_(label=op.label))
                edit.became(op_id, [kept])
                edit.remove(op_id)
                changed = changed or op.kind == "merge"


# --- factors of sums -----------------------------------------------------------------------------

Factor = tuple[str, Read]  # ("mul" or "div", the scalar)
_LINEAR: Final = frozenset(
    {"neg", "reshape", "transpose", "expand", "flip", "range", "at", "place", "reindex", "sum"}
    | {"gather", "scatter_add"}
)


class _Factors:
    """Scalar factors of an operation's value, and the value without them."""

    def __init__(self, edit: Edit) -> None:
        self.edit = edit
        self._without: dict[tuple[int, Factor], tuple[Op | None, bool]] = {}
        self.past_zero = False  # whether a zero that no factor was taken from was passed

    def candidates(self, op: Op, summed: frozenset[str], seen: set[int]) -> dict[Factor, None]:
        """Scalars, constant along `summed`, that multiply or divide something below `op`."""
        if op.id in seen:
            return {}
        seen.add(op.id)
        look = Look(self.edit, op)
        found: dict[Factor, None] = {}
        for k in (1, 0) if op.kind == "mul" else (1,) if op.kind == "div" else ():
            source = look.operand(k)
            if source is not None and not source.shape and is_float(source.dtype):
                domain = set(source.outputs[0].domain)
                if domain < set(op.domain) and not domain & summed:
                    found[op.kind, op.inputs[k]] = None
        for k in self._linear_in(op):
            source = look.operand(k)
            if source is not None:
                found.update(self.candidates(source, summed, seen))
        return found

    def _linear_in(self, op: Op) -> tuple[int, ...]:
        """The operands in which the operation is linear, each by itself or all together."""
        if op.kind in _LINEAR or op.kind == "div":
            return (0,)
        if op.kind in ("mul", "dot", "conv", "add", "sub"):
            return (0, 1)
        return (1, 2) if op.kind == "where" else ()

    def without(self, op: Op, factor: Factor) -> Op | None:
        """The operation's value without one occurrence of the factor; None if it has none."""
        key = (op.id, factor)
        before = self.past_zero
        if key not in self._without:
            self._without[key] = None, False  # a cycle has no factors
            self.past_zero = False
            rest = self._take(op, factor)
            self._without[key] = rest, self.past_zero
        found, passed = self._without[key]
        self.past_zero = before or passed
        return found

    def _take(self, op: Op, factor: Factor) -> Op | None:
        look, (how, read) = Look(self.edit, op), factor
        if op.kind == how:
            for k in (1, 0) if how == "mul" else (1,):
                rest = look.operand(1 - k)
                if op.inputs[k] == read and rest is not None and look.keeps(1 - k):
                    return rest
        sides = self._linear_in(op)
        if op.kind in ("mul", "dot", "conv"):
            for k in sides:
                made = self._rebuilt(look, (k,), factor)
                if made is not None:
                    return made
            return None
        if op.kind == "where":
            zeros = [k for k in sides if look.scalar(k) == 0]  # zero has every factor
            self.past_zero |= bool(zeros) and not self._is_finite(read)
            sides = tuple(k for k in sides if k not in zeros)
        return self._rebuilt(look, sides, factor)

    def _is_finite(self, factor: Read) -> bool:
        """Whether a factor is a constant by which zero can be multiplied or divided."""
        op = self.edit.ops[factor.source]
        return op.kind == "const" and bool(
            np.isfinite(op.attrs.value.array).all() and np.all(op.attrs.value.array)
        )

    def _rebuilt(self, look: Look, sides: tuple[int, ...], factor: Factor) -> Op | None:
        """The operation with all the given operands stripped; None if one cannot be."""
        inputs = list(look.op.inputs)
        for k in sides:
            source = look.operand(k)
            stripped = None if source is None else self.without(source, factor)
            if stripped is None:
                return None
            inputs[k] = self.edit.own(stripped)
        if not sides:
            return None
        op = look.op
        made = self.edit.add(op.kind, inputs, op.attrs, like=op, label=op.label)
        self.edit.became(op.id, [made.id])
        return made


def lift_factors(edit: Edit) -> None:
    """sum over d of (c * x[d]) = c * sum over d of x[d], for scalars c that do not vary over d."""
    factors = _Factors(edit)
    for op in list(edit.ops.values()):
        while op.kind == "sum" and op.id not in edit.ordered:
            lifted = _lift_one(edit, factors, op)
            if lifted is None:
                break
            op = lifted


def _lift_one(edit: Edit, factors: _Factors, op: Op) -> Op | None:
    """Lift one factor; the sum that remains, or None where there is none to lift."""
    (read,) = op.inputs
    body = edit.ops[read.source]
    entries = dict(zip(body.outputs[read.out].domain, read.index, strict=True))
    summed = frozenset(d for d, e in entries.items() if isinstance(e, Slice))
    if not summed:
        return None
    points = {d: e for d, e in entries.items() if isinstance(e, Lin)}
    for how, scalar in factors.candidates(body, summed, set()):
        factors.past_zero = False
        rest = factors.without(body, (how, scalar))
        if rest is None or not summed <= set(rest.outputs[0].domain):
            continue
        index = tuple(entries[d] for d in rest.outputs[0].domain)
        domain = body.outputs[read.out].domain
        if crosses(edit.dims, domain, read.index) and edit.dims.mention(read_symbols(scalar)):
            continue  # the factor would be read by another length
        inner = edit.add("sum", [Read(rest.id, 0, index)], op.attrs, like=op, label=op.label)
        outside = tuple(subst_entry(e, points) for e in scalar.index)
        factor = Read(scalar.source, scalar.out, outside)
        scaled = op.with_(kind=how, inputs=(edit.own(inner), factor), attrs=NO_ATTRS)
        if factors.past_zero:
            # nothing but zeros may have been summed, which a factor of 0 or inf must not spoil
            made = edit.add(how, scaled.inputs, like=op)
            zero = edit.own(edit.add("const", (), ConstAttrs(ConstArray(_typed(0, op))), like=op))
            empty = edit.add("eq", (edit.own(inner), zero), like=op)
            chosen = (edit.own(empty), edit.own(inner), edit.own(made))
            scaled = op.with_(kind="where", inputs=chosen, attrs=NO_ATTRS)
        edit.insert(scaled)
        edit.steps.append(Step("factor lifted out of a sum", (op.id,), (op.id, inner.id)))
        return inner
    return None


@dataclass(frozen=True)
class Simplify:
    """Dead and duplicate code, constant folding, algebra, factors of sums, unused points."""

    name: str = "simplify"

    def run(self, pdg: Pdg) -> Rewritten:
        edit = Edit(pdg)
        remove_dead(edit)
        apply_rules(edit, RULES)
        remove_duplicates(edit)
        lift_factors(edit)
        apply_rules(edit, RULES)
        remove_duplicates(edit)
        remove_dead(edit)
        restrict_to_needed(edit)
        return edit.finish()
