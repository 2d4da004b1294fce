"""The raced systems: ours and the hand-written programs, advanced by iterations."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import jax

import timerl_nb as trl
from benchmarks.training.peers import floor, jitted, kept, online, stock
from benchmarks.training.peers.parts import Carry, Iteration, start
from benchmarks.works import Stock, Work
from timerl_nb.compiler.loops.loop_nodes import Loop, Sequence, children
from timerl_nb.runtime.interpreter.interpreter import Run
from timerl_nb.runtime.xla.execution.lowered_run import LoweredRun

TOGETHER: Final = 5  # iterations per call of systems called 'whole'
BLOCK: Final = 5  # steps


class Runner(ABC):
    """A running system.

    Attributes:
        iterations: Iterations per `advance`.
        predicted: Peak predicted by our compiler, in bytes; None for other systems.
        arguments, temp: Bytes of arguments and temporaries of an iteration's function, as stated
        by XLA.
    """

    iterations = 1
    predicted: int | None = None
    temp: int | None = None
    arguments: int | None = None

    @abstractmethod
    def advance(self) -> float | None:
        """Advance, wait for completion, and return the seconds if the system measures them itself."""

    @abstractmethod
    def close(self) -> None:
        """Stop, and release all resources."""

    def _sized(self, compiled: Any) -> None:
        found = compiled.memory_analysis()
        self.arguments, self.temp = found.argument_size_in_bytes, found.temp_size_in_bytes


class Compiled(Runner):
    """Hand-written program, with one or several iterations per call."""

    def __init__(self, iteration: Iteration, carry: Carry, iterations: int = 1) -> None:
        def several(carry: Carry) -> Any:
            return jax.lax.scan(lambda c, _: iteration(c), carry, None, iterations)

        self.iterations = iterations
        self._carry = carry
        function = jax.jit(iteration if iterations == 1 else several)
        self._run = function.lower(self._carry).compile()
        self._sized(self._run)

    def advance(self) -> None:
        self._carry, seen = self._run(self._carry)
        jax.block_until_ready((self._carry, seen))

    def close(self) -> None:
        del self._run, self._carry


class Ours(Runner):
    """Our program, one iteration of the outermost loop (or `iterations`) at a time."""

    def __init__(self, work: Work | Stock, most: int, iterations: int = 1, **options: Any) -> None:
        self.iterations = iterations
        given = trl.Options(fuse_iterations=iterations, **options)
        program = work.compile(most * iterations, given)
        self.predicted = program.memory.peak
        self._lowered = program.executable.xla_program
        self._completed, self._skipped = 0, _turns_before(program)
        self._run = (
            Run(program.executable, 0, progress=self._count)
            if self._lowered is None
            else LoweredRun(self._lowered, 0, self._count)  # it waits for each iteration
        )
        self._turns = self._run.turns()

    def _count(self, count: int = 1) -> None:
        self._completed += count

    def advance(self) -> None:
        goal = max(self._completed, self._skipped) + 1
        while self._completed < goal:
            if next(self._turns, None) is None:
                raise RuntimeError("the run is over")
        if isinstance(self._run, Run):
            jax.block_until_ready(self._run.stores)

    def close(self) -> None:
        self._turns.close()
        self._run.release()
        if self._lowered is not None:
            last = max(k for k, call in enumerate(self._lowered.calls, 1) if call.loop)
            self._sized(self._lowered.xla_executable(last))


# Program of another checkout's process: its own benchmarks, one iteration per input line.
_SERVED: Final = """
import json, sys, time
try:
    from benchmarks.training.systems import first
except ImportError:  # of a checkout before benchmarks had folders
    from benchmarks.systems import first
from benchmarks.works import WORKS
system, work, most = sys.argv[1:]
runner, to_first = first(system, WORKS[work], int(most))
print(json.dumps([to_first, runner.iterations]), flush=True)
for _ in sys.stdin:
    began = time.perf_counter()
    runner.advance()
    print(json.dumps(time.perf_counter() - began), flush=True)
runner.close()
print(json.dumps([runner.predicted, runner.temp, runner.arguments]), flush=True)
"""


class Elsewhere(Runner):
    """System of another checkout, in a separate process.

    Attributes:
        to_first: Seconds until its first step.
    """

    def __init__(self, folder: str, system: str, work: str, most: int) -> None:
        command = [sys.executable, "-c", _SERVED, system, work, str(most)]
        self._process = subprocess.Popen(
            command, cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.to_first, self.iterations = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")
        return json.loads(line)

    def advance(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.predicted, self.temp, self.arguments = self._answer()
        self._process.wait()


def _turns_before(program: trl.Program) -> int:
    """Return the outer-loop iterations before the learning one, for each training iteration."""
    lowered = program.executable.xla_program
    if lowered is not None:
        loops = [call.loop for call in lowered.calls if call.loop]
    else:
        root = program.ast.root
        outer = children(root) if isinstance(root, Sequence) else [root]
        loops = [node for node in outer if isinstance(node, Loop)]
    return sum((x.last.const - x.first.const) // x.step + 1 for x in loops[:-1])


Make = Callable[[Any, int], Runner]  # arguments: program, and maximal number of advances


def _peer(write: Callable[[Work], Iteration], iterations: int = 1) -> Make:
    return lambda work, most: Compiled(write(work), start(work), iterations)


def _jitted(iterations: int = 1) -> Make:
    def make(work: Work | Stock, most: int) -> Runner:
        if isinstance(work, Stock):
            return Compiled(stock.iteration(work), stock.start(work), iterations)
        return Compiled(jitted.iteration(work), start(work), iterations)

    return make


def _blocks(recompute: bool) -> Callable[[Work], Iteration]:
    return partial(kept.iteration, block=BLOCK, recompute=recompute)


SYSTEMS: Final[Mapping[str, Make]] = {
    "jitted": _jitted(),
    "ours": lambda work, most: Ours(work, most, executor="xla"),
    "ours, interpreted": lambda work, most: Ours(work, most, executor="interpret"),
    "jitted, whole": _jitted(TOGETHER),
    "ours, whole": lambda work, most: Ours(work, most, TOGETHER, executor="xla"),
    "kept": _peer(kept.iteration),
    "kept, blocks": _peer(_blocks(False)),
    "recomputed, blocks": _peer(_blocks(True)),
    "online": _peer(online.iteration),
    "rings": _peer(online.rings),
    "floor": _peer(floor.iteration),
}


def first(name: str, work: Work | Stock, most: int) -> tuple[Runner, float]:
    """Return a system after its first step, and the seconds until then, compilation included."""
    began = time.perf_counter()
    runner = SYSTEMS[name](work, most)
    runner.advance()
    return runner, time.perf_counter() - began
