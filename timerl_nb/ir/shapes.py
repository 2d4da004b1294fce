"""Shapes with symbolic sizes, and element types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ml_dtypes import bfloat16

from timerl_nb.symbolic.evaluate import evaluate
from timerl_nb.symbolic.expr import Lin, lin
from timerl_nb.symbolic.substitute import subst

Size = int | Lin
Shape = tuple[Size, ...]
DType = str

NUMPY: Final[Mapping[DType, np.dtype[Any]]] = {
    "bool": np.dtype(np.bool_),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "bf16": np.dtype(bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
_FROM_NUMPY: Final = {dtype: name for name, dtype in NUMPY.items()}
_RANK: Final = {"bool": 0, "u32": 1, "i32": 1, "bf16": 2, "f16": 2, "f32": 3, "f64": 4}
HALF: Final = ("bf16", "f16")  # computed in float32, and rounded


def dtype_name(dtype: Any) -> DType:
    """The short name of a NumPy-like dtype, Python type or name; KeyError where there is none."""
    if isinstance(dtype, str) and dtype in NUMPY:
        return dtype
    plain = {float: "f32", int: "i32", bool: "bool"}
    return plain[dtype] if dtype in plain else _FROM_NUMPY[np.dtype(dtype)]


def narrow(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in one of the program's element types: 64-bit values become 32-bit ones.

    Raises:
        TypeError: there is no element type for it.
        OverflowError: integers that do not fit.
    """
    if array.dtype in _FROM_NUMPY and array.dtype != np.float64:
        return array
    for kind, name in (("f", "f32"), ("u", "u32"), ("i", "i32"), ("b", "bool")):
        if array.dtype.kind == kind:
            narrowed = array.astype(NUMPY[name])
            if kind in "ui" and not np.array_equal(narrowed, array):
                raise OverflowError(f"values beyond {name}")
            return narrowed
    raise TypeError(f"no element type for {array.dtype}")


def is_float(dtype: DType) -> bool:
    return dtype in ("f32", "f64", *HALF)


def promote(dtypes: Iterable[DType]) -> DType:
    """The element type that can hold all: bool < integers < bf16, f16 < f32 < f64."""
    found = list(dtypes)
    if set(HALF) <= set(found) and "f64" not in found:
        return "f32"
    best = max(found, key=_RANK.__getitem__)
    if best == "u32" and "i32" in found:
        return "i32"
    return best


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
    return tuple(s if isinstance(s, int) else max(0, evaluate(s, env)) for s in shape)


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
