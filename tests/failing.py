"""Runs with injected failures inside a call: before the call, or after it consumed donated arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import jax
import numpy as np

import timerl_nb as trl
from benchmarks.compiler.interpreter import replaced
from timerl_nb.runtime.fused_kernel import Kernel


@contextmanager
def failing(
    program: trl.Program, *, at: int, within: bool, error: BaseException
) -> Iterator[Callable[[], int]]:
    """Make the function that runs once per iteration and consumes parameters fail after `at` calls.

    Args:
        at: Number of successful calls.
        within: Whether the failing call really runs first.

    Yields:
        A function that returns the number of arrays consumed by the failing call.
    """
    counted, taken_over = count(), [0]

    def breaks(function: Callable[..., Any], taken: Callable[[tuple[Any, ...]], Any]) -> Any:
        def call(*args: Any) -> Any:
            if next(counted) != at:
                return function(*args)
            if within:
                jax.block_until_ready(function(*args))
            taken_over[0] = sum(array.is_deleted() for array in jax.tree.leaves(taken(args)))
            del args  # the error's traceback retains this frame
            raise error

        return call

    def lost() -> int:
        return taken_over[0]

    lowered = program.executable.xla_program
    if lowered is not None:
        ready = lowered.callables
        lowered.__dict__["callables"] = (*ready[:-1], breaks(ready[-1], lambda args: args[0]))
        try:
            yield lost
        finally:
            lowered.__dict__["callables"] = ready
        return
    learns = max(program.executable.kernels.values(), key=lambda kernel: len(kernel.taken))

    def watched(kernel: Kernel, function: Any) -> Any:
        return breaks(function, lambda args: args[3:]) if kernel is learns else function

    with replaced(program.executable, watched):
        yield lost


def stopped(program: trl.Program, turns: int, seed: int) -> trl.Result:
    """Return the results of a run stopped after some iterations."""
    with program.start(seed, paused=True) as run:
        run.wait()
        run.step(turns)
        run.wait()
        run.stop()
        return run.result()


def are_same(one: trl.Result, other: trl.Result) -> bool:
    """Return whether two results have the same names and bitwise equal values."""
    pairs = [(dict(one), dict(other)), (dict(one.parameters), dict(other.parameters))]
    return all(
        set(a) == set(b) and all(np.array_equal(a[name], b[name]) for name in a) for a, b in pairs
    )
