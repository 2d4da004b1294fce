"""PyTorch operators that a trace does not enter: user-defined JAX functions, and long scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
import torch

from timerl_nb.compiler.ir.operation_attributes import JaxedAttrs
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend import user_function_calls
from timerl_nb.runtime.jax_backend.trace_context_and_masks import Scope
from timerl_nb.runtime.torch_backend.reduction_rules import scan_in_order
from timerl_nb.runtime.torch_backend.trace_context_and_masks import (
    TORCH,
    Tensor,
    TorchScope,
    from_numpy,
    to_numpy,
)


@dataclass(frozen=True, eq=False)
class OpaqueCall:
    """Function that a trace does not enter; a kernel's text has its number."""

    run: Callable[..., Tensor]


CALLS: Final[WeakValueDictionary[int, OpaqueCall]] = WeakValueDictionary()
_NUMBERS: Final = count()

_LIBRARY: Final = torch.library.Library("timerl_nb", "DEF")
_LIBRARY.define("call(Tensor[] args, int number) -> Tensor")
_LIBRARY.define(
    "linear_scan(Tensor factor, Tensor term, int axis, bool reverse, bool restarts) -> Tensor"
)


def _call(args: Sequence[Tensor], number: int) -> Tensor:
    return CALLS[number].run(*args)


_LIBRARY.impl("call", _call, "CompositeExplicitAutograd")
_LIBRARY.impl("linear_scan", scan_in_order, "CompositeExplicitAutograd")


def evaluate_jax_function(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    """Return one result of a user function."""
    attrs: JaxedAttrs = op.attrs
    shape, dtypes = scope.shape(op.shape), [NUMPY[dtype] for dtype in attrs.takes]

    def evaluate(*given: Any) -> Any:
        alike = [x.astype(dtype) for x, dtype in zip(given, dtypes, strict=True)]
        fresh = Scope(scope.bounds, {}, (None, None), scope.capacity, scope.varies)
        return user_function_calls.evaluate_jax_function(fresh, op, alike, sizes)

    compiled = backend.compile_kernel(evaluate)

    def call(*given: Tensor) -> Tensor:
        made = np.asarray(compiled(*map(_to_jax, given)))
        return from_numpy(made).clone().reshape(shape).to(TORCH[op.dtype])

    number = next(_NUMBERS)
    CALLS[number] = kept = OpaqueCall(call)
    scope.calls.append(kept)
    return torch.ops.timerl_nb.call(list(args), number)


def _to_jax(x: Tensor) -> Any:
    return backend.to_device(to_numpy(x.contiguous()))
