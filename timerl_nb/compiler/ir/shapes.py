"""Shapes with symbolic sizes, and element types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, Final

import numpy as np
from ml_dtypes import bfloat16

from timerl_nb.base.array_conversion import Array, is_real
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Lin, lin
from timerl_nb.compiler.symbolic.substitution import subst

Size = int | Lin
Shape = tuple[Size, ...]
DType = str

NUMPY: Final[Mapping[DType, np.dtype[Any]]] = {
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "i64": np.dtype(np.int64),
    "bf16": np.dtype(bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
_FROM_NUMPY: Final = {dtype: name for name, dtype in NUMPY.items()}
HALF: Final = ("bf16", "f16")  # computed in float32, and rounded
WIDE: Final = ("i64", "f64")  # available only if the backend enables them
# The next types above each type: two operands are promoted to the least type above both.
_NEXT: Final[Mapping[DType, tuple[DType, ...]]] = {
    "bool": ("u8", "i8"),
    "u8": ("i16", "u32"),
    "i8": ("i16",),
    "i16": ("i32",),
    "u32": (
        "i32",
    ),  # as in JAX without 64-bit types, on every backend: values from 2**31 on wrap around
    "i32": ("i64",),
    "i64": HALF,
    "bf16": ("f32",),
    "f16": ("f32",),
    "f32": ("f64",),
    "f64": (),
}


def _promotion_targets(dtype: DType) -> frozenset[DType]:
    return frozenset({dtype}).union(*(_promotion_targets(higher) for higher in _NEXT[dtype]))


_ABOVE: Final = {dtype: _promotion_targets(dtype) for dtype in _NEXT}


def dtype_name(dtype: Any) -> DType:
    """Return the short name of a NumPy dtype, Python type or name.

    Raises:
        KeyError: there is no such element type.
    """
    if isinstance(dtype, str) and dtype in NUMPY:
        return dtype
    if dtype is None:  # NumPy would read None as float64
        raise KeyError(dtype)
    plain = {float: "f32", int: "i32", bool: "bool"}
    return plain[dtype] if dtype in plain else _FROM_NUMPY[np.dtype(dtype)]


def narrow(array: Array) -> Array:
    """Convert an array without an explicit element type: NumPy's default 64-bit types become 32-bit types.

    Raises:
        TypeError: no element type corresponds.
        OverflowError: integers do not fit.
    """
    if _FROM_NUMPY.get(array.dtype, "f64") not in WIDE:
        return array
    for kind, name in (("f", "f32"), ("u", "u32"), ("i", "i32"), ("b", "bool")):
        if array.dtype.kind == kind:
            return exactly(array, name)
    raise TypeError(f"no element type for {array.dtype}")


def exactly(array: Array, dtype: DType) -> Array:
    """Convert an array to an element type; conversion to integers truncates fractions.

    Raises:
        TypeError: the array contains complex numbers, text, times or objects.
        OverflowError: a number is outside the integer type's range.
    """
    if array.dtype == object and all(isinstance(x, int) for x in array.flat):
        raise OverflowError(f"values beyond {NUMPY[dtype].name}")  # more than 64 bits
    if not is_real(array.dtype):
        raise TypeError(f"no element type for {array.dtype}")
    with np.errstate(invalid="ignore", over="ignore"):
        made = array.astype(NUMPY[dtype])
    if made.dtype.kind in "iu" and array.dtype.kind in "iuf":
        if not np.array_equal(made, np.trunc(array)):
            raise OverflowError(f"values beyond {NUMPY[dtype].name}")
    return made


def is_float(dtype: DType) -> bool:
    return dtype in ("f32", "f64", *HALF)


def is_integer(dtype: DType) -> bool:
    return NUMPY[dtype].kind in "iu"


def promote(dtypes: Iterable[DType]) -> DType:
    """Return the common element type of operands: the least type above all of them.

    bool < u8, i8 < i16, u32 < i32 < i64 < bf16, f16 < f32 < f64;
    docs/reference/element-types.md shows all pairs.
    """
    return reduce(_meet, dtypes)


@cache
def _meet(a: DType, b: DType) -> DType:
    # the least common type has the most types above it
    return max(_ABOVE[a] & _ABOVE[b], key=lambda dtype: len(_ABOVE[dtype]))


def accumulator_type(dtype: DType) -> DType:
    """Return the element type of a sum or product: int32 for booleans and narrow integers."""
    return "i32" if dtype in ("bool", "i8", "u8", "i16") else dtype


def size(value: Size) -> Size:
    """Return a size, with constants as plain integers."""
    return value.const if isinstance(value, Lin) and value.is_const else value


def shape_of(sizes: Iterable[Size]) -> Shape:
    return tuple(size(s) for s in sizes)


def same_size(a: Size, b: Size) -> bool:
    return lin(a) is lin(b)


def same_shape(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(same_size(x, y) for x, y in zip(a, b, strict=True))


def concrete(shape: Shape, env: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape with every size evaluated; negative lengths become 0."""
    return tuple(s if isinstance(s, int) else max(0, int(evaluate(s, env))) for s in shape)


def subst_shape(shape: Shape, by: Mapping[str, Lin]) -> Shape:
    return shape_of(s if isinstance(s, int) else subst(s, by) for s in shape)


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """Return the common shape of operands, or None.

    Scalars fit every shape. Other operands must have equal rank, and sizes that are equal or 1.
    """
    out: list[Size] = []
    ranked = [shape for shape in shapes if shape]
    if len({len(shape) for shape in ranked}) > 1:
        return None
    for sizes in zip(*ranked, strict=True):
        wide = [s for s in sizes if s != 1]
        if any(not same_size(s, wide[0]) for s in wide):
            return None
        out.append(wide[0] if wide else 1)
    return tuple(out)


def differing(shapes: Sequence[Shape]) -> tuple[Size, Size] | None:
    """Return the first two sizes that prevent shapes of one rank from broadcasting."""
    ranked = [shape for shape in shapes if shape]
    if len({len(shape) for shape in ranked}) > 1:
        return None
    for sizes in zip(*ranked, strict=True):
        wide = [s for s in sizes if s != 1]
        for s in wide:
            if not same_size(s, wide[0]):
                return wide[0], s
    return None


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of the value at one point."""

    shape: Shape
    dtype: DType

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"
