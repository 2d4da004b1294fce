"""Background thread for work that would block the page."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Final

Job = Callable[[], None]
# Does one part of the background work, and returns whether more remains.
Piece = Callable[[], bool]

BREATH: Final = 0.05  # seconds between two parts of background work


class BackgroundWorker:
    """Runs jobs in order; a newer job of the same kind replaces a waiting one.

    The thread starts with the first job, and ends after some time without one.

    Args:
        failed: a function called with the error of a job; later jobs still run.
        idle: seconds without a job after which the thread ends.
    """

    def __init__(self, name: str, failed: Callable[[Exception], object], idle: float = 5.0) -> None:
        self._name, self._failed, self._idle = name, failed, idle
        self._jobs: dict[str, Job] = {}
        self._spare: Piece | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._rest = 1.0
        self._rested = False  # whether there has been no job for `_rest` seconds

    def ask(self, kind: str, job: Job) -> None:
        """Add a job; it replaces a waiting job of the same kind."""
        with self._changed:
            self._jobs.pop(kind, None)
            self._jobs[kind] = job
            self._begin()

    def run_in_background(self, piece: Piece | None, rest: float = 1.0) -> None:
        """Run a function repeatedly while no job waits; it replaces the previous background work.

        A call should end early if a job `waits`. An error ends the background work silently.

        Args:
            piece: a function that does one part of the work, or None.
            rest: seconds without a job before the work starts or continues.
        """
        with self._changed:
            self._spare, self._rest = piece, rest
            if piece is not None:
                self._begin()
            self._changed.notify_all()

    @property
    def waits(self) -> bool:
        """Whether a job is waiting."""
        return bool(self._jobs)

    def wait(self, timeout: float | None = None, *, spare: bool = False) -> bool:
        """Wait until all jobs are done; return False after a timeout.

        Args:
            timeout: the time limit in seconds.
            spare: also wait for the background work.
        """

        def done() -> bool:
            return not self._jobs and not self._busy and not (spare and self._spare)

        with self._changed:
            return self._changed.wait_for(done, timeout)

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_thread, name=self._name, daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run_thread(self) -> None:
        while (job := self._next_job()) is not None:
            try:
                self._do(job)
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _do(self, job: Job) -> None:
        try:
            job()
        except Exception as error:
            try:
                self._failed(error)
            except Exception as another:  # the error handler has failed too
                warnings.warn(f"{self._name}: {error!r}, then {another!r}", stacklevel=1)

    def _next_job(self) -> Job | None:
        with self._changed:
            end = time.monotonic() + self._idle
            while not self._changed.wait_for(lambda: self.waits, self._pause):
                self._rested = True
                if self._spare is not None:
                    piece = self._spare
                    return lambda: self._use(piece)
                if time.monotonic() > end:
                    self._thread = None
                    return None
            self._busy, self._rested = True, False
            return self._jobs.pop(next(iter(self._jobs)))

    @property
    def _pause(self) -> float:
        if self._rested and self._spare is not None:
            return BREATH
        return min(self._rest, self._idle)

    def _use(self, piece: Piece) -> None:
        more = False
        with suppress(Exception):  # errors of background work are reported only on request
            more = piece()
        with self._changed:
            if self._spare is piece and not more:
                self._spare = None
                self._changed.notify_all()
