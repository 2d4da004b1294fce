"""What a run's thread does, and what has become of it."""

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
from timerl_nb.runtime.jax_backend.fork_guard import is_forked
from timerl_nb.runtime.jax_backend.jax_engine import capture_jax_settings

_GRACE: Final = 5.0  # seconds that a run has to end when the interpreter exits


class Course(ABC):
    """What the run's thread does. It knows nothing of the handle, so that one can be forgotten."""

    _error: BaseException | None = None  # also if an interrupt ends `__init__`
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
        """Run to the end, and keep the result or the error; returns how it ended."""

    def begin(self) -> None:
        atexit.register(self._stop_at_exit)
        self._thread.start()

    def give_up(self) -> bool:
        """End a run whose beginning failed; return whether its thread has begun, and has closed all.

        An interrupt can come while the thread begins. Later it ends at once, before its first turn.
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
        """What was there when the run ended, also of one that failed."""

    @property
    def compiling(self) -> float | None:
        """For how many seconds the run has been waiting for XLA to compile; None if it is not."""
        return None

    def take_error(self) -> BaseException | None:
        """The error, which somebody then knows of."""
        self._unknown = False
        return self._error

    def _store_error(self, error: BaseException) -> None:
        """Keep an error for whoever asks for the result."""
        self._error = error
        if isinstance(error, TimeRLError) and error.origin == Origin():
            error.origin = self._begun_at  # there is no line of the user's on this thread

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
                f"a run failed, and nobody asked for its result: {self._error}",
                RuntimeWarning,
                stacklevel=1,
            )

    def _stop_at_exit(self) -> None:
        """The interpreter exits: end the run, lest it be cut off in the middle of a call."""
        if is_forked():
            return
        self._control.stop()
        self._control.ended.wait(_GRACE)
