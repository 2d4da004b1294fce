"""A function made of kernels as a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timerl_nb.streams.kernels import Kernel
from timerl_nb.streams.stream import Stream
from timerl_nb.streams.threads import one_by_one, runnable


def record_calls(function: Callable[..., object], *args: Any, **kwargs: Any) -> Stream:
    """The kernels that a call of a function launches. They run as they are recorded, so that its control flow sees what
    they write; a run of the stream works on the same buffers, as they are then.

    Raises:
        ExecutionError: it is recorded within a window, a kernel or another recording; or a kernel raises.
    """
    kernels: list[Kernel] = []

    def run(kernel: Kernel) -> None:
        runnable(kernel)()
        kernels.append(kernel)

    with one_by_one("recorded", run, record=0):
        function(*args, **kwargs)
    return Stream(getattr(function, "__name__", "function"), tuple(kernels))
