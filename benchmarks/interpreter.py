"""What the interpreter costs over JAX's own dispatch.

Each program is run three ways, in turn: as it is; *bare*, the very same kernel calls in a loop of
their own, with operands recorded from a run; and *hollow*, with kernels that return at once what
they last returned, which leaves the interpreter's own work: stores, ledger, loops, and the gathering
of long slices. On a CPU, JAX computes while Python goes on, so that a run can take less than the sum.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import jax

from benchmarks.compiling import compiled
from timerl_nb.program import Program
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.interpret import Run
from timerl_nb.runtime.kernel import Kernel

Function = Callable[..., Any]


@contextmanager
def replaced(
    executable: Executable, make: Callable[[Kernel, Function], Function]
) -> Iterator[None]:
    """Other functions in place of the executable's kernels."""
    kept = {kernel: kernel.run for kernel in executable.kernels.values()}
    try:
        for kernel, function in kept.items():
            kernel.run = make(kernel, function)
        yield
    finally:
        for kernel, function in kept.items():
            kernel.run = function


def whole(executable: Executable) -> Any:
    run = Run(executable, 0)
    run.complete()
    return list(run.stores.values())


class Recording:
    """The kernel calls of one run, and what each kernel returned last."""

    def __init__(self, executable: Executable) -> None:
        self.calls: list[tuple[Function, tuple[Any, ...]]] = []
        self.last: dict[Kernel, Any] = {}
        with replaced(executable, self._recorded):
            whole(executable)

    def _recorded(self, kernel: Kernel, function: Function) -> Function:
        def call(*args: Any) -> Any:
            self.calls.append((function, args))
            self.last[kernel] = function(*args)
            return self.last[kernel]

        return call

    def bare(self) -> Any:
        made = None
        for function, args in self.calls:
            made = function(*args)
        return made

    def hollow(self, kernel: Kernel, function: Function) -> Function:
        last = self.last[kernel]
        return lambda *args: last


def timed(work: Callable[[], Any]) -> float:
    """Seconds until all that was started is done."""
    gc.collect()
    start = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - start


def measure(program: Program, repeats: int) -> dict[str, str]:
    executable = program.executable
    recording = Recording(executable)
    times: dict[str, list[float]] = {"run": [], "bare": [], "hollow": []}
    for _ in range(repeats + 3):
        times["run"].append(timed(lambda: whole(executable)))
        times["bare"].append(timed(recording.bare))
        with replaced(executable, recording.hollow):
            times["hollow"].append(timed(lambda: whole(executable)))
    launches = len(recording.calls)
    run, bare, hollow = (values[3:] for values in times.values())
    counted = Run(executable, 0)
    counted.complete()
    steps = program.bounds["B"] * program.bounds["I"] * program.bounds["T"]

    def each(values: list[float]) -> str:
        low, middle, high = (f(values) / launches * 1e6 for f in (min, median, max))
        return f"{middle:.1f} ({low:.1f} to {high:.1f})"

    ratio = median(a / b for a, b in zip(run, bare, strict=True))
    return {
        "instructions, of which Execute": f"{counted.instructions:,}, {launches:,}",
        "instructions per second": f"{counted.instructions / median(run):,.0f}",
        "environment steps per second, learning included": f"{steps / median(run):,.0f}",
        "run, µs per Execute": each(run),
        "bare: JAX alone, µs per Execute": each(bare),
        "hollow: the interpreter alone, µs per Execute": each(hollow),
        "run / bare": f"{ratio:.2f}",
    }


def main(iterations: int = 5, repeats: int = 10) -> None:
    """Print medians (and ranges) over repeats."""
    names = ("Monte Carlo", "5-step")
    found = [measure(compiled(name).with_bounds({"I": iterations}), repeats) for name in names]
    print(f"| interpreter, {repeats} runs | {' | '.join(names)} |\n|---|---|---|")
    for title in found[0]:
        print(f"| {title} | {' | '.join(values[title] for values in found)} |")
