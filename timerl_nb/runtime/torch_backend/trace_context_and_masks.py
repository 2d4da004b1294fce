"""Context of a kernel in PyTorch: coordinates, axis lengths, element types and masks.

Coordinates are integers, or tensors without axes while a kernel is traced. Axes of symbolic length have a
fixed capacity and a valid length, as in `jax_backend`, so one trace serves all points.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch

from timerl_nb.base.array_conversion import host_array
from timerl_nb.compiler.ir.shapes import NUMPY, Size
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.index_expressions import Cond, Lin
from timerl_nb.runtime.jax_backend.trace_context_and_masks import Scope

Tensor = torch.Tensor

TORCH: Final[Mapping[str, torch.dtype]] = {
    "bool": torch.bool,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i16": torch.int16,
    "i32": torch.int32,
    "u32": torch.uint32,
    "i64": torch.int64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
}
NAMES: Final = {dtype: name for name, dtype in TORCH.items()}


class _Integers:
    """The functions of an array module that index expressions need, for integers and tensors."""

    @staticmethod
    def minimum(a: Any, b: Any) -> Any:
        return min(a, b) if _are_plain(a, b) else torch.minimum(*_to_tensors(a, b))

    @staticmethod
    def maximum(a: Any, b: Any) -> Any:
        return max(a, b) if _are_plain(a, b) else torch.maximum(*_to_tensors(a, b))

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        if isinstance(condition, Tensor):
            return torch.where(condition, *_to_tensors(a, b, condition))
        return a if condition else b


def _are_plain(*xs: Any) -> bool:
    return not any(isinstance(x, Tensor) for x in xs)


def _to_tensors(*xs: Any) -> tuple[Tensor, Tensor]:
    """Return the first two values as tensors of 64-bit integers, on the device of any tensor among all."""
    device = next(x.device for x in xs if isinstance(x, Tensor))
    a, b = (
        x if isinstance(x, Tensor) else torch.full((), x, dtype=torch.int64, device=device)
        for x in xs[:2]
    )
    return a, b


@dataclass(frozen=True)
class TorchScope(Scope):
    """Context of a kernel. `seed` has its random bits by operation while it is traced.

    Attributes:
        device: Device of the tensors.
        calls: Functions that the kernel calls without tracing them.
    """

    device: str = "cpu"
    calls: list[Any] = field(default_factory=list[Any])

    def value(self, e: Lin | Cond, also: Mapping[str, Any] | None = None) -> Any:
        """Evaluate an index expression or condition to an integer, a boolean or a tensor."""
        return values(e, {**self.bounds, **self.point, **(also or {})}, _Integers)

    def length(self, size: Size) -> Any:
        """Return the valid length of an axis; None if it equals the capacity."""
        if isinstance(size, int) or not self.varies(size):
            return None
        return _Integers.maximum(self.value(size), 0)

    def arange(self, n: int) -> Tensor:
        return torch.arange(n, dtype=torch.int64, device=self.device)

    def number(self, value: int) -> Tensor:
        return torch.full((), value, dtype=torch.int64, device=self.device)

    def constant(self, array: Any) -> Tensor:
        """Return a tensor with the values of an array that never changes."""
        return from_numpy(np.asarray(array)).to(self.device)


def from_numpy(array: Any) -> Tensor:
    """Return a tensor that shares the memory of a NumPy array. Nobody may write into either."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the array may be read-only
        if array.dtype == NUMPY["bf16"]:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)


def take(x: Tensor, index: Sequence[Tensor]) -> Tensor:
    """Return the elements at positions along the first axes. Positions may have no axes, unlike in x[...]."""
    return torch.ops.aten.index(x, list(index))


def bits(x: Tensor) -> Tensor:
    """Return unsigned 32-bit integers as signed ones, without a copy; other tensors as they are."""
    return x.view(torch.int32) if x.dtype is torch.uint32 else x


def to_numpy(x: Any) -> Any:
    """Return the values of a tensor or array on the host. They may share its memory."""
    return host_array(x)


def along(x: Tensor, axis: int, rank: int) -> Tensor:
    """Return a vector as an array that varies along one of `rank` axes."""
    return x.reshape([-1 if k == axis else 1 for k in range(rank)])


def mask_padding(
    scope: TorchScope, x: Tensor, sizes: Sequence[Size], axes: Sequence[int], fill: Any
) -> Tensor:
    """Replace the elements beyond the valid lengths of `axes` by `fill`."""
    for axis in axes:
        length = scope.length(sizes[axis])
        if length is not None:
            inside = along(scope.arange(x.shape[axis]) < length, axis, x.ndim)
            x = torch.where(inside, x, torch.full((), fill, dtype=x.dtype, device=x.device))
    return x


def holding_nans(
    scope: TorchScope, arrays: Sequence[Tensor], shapes: Sequence[Sequence[Size]]
) -> Tensor:
    """Return a boolean per array: whether it has a NaN within its true lengths."""
    found = [
        mask_padding(scope, x, sizes, range(x.ndim), 0).isnan().any()
        if x.is_floating_point()
        else torch.zeros((), dtype=torch.bool, device=scope.device)
        for x, sizes in zip(arrays, shapes, strict=True)
    ]
    return torch.stack(found) if found else torch.zeros((0,), dtype=torch.bool)


def grid_of(
    scope: TorchScope, axes: Sequence[str], sizes: Sequence[Size], starts: Sequence[Lin] = ()
) -> dict[str, Tensor]:
    """Return the coordinates of the dimensions `axes`, each as an array along its axis."""
    shape = scope.shape(sizes)
    found: dict[str, Tensor] = {}
    for k, (name, n) in enumerate(zip(axes, shape, strict=True)):
        steps = along(scope.arange(n), k, len(shape))
        found[name] = steps + scope.value(starts[k]) if starts else steps
    return found
