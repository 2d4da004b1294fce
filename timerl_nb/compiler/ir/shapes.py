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
WIDE: Final = ("i64", "f64")  # where the backend is told to have them
# The types next above each: two operands meet in the least type that is above both.
_NEXT: Final[Mapping[DType, tuple[DType, ...]]] = {
    "bool": ("u8", "i8"),
    "u8": ("i16", "u32"),
    "i8": ("i16",),
    "i16": ("i32",),
    "u32": ("i32",),  # as without 64-bit types, whatever the backend has: it wraps from 2**31 on
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
    """The short name of a NumPy-like dtype, Python type or name; KeyError where there is none."""
    if isinstance(dtype, str) and dtype in NUMPY:
        return dtype
    if dtype is None:  # NumPy's word for float64
        raise KeyError(dtype)
    plain = {float: "f32", int: "i32", bool: "bool"}
    return plain[dtype] if dtype in plain else _FROM_NUMPY[np.dtype(dtype)]


def narrow(array: Array) -> Array:
    """An array whose element type nobody asked for, in one of the program's: 64-bit values, which
    NumPy makes of any numbers, become 32-bit ones.

    Raises:
        TypeError: there is no element type for it.
        OverflowError: integers that do not fit.
    """
    if _FROM_NUMPY.get(array.dtype, "f64") not in WIDE:
        return array
    for kind, name in (("f", "f32"), ("u", "u32"), ("i", "i32"), ("b", "bool")):
        if array.dtype.kind == kind:
            return exactly(array, name)
    raise TypeError(f"no element type for {array.dtype}")


def exactly(array: Array, dtype: DType) -> Array:
    """The array as another element type; fractions that an integer type has not are left out.

    Raises:
        TypeError: the array is of complex numbers, text, times or objects.
        OverflowError: numbers that no integer type of that name holds.
    """
    if array.dtype == object and all(isinstance(x, int) for x in array.flat):
        raise OverflowError(f"values beyond {NUMPY[dtype].name}")  # beyond 64 bits
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
    """The element type in which operands meet: the least that is above all of them.

    bool < u8, i8 < i16, u32 < i32 < i64 < bf16, f16 < f32 < f64; docs/reference/element-types.md shows all pairs.
    """
    return reduce(_meet, dtypes)


@cache
def _meet(a: DType, b: DType) -> DType:
    # the least of those above both has all the others above itself
    return max(_ABOVE[a] & _ABOVE[b], key=lambda dtype: len(_ABOVE[dtype]))


def accumulator_type(dtype: DType) -> DType:
    """The element type of a sum or product: booleans and integers of few bits add up in int32."""
    return "i32" if dtype in ("bool", "i8", "u8", "i16") else dtype


def size(value: Size) -> Size:
    """A size with constants as plain integers."""
    return value.const if isinstance(value, Lin) and value.is_const else value


def shape_of(sizes: Iterable[Size]) -> Shape:
    return tuple(size(s) for s in sizes)


def same_size(a: Size, b: Size) -> bool:
    return lin(a) is lin(b)


def same_shape(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(same_size(x, y) for x, y in zip(a, b, strict=True))


def concrete(shape: Shape, env: Mapping[str, int]) -> tuple[int, ...]:
    """The shape with every size evaluated; negative lengths are empty."""
    return tuple(s if isinstance(s, int) else max(0, int(evaluate(s, env))) for s in shape)


def subst_shape(shape: Shape, by: Mapping[str, Lin]) -> Shape:
    return shape_of(s if isinstance(s, int) else subst(s, by) for s in shape)


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """The common shape of operands, None if there is none.

    Scalars go with everything; the others must be of equal rank, with sizes that agree or are 1.
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
    """The first two sizes, of several shapes of one rank, that keep them from broadcasting."""
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
