"""The systems that are measured: ours and the hand-written programs, an iteration at a time."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import jax

import timerl_nb as trl
from benchmarks.peers import floor, jitted, kept, online
from benchmarks.peers.parts import Carry, Iteration, start
from benchmarks.works import Work
from timerl_nb.loops.nodes import Ast, Loop, Sequence, children
from timerl_nb.runtime.interpret import Run

TOGETHER: Final = 5  # iterations in one call of what is named 'whole'
BLOCK: Final = 5  # steps


class Runner(ABC):
    """A system at work.

    Attributes:
        iterations: how many of them one `advance` is.
        predicted: the peak that we predict, in bytes; None for others.
        temp: what XLA says that the compiled function needs beside its arguments, in bytes.
    """

    iterations = 1
    predicted: int | None = None
    temp: int | None = None

    @abstractmethod
    def advance(self) -> None:
        """Run on, and wait for the end of it."""

    @abstractmethod
    def close(self) -> None:
        """Stop, and let go of what is held."""


class Compiled(Runner):
    """A hand-written program, one call per iteration or several iterations in one call."""

    def __init__(self, iteration: Iteration, work: Work, iterations: int = 1) -> None:
        def several(carry: Carry) -> Any:
            return jax.lax.scan(lambda c, _: iteration(c), carry, None, iterations)

        self.iterations = iterations
        self._carry = start(work)
        function = jax.jit(iteration if iterations == 1 else several)
        self._run = function.lower(self._carry).compile()
        self.temp = self._run.memory_analysis().temp_size_in_bytes

    def advance(self) -> None:
        self._carry, seen = self._run(self._carry)
        jax.block_until_ready((self._carry, seen))

    def close(self) -> None:
        del self._run, self._carry


class Interpreted(Runner):
    """Our program under the interpreter, which waits in its thread for each turn of its loop."""

    def __init__(self, work: Work, options: trl.Options, most: int) -> None:
        program = work.compile(most, options)
        self.predicted = program.memory.peak
        self._skipped = sum(map(turns, outer_loops(program.ast)[:-1]))
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._ended: BaseException | None = None
        self._run = Run(program.executable, 0, progress=self._turned)
        self._thread = threading.Thread(target=self._complete, daemon=True)
        self._thread.start()

    def _complete(self) -> None:
        self._go.acquire()
        try:
            self._run.complete()
            raise StopIteration
        except BaseException as error:
            self._ended = error
            self._done.release()

    def _turned(self) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        jax.block_until_ready(self._run.stores)
        self._done.release()
        self._go.acquire()
        if self._ended is not None:
            raise self._ended

    def advance(self) -> None:
        self._go.release()
        self._done.acquire()
        if self._ended is not None:
            raise RuntimeError("the run is over") from self._ended

    def close(self) -> None:
        self._ended = self._ended or KeyboardInterrupt()
        self._go.release()
        self._thread.join()


def outer_loops(ast: Ast) -> list[Loop]:
    """The outermost loops; the last one learns, iteration by iteration."""
    outer = children(ast.root) if isinstance(ast.root, Sequence) else [ast.root]
    return [node for node in outer if isinstance(node, Loop)]


def turns(loop: Loop) -> int:
    return (loop.last.const - loop.first.const) // loop.step + 1


class Executed(Runner):
    """Our program run from its beginning, all iterations together."""

    def __init__(self, work: Work, options: trl.Options) -> None:
        self.iterations = TOGETHER
        self._program = work.compile(TOGETHER, options)
        self.predicted = self._program.memory.peak

    def advance(self) -> None:
        self._program.execute(progress=False)

    def close(self) -> None:
        del self._program


Make = Callable[[Work, int], Runner]  # given how often it will advance at most


def _peer(write: Callable[[Work], Iteration], iterations: int = 1) -> Make:
    return lambda work, most: Compiled(write(work), work, iterations)


def _blocks(recompute: bool) -> Callable[[Work], Iteration]:
    return partial(kept.iteration, block=BLOCK, recompute=recompute)


SYSTEMS: Final[Mapping[str, Make]] = {
    "jitted": _peer(jitted.iteration),
    "ours": lambda work, most: Interpreted(work, trl.Options(executor="interpret"), most),
    "jitted, whole": _peer(jitted.iteration, TOGETHER),
    "kept": _peer(kept.iteration),
    "kept, blocks": _peer(_blocks(False)),
    "recomputed, blocks": _peer(_blocks(True)),
    "online": _peer(online.iteration),
    "rings": _peer(online.rings),
    "floor": _peer(floor.iteration),
}


def first(name: str, work: Work, most: int) -> tuple[Runner, float]:
    """A system after its first step, and the seconds until then, compilation included."""
    began = time.perf_counter()
    runner = SYSTEMS[name](work, most)
    runner.advance()
    return runner, time.perf_counter() - began
