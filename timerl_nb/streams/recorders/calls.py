"""A function made of kernels as a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timerl_nb.errors import ExecutionError, user_origin
from timerl_nb.streams.kernels import Kernel, failure, is_taken, refuse, taken_by
from timerl_nb.streams.stream import Stream
from timerl_nb.streams.threads import runnable


def record_calls(function: Callable[..., object], *args: Any, **kwargs: Any) -> Stream:
    """The kernels that a call of a function launches. They run as they are recorded, so that its control flow sees what
    they write; a run of the stream works on the same buffers, as they are then.

    Raises:
        ExecutionError: it is recorded within a window, a kernel or another recording; or a kernel raises.
    """
    if is_taken():
        raise ExecutionError(
            "a recording within a window, a kernel or a recording.", hint="record outside of it."
        )
    kernels: list[Kernel] = []
    origin = user_origin()

    def take(kernel: Kernel) -> None:
        try:
            with taken_by(refuse):
                runnable(kernel)()
        except Exception as error:
            raise failure(kernel, error, origin) from error
        kernels.append(kernel)

    with taken_by(take):
        function(*args, **kwargs)
    return Stream(getattr(function, "__name__", "function"), tuple(kernels))
