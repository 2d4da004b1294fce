"""PyTorch as the engine of interpreted programs: arrays and devices."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from timerl_nb.base.errors import OptionError
from timerl_nb.base.machine_model import Machine
from timerl_nb.base.options import cublas_workspace, cxx_compiler
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.runtime.engine import Engine
from timerl_nb.runtime.jax_backend import arrays_and_devices
from timerl_nb.runtime.torch_backend import (
    gather_scatter_rules,
    kernel_tracing,
    operation_rules,
    reduction_rules,
)
from timerl_nb.runtime.torch_backend.trace_context_and_masks import (
    TORCH,
    Tensor,
    TorchScope,
    bits,
    from_numpy,
    holding_nans,
    to_numpy,
)

# Time of a small kernel, relative to JAX (`python -m benchmarks engines`, on a CPU).
_LAUNCH: Final = 5


def make_engine(device: str | None, *, compiled: bool) -> Engine:
    """Return the engine for a device.

    Raises:
        OptionError: PyTorch has no such device, or no compiler for it.
    """
    here = _checked_device("cpu" if device is None else device)
    if compiled and here == "cpu" and not _has_compiler():
        raise OptionError(
            "torch_compile=True needs a C++ compiler on a CPU, and none is found.",
            hint="install g++ or clang++, name one in the environment variable CXX, or leave out torch_compile.",
        )

    def zeros(shape: tuple[int, ...], dtype: str) -> Tensor:
        return torch.zeros(shape, dtype=TORCH[dtype], device=here)

    def fresh(shape: tuple[int, ...], dtype: str, fill: float = 0) -> Callable[[], Tensor]:
        made = to_device(np.full(shape, np.asarray(fill, NUMPY[dtype])))
        return made.clone

    def to_device(array: Any) -> Tensor:
        """Copy an array of the host or a tensor to new memory of the device."""
        if isinstance(array, Tensor):
            return array.to(here, copy=True)
        return from_numpy(np.array(arrays_and_devices.storable(np.asarray(array)), order="C")).to(
            here
        )

    def compile_kernel(
        kernel: Any, f: Callable[..., Any], taken: tuple[int, ...], bound: Any
    ) -> Callable[..., Any]:
        return kernel_tracing.TracedKernel(kernel, f, here, compiled=compiled)

    how = ", kernels compiled by TorchInductor" if compiled else ""
    return Engine(
        name="torch",
        description=f"PyTorch on {here}{how}",
        compile_kernel=compile_kernel,
        compilations=lambda run: run.compilations,
        scope=partial(TorchScope, device=here),
        compute=operation_rules.compute,
        kinds_without_padding=operation_rules.NO_PADDING,
        own=kernel_tracing.own,
        accumulate=reduction_rules.accumulate,
        write_row=gather_scatter_rules.with_row,
        read_rows=gather_scatter_rules.rows,
        concatenate=gather_scatter_rules.end_to_end,
        has_nans=holding_nans,
        pad_or_cut=_fitted,
        stack_points=partial(_stack_points, zeros),
        stack=_stack,
        zeros=zeros,
        fill_factory=fresh,
        copy=to_device,
        copy_stores=_copy_stores,
        snapshot=_copied_value,
        seed_words=arrays_and_devices.seed_words,
        to_device=to_device,
        move_to_device=lambda x: x if isinstance(x, Tensor) else to_device(x),
        to_numpy=to_numpy,
        to_user=lambda x: np.array(to_numpy(x)),
        wait=partial(_wait, here),
        is_deleted=lambda x: False,
        placement=lambda x: x.device,
        to_host=_to_host,
        from_host=_from_host,
        device=lambda: here,
        memory=partial(_memory, here),
        costs=_costs,
    )


def _checked_device(name: str) -> str:
    kind = name.partition(":")[0]
    if kind == "cpu":
        return "cpu"
    if kind != "cuda":
        raise OptionError(f"device={name!r} is not supported.", hint='use "cpu" or "cuda".')
    if not torch.cuda.is_available():
        raise OptionError(
            f"device={name!r} is not available: PyTorch finds no GPU.",
            hint="leave out device, or install a driver and a build of PyTorch for CUDA.",
        )
    if not cublas_workspace():
        raise OptionError(
            f"device={name!r} needs the environment variable CUBLAS_WORKSPACE_CONFIG: without it, equal programs "
            "may give different sums on a GPU.",
            hint='set CUBLAS_WORKSPACE_CONFIG=":4096:8" before Python starts.',
        )
    return name


def _memory(here: str) -> int | None:
    return None if here == "cpu" else torch.cuda.mem_get_info(here)[1]


def _costs(machine: Machine) -> Machine:
    return replace(machine, launch=_LAUNCH * machine.launch)


def _has_compiler() -> bool:
    usual = (cxx_compiler(),) if cxx_compiler() else ("g++", "clang++", "c++")
    return any(map(shutil.which, usual))


def _stack(values: Sequence[Tensor]) -> Tensor:
    return torch.stack([bits(x) for x in values]).view(values[0].dtype)


def _stack_points(
    zeros: Callable[..., Tensor], values: Any, shape: tuple[int, ...], dtype: str
) -> Tensor:
    """Return a gathered slice in the given shape, from its points or from a stacked tensor."""
    if isinstance(values, tuple | list):
        if not values:
            return zeros(shape, dtype)
        values = _stack([_fitted(x, shape[len(shape) - x.ndim :]) for x in values])
    return values.reshape(shape)


def _fitted(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Cut a tensor to a shape of the same rank, or pad it with zeros."""
    if tuple(x.shape) == tuple(shape):
        return x
    kind, x = x.dtype, bits(x)
    widths = [width for n, have in zip(shape, x.shape, strict=True) for width in (0, n - have)]
    pairs = [widths[k : k + 2] for k in range(0, len(widths), 2)]
    return torch.constant_pad_nd(x, [w for pair in reversed(pairs) for w in pair]).view(kind)


def _copied_value(x: Any) -> Any:
    """Copy a value between two iterations: a tensor, or a row of a block as an array of the host."""
    return x.clone() if isinstance(x, Tensor) else np.array(x)


def _copy_stores(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _copy_stores(x) for key, x in tree.items()}
    return tree.clone()


def _wait(here: str, made: Any) -> Any:
    if here != "cpu":
        torch.cuda.synchronize(here)
    return made


def _to_host(x: Tensor) -> Tensor:
    """Copy a tensor to memory of the host; page-locked and on a stream of its own for a GPU."""
    if not x.is_cuda:
        return x.clone()
    there = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    return _transferred(there, x, x.device)


def _from_host(x: Tensor, home: Any) -> Tensor:
    if home.type == "cpu":
        return x.clone()
    return _transferred(torch.empty(x.shape, dtype=x.dtype, device=home), x, home)


def _transferred(there: Tensor, x: Tensor, device: Any) -> Tensor:
    """Copy on a side stream, and wait for this copy only."""
    computing, stream = torch.cuda.default_stream(device), torch.cuda.Stream(device)
    stream.wait_stream(computing)
    with torch.cuda.stream(stream):
        there.copy_(x, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
    done.synchronize()
    return there
