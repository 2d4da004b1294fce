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
from timerl_nb.compiler.ir.shapes import dtype_name
from timerl_nb.driver.program import Program
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.fused_kernel import Kernel
from timerl_nb.runtime.interpreter.interpreter import Run
from timerl_nb.runtime.jax_backend import jax_engine as backend

Function = Callable[..., Any]


@contextmanager
def replaced(
    executable: Executable, make: Callable[[Kernel, Function], Function]
) -> Iterator[None]:
    """Other functions in place of the executable's kernels."""
    functions = {kernel: kernel.run for kernel in executable.kernels.values()}
    kept = {kernel: dict(kernel.runs) for kernel in functions}  # by the device they are bound to
    try:
        for kernel, function in functions.items():
            kernel.runs = dict.fromkeys(kernel.runs, make(kernel, function))
        yield
    finally:
        for kernel, runs in kept.items():
            kernel.runs = runs


def whole(executable: Executable) -> Any:
    run = Run(executable, 0)
    run.complete()
    return run.stores


class Recording:
    """The kernel calls of one run as a program of their own, and what each kernel returned last.

    Kernels take over some of their operands, so that calls cannot be repeated with recorded ones:
    each operand that a call made is taken from the repetition's own call.
    """

    def __init__(self, executable: Executable) -> None:
        self.last: dict[Kernel, Any] = {}
        self.count = 0
        self._lines = ["def bare():"]
        self._space: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._made: list[Any] = []  # kept, for their identities
        with replaced(executable, self._recorded):
            whole(executable)
        exec("\n".join([*self._lines, f"    return m{self.count - 1}"]), self._space)
        self.bare: Callable[[], Any] = self._space["bare"]

    def _recorded(self, kernel: Kernel, function: Function) -> Function:
        self._space[f"kernel_{kernel.op.id}"] = function

        def call(*args: Any) -> Any:
            given, taken = args[:3], args[3:]
            operands = [*map(self._text, given), *(self._text(x, fresh=True) for x in taken)]
            self._lines.append(f"    m{self.count} = kernel_{kernel.op.id}({', '.join(operands)})")
            made = self.last[kernel] = function(*args)
            for k, x in enumerate(made):
                self._names[id(x)] = f"m{self.count}[{k}]"
                self._made.append(x)
            self.count += 1
            return made

        return call

    def _text(self, x: Any, *, fresh: bool = False) -> str:
        if isinstance(x, tuple | list):
            return f"({''.join(self._text(y, fresh=fresh) + ', ' for y in x)})"
        if x is None or isinstance(x, int) or id(x) in self._names:
            return self._names.get(id(x), repr(x))
        name = f"c{len(self._space)}"
        self._space[name] = backend.fresh(x.shape, dtype_name(x.dtype)) if fresh else x
        return f"{name}()" if fresh else name

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
    launches = recording.count
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
