"""Batches collected in the background, while the caller learns (`trl.collect(…, ahead=1)`).

Each call of `next` requests a batch with the weights of that call. A single thread makes the
batches in the order of the requests, so their sequence does not depend on the speed of the threads.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from timerl_nb.base.errors import Origin, TimeRLError, user_origin
from timerl_nb.collecting.batch import Batch
from timerl_nb.collecting.strategy import (
    Counts,
    Prepared,
    Source,
    Weights,
    closed_error,
    stop,
)
from timerl_nb.runtime.jax_backend.arrays_and_devices import capture_jax_settings
from timerl_nb.runtime.jax_backend.fork_guard import check_process

T = TypeVar("T")


@dataclass(eq=False)
class _Request:
    """A requested batch.

    Attributes:
        weights, version: weights of the policy.
        future: the batch; None before it is scheduled.
        batch, speed: the result, and the steps per second of its source.
    """

    weights: Weights
    version: int
    future: Future[Batch] | None = None
    batch: Batch | None = None
    speed: float | None = None


class _Worker:
    """Environments of one thread, which opens, steps and closes them.

    It has no reference to its `BackgroundBatches`, so that an unused one can be garbage-collected.
    """

    def __init__(
        self,
        prepared: Prepared,
        seed: int,
        settings: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._prepared, self._seed, self._settings = prepared, seed, settings
        self._source: Source | None = None
        self._error: BaseException | None = None
        self.is_stopped = False
        self.thread = 0  # identifier of the thread

    def make(self, request: _Request) -> Batch:
        """Make a requested batch; a repeated call returns the same one."""
        if request.batch is None:
            if self._error is not None:  # the state of the environments is unknown
                raise self._error
            try:
                request.batch = self.use(
                    lambda source: source.next(request.weights, request.version)
                )
                self.use(lambda source: source.confirm_received())
                request.speed = self.use(lambda source: source.speed)
            except BaseException as error:
                self._error = error
                raise
        return request.batch

    def use(self, function: Callable[[Source], T]) -> T:
        """Call a function of the environments, which are opened before the first call."""
        self.thread = threading.get_ident()
        if self.is_stopped:
            raise closed_error()
        with self._settings():
            if self._source is None:
                self._source = self._prepared(self._seed)
                if self.is_stopped:  # meanwhile
                    raise closed_error()
            return function(self._source)

    def stop(self) -> None:
        """Drop all requests, from another thread."""
        self.is_stopped = True
        stop(self._source)

    def close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            with self._settings():
                source.close()


class BackgroundBatches:
    """Source of batches that another thread makes in advance.

    The first `next` requests `1 + ahead` batches, and later ones request one batch each.

    Args:
        prepared: opens the environments.
        seed: seed of all random numbers.
        ahead: number of batches made in advance.
    """

    is_lost = False  # an interrupt reaches the main thread only, so no step is interrupted

    def __init__(self, prepared: Prepared, seed: int, ahead: int) -> None:
        self._ahead = ahead
        self._requests: deque[_Request] = deque()
        self._worker = _Worker(prepared, seed, capture_jax_settings())
        self._pool = ThreadPoolExecutor(1, "timerl collect")
        self._last: _Request | None = None  # of the last result of `next`
        self._closing = weakref.finalize(self, _close, self._worker, self._pool)
        self._closing.atexit = False  # pyrefly: ignore[missing-attribute]

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is the thread that makes the batches."""
        return threading.get_ident() == self._worker.thread

    def next(self, weights: Weights, version: int = 0) -> Batch:
        """Return the oldest requested batch; see `Source.next`.

        The requested batch has the weights of the call `ahead` calls earlier.
        """
        check_process()
        while len(self._requests) <= self._ahead:
            self._requests.append(_Request(weights, version))
        # another thread may close the collector, which clears the requests
        requests = tuple(self._requests)
        if not requests:
            raise closed_error()
        for one in requests:
            if one.future is None:  # after an interrupt, it may be scheduled twice
                try:
                    one.future = self._pool.submit(self._worker.make, one)
                except RuntimeError:  # the pool is shut down
                    raise closed_error() from None
        self._last = one = requests[0]
        assert one.future is not None
        try:
            return one.future.result()
        except TimeRLError as error:
            if error.origin == Origin():
                error.origin = user_origin()  # no frame of the thread belongs to user code
            raise

    def confirm_received(self) -> None:
        """Confirm that the reader has received the last batch."""
        if self._requests and self._requests[0] is self._last:  # also true only once
            self._requests.popleft()

    @property
    def speed(self) -> float | None:
        return None if self._last is None else self._last.speed

    @property
    def counts(self) -> Counts:
        return self._pool.submit(self._worker.use, lambda source: source.counts).result()

    def close(self) -> None:
        """Close the environments after the batch in progress; requested batches are dropped."""
        self._requests.clear()
        closed = self._closing()
        if closed is not None:  # it is None if this is called again
            closed.result()


def _close(worker: _Worker, pool: ThreadPoolExecutor) -> Future[None]:
    worker.stop()
    closed = pool.submit(worker.close)
    pool.shutdown(wait=False)
    return closed
