"""Lifecycle of the thread of a run: start, result or error, stop when the interpreter exits."""

from __future__ import annotations

import atexit
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from timerl_nb.base.errors import Origin, TimeRLError, user_origin
from timerl_nb.execution.control.pause_and_stop import RunControl
from timerl_nb.execution.results.run_result import Result
from timerl_nb.runtime.jax_backend.arrays_and_devices import capture_jax_settings
from timerl_nb.runtime.jax_backend.fork_guard import is_forked

_GRACE: Final = 5.0  # seconds to wait for the end of a run when the interpreter exits


class RunThread(ABC):
    """Work of a run's thread.

    It has no reference to the handle, such that an unused handle can be garbage-collected.
    """

    _error: BaseException | None = None  # exists even if an interrupt ends `__init__`
    _unknown = True

    def __init__(self, control: RunControl) -> None:
        self._control = control
        self._begun_at = user_origin()
        self._result: Result | None = None
        self._thread = threading.Thread(
            target=self._go, args=(capture_jax_settings(),), name="timerl run", daemon=True
        )

    @abstractmethod
    def _run_through(self) -> str:
        """Run to the end, store the result or the error, and return the final state."""

    def begin(self) -> None:
        atexit.register(self._stop_at_exit)
        self._thread.start()

    def abort_start(self) -> bool:
        """Stop a run after a failed start.

        An interrupt may arrive while the thread starts. A thread that starts later ends before its first
        iteration.

        Returns:
            Whether the thread has started, and so has closed everything.
        """
        self._control.stop()
        if not self._thread.is_alive() and not self._control.ended.is_set():
            atexit.unregister(self._stop_at_exit)
            return False
        self._control.ended.wait(_GRACE)
        return True

    def result(self) -> Result:
        error = self.take_error()
        if error is not None:
            raise error
        assert self._result is not None
        return self._result

    @abstractmethod
    def so_far(self) -> Result:
        """Return the partial results after the end of the run, also if it failed."""

    @property
    def compiling(self) -> float | None:
        """Seconds of the current wait for XLA to compile; None without a wait."""
        return None

    def take_error(self) -> BaseException | None:
        """Return the error, and mark it as seen."""
        self._unknown = False
        return self._error

    def _store_error(self, error: BaseException) -> None:
        """Store an error for `result()`."""
        self._error = error
        if isinstance(error, TimeRLError) and error.origin == Origin():
            error.origin = self._begun_at  # no frame on this thread belongs to user code

    def _go(self, alike: Callable[[], AbstractContextManager[object]]) -> None:
        state = "failed"
        try:
            with alike():
                state = self._run_through()
        finally:
            atexit.unregister(self._stop_at_exit)
            self._control.end(state)

    def __del__(self) -> None:
        if self._error is not None and self._unknown:
            warnings.warn(
                f"a run failed, and its result was never requested: {self._error}",
                RuntimeWarning,
                stacklevel=1,
            )

    def _stop_at_exit(self) -> None:
        """Stop the run when the interpreter exits, before a call to XLA is cut off."""
        if is_forked():
            return
        self._control.stop()
        self._control.ended.wait(_GRACE)
