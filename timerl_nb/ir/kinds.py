"""The table of all operation kinds: operands, type rule, one sentence.

`arity` None means any number of operands. The tags group kinds for those who treat them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from timerl_nb.ir.attrs import (
    AtAttrs,
    AxesAttrs,
    AxisAttrs,
    CastAttrs,
    ConstAttrs,
    DiscountAttrs,
    DotAttrs,
    PermAttrs,
    PlaceAttrs,
    RangeAttrs,
    RngAttrs,
    ShapeAttrs,
    SlidingAttrs,
    ValueAttrs,
)
from timerl_nb.ir.host import TOKEN, CallAttrs, UdfAttrs
from timerl_nb.ir.ops import DataflowAttrs
from timerl_nb.ir.shapes import (
    Shape,
    Size,
    TensorType,
    broadcast,
    dtype_name,
    is_float,
    promote,
    same_shape,
    same_size,
    size,
)
from timerl_nb.symbolic.expr import lin, span

Types = Sequence[TensorType]
Infer = Callable[[Types, Any], TensorType | tuple[TensorType, ...]]


class TypeRuleError(Exception):
    """Operand types that a kind does not take; the frontend adds the user's line."""


@dataclass(frozen=True)
class KindSpec:
    """A row of the operation table."""

    kind: str
    arity: int | None
    infer: Infer
    doc: str
    tags: frozenset[str] = frozenset()

    def outputs(self, types: Types, attrs: Any) -> tuple[TensorType, ...]:
        """The types of all outputs; a sink has none.

        Raises:
            TypeRuleError: the kind does not take operands of these types.
        """
        made = self.infer(types, attrs)
        if "sink" in self.tags:
            return ()
        return made if isinstance(made, tuple) else (made,)


# --- type rules ----------------------------------------------------------------------------------


def _shown(types: Types) -> str:
    return " and ".join(map(str, types))


def _broadcast(types: Types) -> Shape:
    shape = broadcast([t.shape for t in types])
    if shape is None:
        raise TypeRuleError(f"{_shown(types)} do not broadcast")
    return shape


def _same(types: Types, _: Any) -> TensorType:
    return types[0]


def _arithmetic(types: Types, _: Any) -> TensorType:
    dtype = promote(t.dtype for t in types)
    if dtype == "bool":
        raise TypeRuleError("there is no arithmetic on booleans: cast them first")
    return TensorType(_broadcast(types), dtype)


def _float(types: Types, _: Any) -> TensorType:
    result = _arithmetic(types, _)
    if not is_float(result.dtype):
        raise TypeRuleError(f"needs floating-point values, not {_shown(types)}")
    return result


def _comparison(types: Types, _: Any) -> TensorType:
    return TensorType(_broadcast(types), "bool")


def _logical(types: Types, _: Any) -> TensorType:
    if any(t.dtype != "bool" for t in types):
        raise TypeRuleError(f"needs booleans, not {_shown(types)}")
    return TensorType(_broadcast(types), "bool")


def _where(types: Types, _: Any) -> TensorType:
    if types[0].dtype != "bool":
        raise TypeRuleError(f"the condition must be boolean, not {types[0]}")
    return TensorType(_broadcast(types), promote(t.dtype for t in types[1:]))


def _unit(types: Types, _: Any) -> TensorType:
    if types[0].dtype != "u32":
        raise TypeRuleError(f"needs random bits, not {types[0]}")
    return TensorType(types[0].shape, "f32")


def _without(types: Types, axes: tuple[int, ...]) -> Shape:
    for axis in axes:
        _axis(types, axis)
    return tuple(s for k, s in enumerate(types[0].shape) if k not in axes)


def _axis(types: Types, axis: int) -> int:
    if not 0 <= axis < types[0].rank:
        raise TypeRuleError(f"{types[0]} has no axis {axis}")
    return axis


def _sum(types: Types, attrs: AxesAttrs) -> TensorType:
    dtype = types[0].dtype
    return TensorType(_without(types, attrs.axes), "i32" if dtype == "bool" else dtype)


def _extremum(types: Types, attrs: AxesAttrs) -> TensorType:
    return TensorType(_without(types, attrs.axes), types[0].dtype)


def _argmax(types: Types, attrs: AxisAttrs) -> TensorType:
    return TensorType(_without(types, (attrs.axis,)), "i32")


def _discounted(types: Types, attrs: DiscountAttrs) -> TensorType:
    return TensorType(_without(types, (attrs.axis,)), _float(types, None).dtype)


def _sliding(types: Types, attrs: SlidingAttrs) -> TensorType:
    _axis(types, attrs.axis)
    return _float(types, None) if attrs.gamma != 1 else _arithmetic(types, None)


def _dot(types: Types, attrs: DotAttrs) -> TensorType:
    sizes: dict[str, Size] = {}
    for labels, t in ((attrs.left, types[0]), (attrs.right, types[1])):
        if len(labels) != t.rank:
            raise TypeRuleError(f"{t} has not the {len(labels)} axes that the product needs")
        for label, s in zip(labels, t.shape, strict=True):
            if not same_size(sizes.setdefault(label, s), s):
                raise TypeRuleError(f"{_shown(types)} disagree in a size: {sizes[label]} and {s}")
    return TensorType(tuple(sizes[x] for x in attrs.out), _arithmetic(_scalars(types), None).dtype)


def _scalars(types: Types) -> Types:
    return [TensorType((), t.dtype) for t in types]


def _reshape(types: Types, attrs: ShapeAttrs) -> TensorType:
    # Symbolic sizes may stand on both sides, in the same order; the others' products must agree.
    old, new = types[0].shape, attrs.shape
    symbolic = [[lin(s) for s in shape if not isinstance(s, int)] for shape in (old, new)]
    plain = [prod(s for s in shape if isinstance(s, int)) for shape in (old, new)]
    if symbolic[0] != symbolic[1] or plain[0] != plain[1]:
        raise TypeRuleError(f"{types[0]} cannot become {TensorType(new, types[0].dtype)}")
    return TensorType(new, types[0].dtype)


def _transpose(types: Types, attrs: PermAttrs) -> TensorType:
    if sorted(attrs.perm) != list(range(types[0].rank)):
        raise TypeRuleError(f"{attrs.perm} does not permute the axes of {types[0]}")
    return TensorType(tuple(types[0].shape[k] for k in attrs.perm), types[0].dtype)


def _expand(types: Types, attrs: ShapeAttrs) -> TensorType:
    made = TensorType(attrs.shape, types[0].dtype)
    together = broadcast([types[0].shape, attrs.shape])
    if together is None or not same_shape(together, attrs.shape) or types[0].rank > made.rank:
        raise TypeRuleError(f"{types[0]} does not broadcast to {made}")
    return made


def _concat(types: Types, attrs: AxisAttrs) -> TensorType:
    axis = _axis(types, attrs.axis)
    rest = _without(types, (axis,))
    for t in types:
        if t.rank != types[0].rank or not same_shape(_without([t], (axis,)), rest):
            raise TypeRuleError(f"{types[0]} and {t} cannot be joined along axis {axis}")
    total = lin(0)
    for t in types:
        total = total + t.shape[axis]
    shape = (*types[0].shape[:axis], size(total), *types[0].shape[axis + 1 :])
    return TensorType(shape, promote(t.dtype for t in types))


def _range(types: Types, attrs: RangeAttrs) -> TensorType:
    axis = _axis(types, attrs.axis)
    length = size(span(attrs.lo, attrs.hi).length)
    return TensorType((*types[0].shape[:axis], length, *types[0].shape[axis + 1 :]), types[0].dtype)


def _place(types: Types, attrs: PlaceAttrs) -> TensorType:
    axis = _axis(types, attrs.axis)
    shape = (*types[0].shape[:axis], size(attrs.size), *types[0].shape[axis + 1 :])
    return TensorType(shape, types[0].dtype)


def _at(types: Types, attrs: AtAttrs) -> TensorType:
    return TensorType(_without(types, (attrs.axis,)), types[0].dtype)


def _const(_: Types, attrs: ConstAttrs) -> TensorType:
    array = attrs.value.array
    shape = tuple(map(int, array.shape[len(attrs.dims) :]))
    return TensorType((*attrs.sizes, *shape), dtype_name(array.dtype))


def _value(_: Types, attrs: ValueAttrs) -> TensorType:
    return TensorType(attrs.sizes, attrs.dtype)


def _rng(_: Types, attrs: RngAttrs) -> TensorType:
    return TensorType((*attrs.sizes, *attrs.shape), "u32")


def _cast(types: Types, attrs: CastAttrs) -> TensorType:
    return TensorType(types[0].shape, attrs.dtype)


def _merge(types: Types, _: Any) -> TensorType:
    for t in types:
        if t.dtype != types[0].dtype or not same_shape(t.shape, types[0].shape):
            raise TypeRuleError(f"the branches have different types, {types[0]} and {t}")
    return types[0]


def _udf(types: Types, attrs: UdfAttrs) -> tuple[TensorType, ...]:
    if not attrs.types and attrs.resource is None:
        raise TypeRuleError("a host function whose value is used declares what it returns")
    if attrs.resource and (not types or types[-1].dtype != TOKEN.dtype):
        raise TypeRuleError("the last operand must be the token of the resource")
    return attrs.outputs


def _call(types: Types, attrs: CallAttrs) -> tuple[TensorType, ...]:
    return ()


def _dataflow(_: Types, attrs: DataflowAttrs) -> TensorType:
    of = {op.id: op for op in attrs.body}
    first, out = attrs.results[0]
    return of[first].outputs[out].type


# --- the table -----------------------------------------------------------------------------------


def _table() -> Mapping[str, KindSpec]:
    rows: list[KindSpec] = []

    def row(kind: str, arity: int | None, infer: Infer, tags: str, doc: str) -> None:
        rows.append(KindSpec(kind, arity, infer, doc, frozenset(tags.split())))

    row("const", 0, _const, "", "A given array, the same at every point.")
    row("data", 0, _const, "", "Given arrays, one per point of the domain.")
    row("value", 0, _value, "", "The value of an index expression at the current point.")
    row("rng", 0, _rng, "", "Random bits: a function of seed, stream and point.")

    for kind, doc in (
        ("neg", "-x"),
        ("abs", "|x|"),
        ("sign", "-1, 0 or 1"),
    ):
        row(kind, 1, _arithmetic, "elementwise", f"{doc}, element by element.")
    for kind, doc in (
        ("exp", "e**x"),
        ("log", "The natural logarithm"),
        ("sqrt", "The square root"),
        ("sin", "The sine"),
        ("cos", "The cosine"),
        ("tanh", "The hyperbolic tangent"),
        ("sigmoid", "1 / (1 + e**-x)"),
        ("erf_inv", "The inverse error function"),
        ("floor", "The greatest integer that is not above x"),
    ):
        row(kind, 1, _float, "elementwise", f"{doc}, element by element.")
    row("not", 1, _logical, "elementwise", "Logical negation.")
    row("cast", 1, _cast, "elementwise", "The same values in another element type.")
    row("unit", 1, _unit, "elementwise", "Random bits as numbers strictly between 0 and 1.")
    row("copy", 1, _same, "elementwise", "x itself, as a value of its own.")
    row("detach", 1, _same, "elementwise", "x itself; gradients stop here.")
    for kind, doc in (
        ("add", "x + y"),
        ("sub", "x - y"),
        ("mul", "x * y"),
        ("pow", "x ** y"),
        ("max2", "The greater of x and y"),
        ("min2", "The lesser of x and y"),
        ("floordiv", "floor(x / y)"),
        ("mod", "x - y * floor(x / y)"),
    ):
        row(kind, 2, _arithmetic, "elementwise", f"{doc}, element by element.")
    row("div", 2, _float, "elementwise", "x / y, element by element.")
    for kind, doc in (("eq", "="), ("ne", "!="), ("lt", "<"), ("le", "<=")):
        row(kind, 2, _comparison, "elementwise", f"x {doc} y, element by element.")
    row("and", 2, _logical, "elementwise", "Logical and.")
    row("or", 2, _logical, "elementwise", "Logical or.")
    row("where", 3, _where, "elementwise", "y where x holds, else z.")

    row("sum", 1, _sum, "reduction", "The sum over axes; booleans are counted.")
    row("prod", 1, _sum, "reduction", "The product over axes.")
    row("max", 1, _extremum, "reduction", "The greatest element over axes.")
    row("min", 1, _extremum, "reduction", "The least element over axes.")
    row("argmax", 1, _argmax, "", "The first position of the greatest element along an axis.")
    row("discounted_sum", 1, _discounted, "", "The discounted sum along an axis.")
    row("sliding_sum", 1, _sliding, "", "The discounted sum of a window at each position.")
    row("dot", 2, _dot, "", "A contraction: products summed over the labels that do not result.")

    row("reshape", 1, _reshape, "layout", "The same elements, in order, in another shape.")
    row("transpose", 1, _transpose, "layout", "The axes in another order.")
    row("expand", 1, _expand, "layout", "Axes of size 1 repeated.")
    row("concat", None, _concat, "layout", "The operands one after the other along an axis.")
    row("range", 1, _range, "layout", "Positions lo to hi of an axis.")
    row("at", 1, _at, "layout", "One position of an axis, which goes.")
    row("place", 1, _place, "layout", "An axis set into zeros of another size.")
    row("flip", 1, _same, "layout", "An axis in reverse order.")

    row("merge", None, _merge, "", "The one branch whose condition holds at the point.")
    row("accumulate", 1, _same, "", "Values combined over dimensions in any order.")
    row("dataflow", None, _dataflow, "", "A fused region, run as one kernel.")
    row("udf", None, _udf, "", "A function of the user's own, run on the host.")
    row("output", 1, _same, "sink", "Values that the run returns.")
    row("checkpoint", None, _same, "sink", "Values written to a file.")
    row("call", None, _call, "sink", "A function of the user's own, run for its effect.")
    return {spec.kind: spec for spec in rows}


KINDS: Final = _table()

REDUCTIONS: Final = tuple(k for k, spec in KINDS.items() if "reduction" in spec.tags)
ELEMENTWISE: Final = frozenset(k for k, spec in KINDS.items() if "elementwise" in spec.tags)
SINKS: Final = frozenset(k for k, spec in KINDS.items() if "sink" in spec.tags)
