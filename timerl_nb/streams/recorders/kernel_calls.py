"""Recorder of Python functions that call kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timerl_nb.base.errors import CallError
from timerl_nb.streams.kernel_declaration import Kernel, deferred_call_kind, name_of
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.thread_execution import one_by_one, runnable


def record_calls(function: Callable[..., object], *args: Any, **kwargs: Any) -> Stream:
    """Record the kernels of a function call.

    The kernels run during the recording, so the function's control flow sees their results. A run of the
    stream uses the same buffers with their current contents.

    Raises:
        CallError: the call launches no kernels.
        ExecutionError: the recording starts inside a window, a kernel or another recording; or a kernel
            fails.
    """
    name = name_of(function)
    if makes := deferred_call_kind(function):
        raise CallError(
            f"{name!r} launches no kernels: a call only creates a {makes}.",
            hint="record a plain function that calls kernels.",
        )
    kernels: list[Kernel] = []

    def run(kernel: Kernel) -> None:
        runnable(kernel)()
        kernels.append(kernel)

    with one_by_one("recorded", run, record=0):
        function(*args, **kwargs)
    if not kernels:
        raise CallError(
            f"{name!r} has launched no kernels.",
            hint="record jax.jit(function) if it uses JAX. Otherwise call functions decorated by @trl.kernel(...).",
        )
    return Stream(name, tuple(kernels))
