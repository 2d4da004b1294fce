"""Type rules of operation kinds: the result type for given operand types.

A rule takes the operands' types and the attributes. It raises `TypeRuleError` for unsupported operands.
`operation_kinds` assigns the rules to kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from timerl_nb.compiler.ir.host.host_functions import TOKEN, CallAttrs, UdfAttrs
from timerl_nb.compiler.ir.operation_attributes import (
    AxesAttrs,
    AxisAttrs,
    CastAttrs,
    ConstAttrs,
    ConvAttrs,
    DiscountAttrs,
    DotAttrs,
    GatherAttrs,
    JaxedAttrs,
    PermAttrs,
    ReindexAttrs,
    RngAttrs,
    ScanAttrs,
    ScatterAttrs,
    SetAttrs,
    ShapeAttrs,
    SlidingAttrs,
    SortAttrs,
    ValueAttrs,
)
from timerl_nb.compiler.ir.operations import DataflowAttrs
from timerl_nb.compiler.ir.shapes import (
    Shape,
    Size,
    TensorType,
    accumulator_type,
    broadcast,
    differing,
    dtype_name,
    is_float,
    is_integer,
    promote,
    same_shape,
    same_size,
    size,
)
from timerl_nb.compiler.symbolic.index_expressions import lin

Types = Sequence[TensorType]
Infer = Callable[[Types, Any], TensorType | tuple[TensorType, ...]]


class TypeRuleError(Exception):
    """Unsupported operand types; the frontend adds the user's line.

    Attributes:
        sizes: two sizes that must be equal but differ as expressions; the first is the one to use.
        hint: a remedy.
    """

    def __init__(
        self, what: str, sizes: tuple[Size, Size] | None = None, *, hint: str = ""
    ) -> None:
        self.sizes, self.hint = sizes, hint
        super().__init__(what)


def _format_types(types: Types) -> str:
    return " and ".join(map(str, types))


def _broadcast(types: Types) -> Shape:
    shape = broadcast([t.shape for t in types])
    if shape is None:
        raise TypeRuleError(
            f"{_format_types(types)} do not broadcast", differing([t.shape for t in types])
        )
    return shape


def same_type(types: Types, _: Any) -> TensorType:
    return types[0]


_BOOLEANS = (
    "use logic (a | b, a & b, a ^ b, ~a), or cast one operand to count or weight: "
    'a.cast("i32") + b.'
)


def arithmetic_type(types: Types, _: Any) -> TensorType:
    dtype = promote(t.dtype for t in types)
    if dtype == "bool":
        raise TypeRuleError("there is no arithmetic on booleans", hint=_BOOLEANS)
    return TensorType(_broadcast(types), dtype)


def float_type(types: Types, _: Any) -> TensorType:
    result = arithmetic_type(types, _)
    if not is_float(result.dtype):
        raise TypeRuleError(f"needs floating-point values, not {_format_types(types)}")
    return result


def comparison_type(types: Types, _: Any) -> TensorType:
    return TensorType(_broadcast(types), "bool")


def logical_type(types: Types, _: Any) -> TensorType:
    dtype = promote(t.dtype for t in types)
    if is_float(dtype):
        raise TypeRuleError(f"needs booleans or integers, not {_format_types(types)}")
    return TensorType(_broadcast(types), dtype)


def shift_type(types: Types, _: Any) -> TensorType:
    if not all(is_integer(t.dtype) for t in types):
        raise TypeRuleError(f"shifts need integers, not {_format_types(types)}")
    return TensorType(_broadcast(types), promote(t.dtype for t in types))


def where_type(types: Types, _: Any) -> TensorType:
    if types[0].dtype != "bool":
        raise TypeRuleError(f"the condition must be boolean, not {types[0]}")
    return TensorType(_broadcast(types), promote(t.dtype for t in types[1:]))


def unit_type(types: Types, _: Any) -> TensorType:
    if types[0].dtype != "u32":
        raise TypeRuleError(f"needs random bits, not {types[0]}")
    return TensorType(types[0].shape, "f32")


def _drop_axes(types: Types, axes: tuple[int, ...]) -> Shape:
    for axis in axes:
        _axis(types, axis)
    return tuple(s for k, s in enumerate(types[0].shape) if k not in axes)


def _axis(types: Types, axis: int) -> int:
    if not 0 <= axis < types[0].rank:
        raise TypeRuleError(f"{types[0]} has no axis {axis}")
    return axis


def sum_type(types: Types, attrs: AxesAttrs) -> TensorType:
    return TensorType(_drop_axes(types, attrs.axes), accumulator_type(types[0].dtype))


def extremum_type(types: Types, attrs: AxesAttrs) -> TensorType:
    return TensorType(_drop_axes(types, attrs.axes), types[0].dtype)


def argmax_type(types: Types, attrs: AxisAttrs) -> TensorType:
    return TensorType(_drop_axes(types, (attrs.axis,)), "i32")


def discounted_type(types: Types, attrs: DiscountAttrs) -> TensorType:
    return TensorType(_drop_axes(types, (attrs.axis,)), float_type(types, None).dtype)


def sliding_type(types: Types, attrs: SlidingAttrs) -> TensorType:
    _axis(types, attrs.axis)
    return float_type(types, None) if attrs.gamma != 1 else arithmetic_type(types, None)


def dot_type(types: Types, attrs: DotAttrs) -> TensorType:
    sizes: dict[str, Size] = {}
    for labels, t in ((attrs.left, types[0]), (attrs.right, types[1])):
        if len(labels) != t.rank:
            raise TypeRuleError(f"{t} does not have the {len(labels)} axes of the product")
        for label, s in zip(labels, t.shape, strict=True):
            _expect_same(types, sizes.setdefault(label, s), s)
    return TensorType(
        tuple(sizes[x] for x in attrs.out), arithmetic_type(_scalars(types), None).dtype
    )


def _expect_same(types: Types, known: Size, s: Size) -> None:
    if not same_size(known, s):
        raise TypeRuleError(
            f"{_format_types(types)} disagree in a size: {known} and {s}", (known, s)
        )


def _scalars(types: Types) -> Types:
    return [TensorType((), t.dtype) for t in types]


def _label_sizes(types: Types, *labels: str) -> dict[str, Size]:
    """Return the size of each label; operands with a common label must agree."""
    sizes: dict[str, Size] = {}
    for mine, t in zip(labels, types, strict=True):
        if len(mine) != t.rank or len(set(mine)) < len(mine):
            raise TypeRuleError(f"{t} does not have the axes {', '.join(mine)}")
        for label, s in zip(mine, t.shape, strict=True):
            _expect_same(types, sizes.setdefault(label, s), s)
    return sizes


def conv_type(types: Types, attrs: ConvAttrs) -> TensorType:
    swept = "".join(s.label for s in attrs.sweeps)
    labels = [attrs.left, attrs.right, attrs.out]
    for label in set("".join(labels)):
        count = sum(label in mine for mine in labels)
        if count < 2 + (label in swept):
            raise TypeRuleError(f"{attrs} does not define the use of {label}")
    if any(min(s.stride, s.spread, s.dilation) < 1 for s in attrs.sweeps):
        raise TypeRuleError("strides and dilations are positive")
    apart = attrs.right.translate({ord(x): x.upper() for x in swept})  # sizes of their own
    sizes = _label_sizes(types, attrs.left, apart) | {s.label: size(s.size) for s in attrs.sweeps}
    dtype = float_type(_scalars(types), None).dtype
    return TensorType(tuple(sizes[x] for x in attrs.out), dtype)


def gather_type(types: Types, attrs: GatherAttrs) -> TensorType:
    sizes = _label_sizes(types, attrs.left, attrs.right)
    _positions(types[1])
    results = set(attrs.left + attrs.right) - {attrs.axis}
    if attrs.axis not in attrs.left or attrs.axis in attrs.right:
        raise TypeRuleError(f"{types[0]} has no axis {attrs.axis} of its own")
    if set(attrs.out) != results or len(results) != len(attrs.out):
        raise TypeRuleError(f"the axes {attrs.out} are not those of {attrs}")
    return TensorType(tuple(sizes[x] for x in attrs.out), types[0].dtype)


def scatter_type(types: Types, attrs: ScatterAttrs) -> TensorType:
    sizes = _label_sizes(types, attrs.left, attrs.right)
    _positions(types[1])
    kept = set(attrs.out) - {attrs.axis}
    if attrs.axis not in attrs.out or attrs.axis in sizes or len(kept) + 1 != len(attrs.out):
        raise TypeRuleError(f"{attrs} does not name its axes once each")
    if set(attrs.left) != set(attrs.right) | kept:
        raise TypeRuleError(f"{attrs} has axes that are neither kept nor placed")
    sizes[attrs.axis] = attrs.size
    dtype = arithmetic_type(_scalars(types[:1]), None).dtype
    return TensorType(tuple(size(sizes[x]) for x in attrs.out), dtype)


def set_type(types: Types, attrs: SetAttrs) -> TensorType:
    x, values, at = types
    sizes = _label_sizes((values, at), attrs.left, attrs.right)
    kept = set(attrs.out) - {attrs.axis}
    if (
        attrs.axis not in attrs.out
        or attrs.axis in sizes
        or set(attrs.left) != kept | set(attrs.right)
    ):
        raise TypeRuleError(f"{attrs} has axes that are neither kept nor placed")
    _label_sizes((values, at, x), attrs.left, attrs.right, attrs.out)
    _positions(at)
    if values.dtype != x.dtype:
        raise TypeRuleError(f"values of {values} do not go into {x}")
    return x


def _positions(t: TensorType) -> None:
    if not is_integer(t.dtype):
        raise TypeRuleError(f"positions must be integers, not {t}")


def argsort_type(types: Types, attrs: SortAttrs) -> TensorType:
    _axis(types, attrs.axis)
    return TensorType(types[0].shape, "i32")


def orthonormal_type(types: Types, attrs: Any) -> TensorType:
    (x,) = types
    rows, columns = x.shape[-2:] if x.rank >= 2 else (None, None)
    if not isinstance(rows, int) or not isinstance(columns, int) or rows < columns:
        raise TypeRuleError(
            f"the last two axes of {x} do not have at least as many rows as columns"
        )
    if x.dtype not in ("f32", "f64"):
        raise TypeRuleError(f"needs float32 or float64 values, not {x}")
    return x


def extrema_type(types: Types, attrs: SlidingAttrs) -> TensorType:
    _axis(types, attrs.axis)
    return types[0]


def scan_type(types: Types, attrs: ScanAttrs) -> TensorType:
    _axis(types, attrs.axis)
    if not all(same_shape(t.shape, types[0].shape) for t in types):
        apart = differing([t.shape for t in types])
        raise TypeRuleError(f"{_format_types(types)} have different shapes", apart)
    return arithmetic_type(types, None)


def jaxed_type(types: Types, attrs: JaxedAttrs) -> TensorType:
    if [t.dtype for t in types] != [*attrs.takes]:
        raise TypeRuleError(
            f"{attrs.name} takes {', '.join(attrs.takes)}, not {_format_types(types)}"
        )
    return TensorType((*attrs.sizes, *attrs.type.shape), attrs.type.dtype)


def reshape_type(types: Types, attrs: ShapeAttrs) -> TensorType:
    # Symbolic sizes may appear on both sides in the same order; the products of all others must agree.
    old, new = types[0].shape, attrs.shape
    symbolic = [[lin(s) for s in shape if not isinstance(s, int)] for shape in (old, new)]
    plain = [prod(s for s in shape if isinstance(s, int)) for shape in (old, new)]
    if symbolic[0] != symbolic[1] or plain[0] != plain[1]:
        apart = differing([tuple(symbolic[1]), tuple(symbolic[0])])
        raise TypeRuleError(f"{types[0]} cannot become {TensorType(new, types[0].dtype)}", apart)
    return TensorType(new, types[0].dtype)


def transpose_type(types: Types, attrs: PermAttrs) -> TensorType:
    if sorted(attrs.perm) != list(range(types[0].rank)):
        raise TypeRuleError(f"{attrs.perm} does not permute the axes of {types[0]}")
    return TensorType(tuple(types[0].shape[k] for k in attrs.perm), types[0].dtype)


def expand_type(types: Types, attrs: ShapeAttrs) -> TensorType:
    made = TensorType(attrs.shape, types[0].dtype)
    together = broadcast([types[0].shape, attrs.shape])
    if together is None or not same_shape(together, attrs.shape) or types[0].rank > made.rank:
        apart = differing([attrs.shape, types[0].shape])
        raise TypeRuleError(f"{types[0]} does not broadcast to {made}", apart)
    return made


def concat_type(types: Types, attrs: AxisAttrs) -> TensorType:
    axis = _axis(types, attrs.axis)
    rest = _drop_axes(types, (axis,))
    for t in types:
        if t.rank != types[0].rank or not same_shape(_drop_axes([t], (axis,)), rest):
            apart = differing([rest, _drop_axes([t], (axis,))]) if t.rank > axis else None
            raise TypeRuleError(f"{types[0]} and {t} cannot be joined along axis {axis}", apart)
    total = lin(0)
    for t in types:
        total = total + t.shape[axis]
    shape = (*types[0].shape[:axis], size(total), *types[0].shape[axis + 1 :])
    return TensorType(shape, promote(t.dtype for t in types))


def reindex_type(types: Types, attrs: ReindexAttrs) -> TensorType:
    axis = _axis(types, attrs.axis)
    if attrs.size is None:
        return TensorType(_drop_axes(types, (axis,)), types[0].dtype)
    shape = (*types[0].shape[:axis], size(attrs.size), *types[0].shape[axis + 1 :])
    return TensorType(shape, types[0].dtype)


def const_type(_: Types, attrs: ConstAttrs) -> TensorType:
    array = attrs.value.array
    shape = tuple(map(int, array.shape[len(attrs.dims) :]))
    return TensorType((*attrs.sizes, *shape), dtype_name(array.dtype))


def value_type(_: Types, attrs: ValueAttrs) -> TensorType:
    return TensorType(attrs.sizes, attrs.dtype)


def rng_type(_: Types, attrs: RngAttrs) -> TensorType:
    return TensorType((*attrs.sizes, *attrs.shape), "u32")


def cast_type(types: Types, attrs: CastAttrs) -> TensorType:
    return TensorType(types[0].shape, attrs.dtype)


def merge_type(types: Types, _: Any) -> TensorType:
    for t in types:
        if t.dtype != types[0].dtype or not same_shape(t.shape, types[0].shape):
            raise TypeRuleError(f"the branches have different types, {types[0]} and {t}")
    return types[0]


def udf_type(types: Types, attrs: UdfAttrs) -> tuple[TensorType, ...]:
    if not attrs.types and attrs.resource is None:
        raise TypeRuleError("a host function with a used value must declare its result (out=)")
    if attrs.resource and (not types or types[-1].dtype != TOKEN.dtype):
        raise TypeRuleError("the last operand must be the token of the resource")
    return attrs.outputs


def call_type(types: Types, attrs: CallAttrs) -> tuple[TensorType, ...]:
    return ()


def dataflow_type(_: Types, attrs: DataflowAttrs) -> TensorType:
    of = {op.id: op for op in attrs.body}
    first, out = attrs.results[0]
    return of[first].outputs[out].type
