"""Learner thread, and trainer threads that compute the gradients of a part of its batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import zip_longest
from time import perf_counter
from typing import Any

from timerl_nb.base.array_conversion import Array
from timerl_nb.replay.training.algorithm import Algorithm, parts, whole, with_positions
from timerl_nb.replay.training.bounded_channel import Channel
from timerl_nb.replay.training.thread_allocation import Allocation
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend import graph_function as graph


@dataclass(frozen=True)
class Learnt:
    """Result of one learning step.

    Attributes:
        state: the new state of the algorithm.
        params: the part of the state that actors need.
        errors: the TD error of each row.
        loss: the mean loss per row.
        learner, trainers, sync: durations in seconds, see `Latencies`.
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
    """Learning step in progress, which receives the rows of its batch in parts.

    The gradient of the first part is computed while later parts are still being gathered.
    """

    _coming: Channel[tuple[Mapping[str, Array], Array]]
    _result: Future[Learnt]

    def add_rows(self, rows: Mapping[str, Array], weight: Array) -> None:
        """Add rows [count, …] by field; the batch is complete after `division.batch` rows."""
        self._coming.put((rows, weight))

    def result(self) -> Learnt:
        """Wait for the end of the step and return its result."""
        return self._result.result()


class Learner:
    """Runs learning steps on a separate thread, one batch at a time.

    Args:
        device: the learner's JAX device; None for the device of the run.
        most: the maximal number of trainer threads.
        alike: a context manager that applies the JAX settings of the run's thread.
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
        """Start a learning step; the caller then adds the rows."""
        coming = Channel[tuple[Mapping[str, Array], Array]]()
        self._coming = coming
        return LearningStep(coming, self._threads.submit(self._learn, state, coming, division))

    def close(self) -> None:
        """End all threads after their current work; an incomplete batch is discarded."""
        if self._coming is not None:
            self._coming.close()
        self._threads.shutdown()

    def _learn(
        self, state: Any, coming: Channel[tuple[Mapping[str, Array], Array]], division: Allocation
    ) -> Learnt:
        with self._alike():
            batch, left, begun = division.batch, division.batch, perf_counter()
            counts: list[int] = []
            own: list[
                Any
            ] = []  # gradients of the learner, one per part of the batch; `beside` has those of the trainers
            beside: list[list[Future[tuple[Any, float]]]] = []
            while left:
                rows, weight = coming.take()
                if left == batch:
                    begun = perf_counter()
                rows = with_positions(rows, len(weight), batch - left)
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
        """Return the gradient of a part of the batch, computed on the device of the run, and its duration."""
        with self._alike():
            begun = perf_counter()
            there = state if self._device is None else graph.move_to_device(state, self._home)
            made = backend.wait(self._algorithm.gradient(there, rows, weight))
            return made, perf_counter() - begun
