"""A thread for what takes too long to do while the page waits."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Final

Job = Callable[[], None]
# Does one piece of what nobody waits for, and says whether there is more.
Piece = Callable[[], bool]

BREATH: Final = 0.05  # seconds between two pieces of what nobody waits for


class Worker:
    """Does jobs one after another; of the jobs of one kind that still wait, only the last.

    The thread begins with the first job, and ends when there has been none for a while.

    Args:
        failed: is called with the error of a job; what comes after it is done all the same.
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
        self._rested = False  # whether there has been no job for so long

    def ask(self, kind: str, job: Job) -> None:
        """Do a job soon, instead of an earlier one of its kind that has not begun."""
        with self._changed:
            self._jobs.pop(kind, None)
            self._jobs[kind] = job
            self._begin()

    def run_in_background(self, piece: Piece | None, rest: float = 1.0) -> None:
        """Do this, piece by piece, instead of what was to be done before while no job waits.

        A piece should end early where a job `waits`. An error ends it all, and is not shown.

        Args:
            rest: seconds without a job after which it begins, or goes on.
        """
        with self._changed:
            self._spare, self._rest = piece, rest
            if piece is not None:
                self._begin()
            self._changed.notify_all()

    @property
    def waits(self) -> bool:
        """Whether there is a job that has not begun."""
        return bool(self._jobs)

    def wait(self, timeout: float | None = None, *, spare: bool = False) -> bool:
        """Wait until nothing is left to do; False if there is after so many seconds.

        Args:
            spare: wait for what is done meanwhile, too.
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
            except Exception as another:  # what shows errors is broken, too
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
        with suppress(Exception):  # nobody asked for it; who does is told
            more = piece()
        with self._changed:
            if self._spare is piece and not more:
                self._spare = None
                self._changed.notify_all()
