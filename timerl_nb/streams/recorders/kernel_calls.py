"""A function made of kernels as a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timerl_nb.base.errors import CallError
from timerl_nb.streams.kernel_declaration import Kernel, deferred_call_kind, name_of
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.thread_execution import one_by_one, runnable


def record_calls(function: Callable[..., object], *args: Any, **kwargs: Any) -> Stream:
    """The kernels that a call of a function launches. They run as they are recorded, so that its control flow sees what
    they write; a run of the stream works on the same buffers, as they are then.

    Raises:
        CallError: the call launches no kernels.
        ExecutionError: it is recorded within a window, a kernel or another recording; or a kernel raises.
    """
    name = name_of(function)
    if makes := deferred_call_kind(function):
        raise CallError(
            f"{name!r} launches no kernels: a call of it only makes a {makes}.",
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
            hint="record jax.jit(function) if it computes by JAX; otherwise let it call functions of @trl.kernel(...).",
        )
    return Stream(name, tuple(kernels))
