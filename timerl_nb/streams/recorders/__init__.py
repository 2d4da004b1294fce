"""Recorders of kernel streams (`trl.streams.record`): from programs, PyTorch modules and JAX functions."""

from __future__ import annotations

from typing import Any

from timerl_nb.base.errors import CallError
from timerl_nb.driver.program import Program
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.recorders.jax_function import record_xla
from timerl_nb.streams.recorders.kernel_calls import record_calls
from timerl_nb.streams.recorders.timerl_program import record_program
from timerl_nb.streams.recorders.torch_module import is_of_torch, record_torch


def record(function: Any, *args: Any, **kwargs: Any) -> Stream:
    """The kernels that something launches.

    Args:
        function: one of our programs (`seed=0`), run by the interpreter with every result an array of its
            own; a jitted function of JAX, with the arguments of a call (`at_most`: how often loops turn of
            which XLA does not know it), of which nothing runs; a PyTorch module, or a function of its
            tensors; or a function that calls kernels (`trl.kernel`), with its arguments.

    Raises:
        CallError: it is nothing that launches kernels.
    """
    if isinstance(function, Program):
        return record_program(function, *args, **kwargs)
    if is_of_torch(function, args, kwargs):
        return record_torch(function, *args, **kwargs)
    if not isinstance(function, str | bytes) and callable(getattr(function, "lower", None)):
        return record_xla(function, *args, **kwargs)
    if callable(function):
        return record_calls(function, *args, **kwargs)
    raise CallError(
        f"{type(function).__name__} launches no kernels.",
        hint="record a program, a jitted function, a module, or a function that calls kernels.",
    )
