"""The learner's thread, and those that train a part of its batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from timerl_nb.arrays import Array
from timerl_nb.replay.algorithm import Algorithm, parts, whole
from timerl_nb.replay.allocation import Allocation
from timerl_nb.runtime.backends import jax as backend
from timerl_nb.runtime.backends import jax_graph as graph


@dataclass(frozen=True)
class Learnt:
    """What a step of learning has made.

    Attributes:
        state: of the algorithm; `params` is what is acted by.
        errors: of each row.
        loss: of a row, the mean.
        learner, trainers, sync: seconds, as `Latencies`.
    """

    state: Any
    params: Any
    errors: Array
    loss: float
    learner: float
    trainers: float
    sync: float


class Learner:
    """Learns beside who asks it to, one batch at a time.

    Args:
        device: where it does, one of JAX's; None for that of the run.
        most: trainers, at most.
        alike: what makes a thread compute as the run's.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        device: Any,
        most: int,
        alike: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._algorithm, self._device, self._alike = algorithm, device, alike
        self._home = backend.device()
        self._threads = ThreadPoolExecutor(1 + most, "timerl learner")

    def start(
        self, state: Any, rows: Mapping[str, Array], weight: Array, division: Allocation
    ) -> Future[Learnt]:
        """Begin a step; its result is there when it is done."""
        counts = [division.batch - division.rows, *(n for n in division.shares if n)]
        return self._threads.submit(self._learn, state, rows, weight, counts)

    def close(self) -> None:
        """End all threads, when what they do is done."""
        self._threads.shutdown()

    def _learn(
        self, state: Any, rows: Mapping[str, Array], weight: Array, counts: list[int]
    ) -> Learnt:
        with self._alike():
            own, *others = parts(rows, weight, counts)
            beside = [self._threads.submit(self._beside, state, *part) for part in others]
            begun = perf_counter()
            mine = backend.wait(self._algorithm.gradient(state, *own))
            learner, done = perf_counter() - begun, perf_counter()
            theirs = [one.result() for one in beside]
            gradient, errors, loss = whole([mine, *(made for made, _ in theirs)], counts)
            backend.wait(gradient)
            sync, begun = perf_counter() - done, perf_counter()
            batch = sum(counts)
            state = backend.wait(self._algorithm.step(state, gradient, batch))
            params = self._algorithm.acting(state)
            if self._device is not None:
                params = graph.moved(params, self._home)
            params = backend.wait(params)
            return Learnt(
                state,
                params,
                errors,
                loss / batch,
                learner + perf_counter() - begun,
                max((seconds for _, seconds in theirs), default=0.0),
                sync if theirs else 0.0,
            )

    def _beside(
        self, state: Any, rows: Mapping[str, Array], weight: Array
    ) -> tuple[tuple[Any, Any, Any], float]:
        """A part of the batch, on the device of the run; and how long that took."""
        with self._alike():
            begun = perf_counter()
            there = state if self._device is None else graph.moved(state, self._home)
            made = backend.wait(self._algorithm.gradient(there, rows, weight))
            return made, perf_counter() - begun
