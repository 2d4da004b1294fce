"""A thread for what takes too long to do while the page waits."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

Job = Callable[[], None]


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
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False

    def ask(self, kind: str, job: Job) -> None:
        """Do a job soon, instead of an earlier one of its kind that has not begun."""
        with self._changed:
            self._jobs.pop(kind, None)
            self._jobs[kind] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; False if there is after so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._busy, timeout)

    def _work(self) -> None:
        while (job := self._next()) is not None:
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

    def _next(self) -> Job | None:
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._jobs), self._idle):
                self._thread = None
                return None
            self._busy = True
            return self._jobs.pop(next(iter(self._jobs)))
