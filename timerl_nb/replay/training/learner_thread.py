"""The learner's thread, and those that train a part of its batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import zip_longest
from time import perf_counter
from typing import Any

from timerl_nb.base.array_conversion import Array
from timerl_nb.replay.training.algorithm import Algorithm, parts, whole
from timerl_nb.replay.training.bounded_channel import Channel
from timerl_nb.replay.training.thread_allocation import Allocation
from timerl_nb.runtime.jax_backend import graph_function as graph
from timerl_nb.runtime.jax_backend import jax_engine as backend


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


@dataclass(frozen=True)
class LearningStep:
    """A step of learning that waits for its rows.

    Its gradient begins with the first of them, and is that of all.
    """

    _coming: Channel[tuple[Mapping[str, Array], Array]]
    _made: Future[Learnt]

    def add_rows(self, rows: Mapping[str, Array], weight: Array) -> None:
        """Bring rows, [count, …] by field, until there are as many as a batch has."""
        self._coming.put((rows, weight))

    def result(self) -> Learnt:
        """What it has made, when it has."""
        return self._made.result()


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
        self._coming: Channel[tuple[Mapping[str, Array], Array]] | None = None

    def start(self, state: Any, division: Allocation) -> LearningStep:
        """Begin a step, of rows that are put into it."""
        coming = Channel[tuple[Mapping[str, Array], Array]]()
        self._coming = coming
        return LearningStep(coming, self._threads.submit(self._learn, state, coming, division))

    def close(self) -> None:
        """End all threads, when what they do is done; a step whose rows have not all come is given up."""
        if self._coming is not None:
            self._coming.close()
        self._threads.shutdown()

    def _learn(
        self, state: Any, coming: Channel[tuple[Mapping[str, Array], Array]], division: Allocation
    ) -> Learnt:
        with self._alike():
            batch, left, begun = division.batch, division.batch, perf_counter()
            counts: list[int] = []
            own: list[Any] = []  # by part of the batch, as are others'
            beside: list[list[Future[tuple[Any, float]]]] = []
            while left:
                rows, weight = coming.take()
                if left == batch:
                    begun = perf_counter()
                left -= len(weight)
                part = division.of_part(len(weight))
                each = [part.batch - part.rows, *(n for n in part.rows_per_trainer if n)]
                first, *others = parts(rows, weight, each)
                beside.append(
                    [self._threads.submit(self._partial_gradient, state, *one) for one in others]
                )
                own.append(self._algorithm.gradient(state, *first))
                counts += each
            own = backend.wait(own)
            learner, done = perf_counter() - begun, perf_counter()
            theirs = [[one.result() for one in some] for some in beside]
            found = [
                x
                for one, some in zip(own, theirs, strict=True)
                for x in (one, *(y for y, _ in some))
            ]
            took = [
                sum(seconds for _, seconds in one)
                for one in zip_longest(*theirs, fillvalue=(0, 0.0))
            ]
            gradient, errors, loss = whole(found, counts)
            backend.wait(gradient)
            sync, begun = perf_counter() - done, perf_counter()
            state = backend.wait(self._algorithm.step(state, gradient, batch))
            params = graph.frozen(self._algorithm.acting(state))
            if self._device is not None:
                params = graph.move_to_device(params, self._home)
            params = backend.wait(params)
            return Learnt(
                state,
                params,
                errors,
                loss / batch,
                learner + perf_counter() - begun,
                max(took, default=0.0),
                sync if took else 0.0,
            )

    def _partial_gradient(
        self, state: Any, rows: Mapping[str, Array], weight: Array
    ) -> tuple[tuple[Any, Any, Any], float]:
        """A part of the batch, on the device of the run; and how long that took."""
        with self._alike():
            begun = perf_counter()
            there = state if self._device is None else graph.move_to_device(state, self._home)
            made = backend.wait(self._algorithm.gradient(there, rows, weight))
            return made, perf_counter() - begun
