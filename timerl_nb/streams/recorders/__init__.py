"""Recorders of kernel streams (`trl.streams.record`) from programs, PyTorch modules, JAX functions and kernel
calls.
"""

from __future__ import annotations

from typing import Any

from timerl_nb.base.errors import CallError
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.driver.program import Program
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.recorders.jax_function import record_xla
from timerl_nb.streams.recorders.kernel_calls import record_calls
from timerl_nb.streams.recorders.timerl_program import record_program
from timerl_nb.streams.recorders.torch_module import is_of_torch, record_torch


@explain_call_errors
def record(function: Any, *args: Any, **kwargs: Any) -> Stream:
    """Record the kernels that a function or program launches.

    Args:
        function: a `trl.Program`, run by the interpreter with a separate array per result (option `seed`); a
            function of `jax.jit`, which is compiled but not run (option `at_most`: the iterations of loops
            with unknown length); a PyTorch module or a function of tensors; or a function that calls kernels
            (`trl.kernel`).
        args, kwargs: the arguments of the call.

    Returns:
        The stream.

    Raises:
        CallError: the function launches no kernels.

    Example:
        >>> @trl.kernel(reads=lambda a, out: a, writes=lambda a, out: out)
        ... def double(a, out):
        ...     np.multiply(a, 2.0, out=out)
        >>> a, b, c = np.ones(4), np.zeros(4), np.zeros(4)
        >>> stream = trl.streams.record(lambda: (double(a, b), double(b, c)))
        >>> len(stream), stream.edges
        (2, ((), (0,)))
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
        hint="record a program, a function of jax.jit, a PyTorch module, or a function that calls kernels.",
    )
