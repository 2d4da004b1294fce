"""Measurement of the machine, for the cost estimates of the compiler."""

from __future__ import annotations

from functools import partial
from typing import Final

from timerl_nb.base.interleaved_timing import time_shortest_call
from timerl_nb.base.machine_model import Machine
from timerl_nb.base.options import Options
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import tensor, zeros
from timerl_nb.driver.compiling_context import Context
from timerl_nb.driver.search.machine_constants import keep, machine_here
from timerl_nb.runtime.jax_backend.device_measurement import measure_device

_LAUNCHES: Final = 1000
_OPERANDS: Final = 8
_TIMES: Final = 3


@explain_call_errors
def tune_machine() -> Machine:
    """Measure this machine, and use the figures in all later compilations.

    This takes some seconds, during which the machine should be idle. The figures are stored in the cache
    folder, for this device and version. Without them, nominal figures of about two CPU cores apply. The
    field `worth` is a preference and stays unchanged.

    Returns:
        the measured figures.

    Example:
        >>> machine = trl.tune_machine()  # doctest: +SKIP
    """
    found = measure_device()
    near, far = int(found.pop("near")), int(found.pop("far"))
    worth = machine_here().worth
    machine = Machine(launch=_launch(), near=near, far=far, worth=worth, **found)
    keep(machine)
    return machine


def _launch() -> float:
    """Return the seconds of one nearly empty launch with a few operands, in the interpreter."""
    with Context("t") as ctx:
        ((t, last),) = ctx.dims
        states = [tensor((_OPERANDS,), domain=(t,)) for _ in range(_OPERANDS)]
        for x, other in zip(states, [*states[1:], states[0]], strict=True):
            x[0] = zeros((_OPERANDS,))
            x[t + 1] = other.sin()
        ctx.output("x", states[0][last - 1])
    program = ctx.compile({last: _LAUNCHES}, Options(executor="interpret", lift=False))
    run = partial(program.execute, progress=False)
    return time_shortest_call(run, _TIMES, warm_ups=1) / _LAUNCHES
