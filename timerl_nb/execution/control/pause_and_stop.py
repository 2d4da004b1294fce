"""Commands to a run: pause, step, stop, limit its speed.

The run's thread calls `RunControl.on_turn` after every iteration of the outermost loop. Without a
request, this costs one addition and one test of a flag.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from timerl_nb.base.errors import ExecutionError, OptionError

ENDS: Final = ("finished", "stopped", "failed")


class Stopped(BaseException):
    """Exception to unwind the stack of a stopped run. It never reaches the user."""


class RunControl:
    """Commands to a run, and its state.

    Attributes:
        turn: Number of completed iterations of the outermost loop.
        passed: Time of the last return from handling requests (`time.perf_counter`).
        ended: Set when the run has ended for any reason.
        reason: Why a breakpoint has paused the run; "" otherwise.
        thread: Identifier of the run's thread; None before the first iteration.
    """

    def __init__(self, *, held: bool = False, turn: int = 0) -> None:
        self.turn = turn
        self.passed = time.perf_counter()
        self.thread: int | None = None
        self.ended = threading.Event()
        self._changed = threading.Condition()
        self._state = "running"
        self._pending = "pause" if held else ""
        self._hold, self._left = held, 0  # a held run may still make `left` iterations
        self._stop = False
        self._speed: float | None = None
        self._next = 0.0  # earliest start of the next iteration, at a limited speed
        self._requests: list[Callable[[], None]] = []
        self._find_reason: Callable[[int, int], str] | None = None
        self.reason = ""
        self._due = held

    # --- on the run's thread ---------------------------------------------------------------------

    def on_turn(self, count: int = 1) -> None:
        """Count completed iterations, and pause or stop the run if requested.

        Raises:
            Stopped: The run was stopped.
        """
        self.turn += count
        if self._due:
            self._handle_requests(count)

    def enter(self) -> None:
        """Handle requests before the first iteration."""
        self.thread = threading.get_ident()
        if self._due:
            self._handle_requests(0)

    def _handle_requests(self, count: int) -> None:
        """Apply the requests after `count` further iterations, and wait while the run is paused or limited in speed.

        Raises:
            Stopped: a stop was requested.
        """
        with self._changed:
            self._left = max(0, self._left - count)
            self._next = max(self._next, time.perf_counter() - _BEHIND)
            if self._speed is not None:
                self._next += count / self._speed
            if self._find_reason is not None:
                found = self._find_reason(self.turn - count, self.turn)
                if found:
                    self._hold, self._left, self.reason = True, 0, found
            while True:
                requests, self._requests = self._requests, []
                for function in requests:
                    function()
                if self._stop:
                    raise Stopped
                wait = self._waits()
                if wait == 0.0:
                    break
                self._changed.wait(None if wait is None else min(wait, _LONG))
            if not self._hold:
                self._set_state("running")
            self.reason = ""
            regular = self._speed is not None or self._find_reason is not None
            self._due = self._hold or regular or bool(self._requests)
            self.passed = time.perf_counter()

    def _waits(self) -> float | None:
        """Return the remaining wait in seconds; None to wait for a command."""
        if self._hold and not self._left:
            self._set_state("paused")
            return None
        if self._speed is None:
            return 0.0
        return max(0.0, self._next - time.perf_counter())

    def _set_state(self, state: str) -> None:
        self._state, self._pending = state, ""
        self._changed.notify_all()

    def end(self, state: str) -> None:
        """Mark the run as ended. Later commands have no effect."""
        with self._changed:
            self._requests.clear()
            self.reason = ""
            self._set_state(state)
            self.ended.set()

    # --- on any thread ---------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """`running`, `paused`, `finished`, `stopped`, `failed`, or `pending <command>`."""
        pending = self._pending
        return f"pending {pending}" if pending else self._state

    @property
    def is_held(self) -> bool:
        """Whether the run is paused, or will pause at the end of an iteration."""
        return self._hold

    def pause(self) -> None:
        with self._changed:
            if not self._has_ended and (not self._hold or self._left):
                self._hold, self._left = True, 0
                self._post_command("pause")

    def resume(self) -> None:
        with self._changed:
            if not self._has_ended and self._hold:
                self._hold, self._left, self._next = False, 0, 0.0
                self._post_command("resume")

    def step(self, turns: int) -> None:
        if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
            raise OptionError(
                f"step({turns!r}) is not possible: the number of turns is a positive integer.",
                hint="call step(), or step(10) for ten turns.",
            )
        with self._changed:
            if self._has_ended:
                return
            if not self._hold:
                raise ExecutionError(
                    "step() needs a paused run, and this run is not paused.",
                    hint="call pause() and wait() first.",
                )
            self._left += turns
            self._post_command("step")

    def stop(self) -> None:
        with self._changed:
            if not self._has_ended:
                self._stop = True
                self._post_command("stop")

    @property
    def speed(self) -> float | None:
        """Limit on the iterations per second; None for no limit."""
        return self._speed

    @speed.setter
    def speed(self, speed: float | None) -> None:
        if speed is not None and (
            isinstance(speed, bool) or not isinstance(speed, int | float) or not speed > 0
        ):
            raise OptionError(
                f"speed={speed!r} is not possible: the speed is a positive number of turns per second.",
                hint="pass a positive number, or None for no limit.",
            )
        with self._changed:
            self._speed, self._next = speed, 0.0
            self._due = self._due or speed is not None
            self._changed.notify_all()

    def break_when(self, find_reason: Callable[[int, int], str] | None) -> None:
        """Pause when a function returns a reason; None for no breakpoint.

        The function gets the numbers of completed iterations before and after a call, on the run's thread. They are
        equal before the first iteration of a run.
        """
        with self._changed:
            self._find_reason = find_reason
            self._due = self._due or find_reason is not None

    def ask(self, function: Callable[[], None]) -> None:
        """Call a function on the run's thread, at the end of an iteration or while the run is paused.

        After the end of the run, the function is not called.
        """
        with self._changed:
            if not self._has_ended:
                self._requests.append(function)
                self._due = True
                self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run is paused or has ended; return False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout)

    def _is_idle(self) -> bool:
        return self._has_ended or (self._state == "paused" and not self._pending)

    @property
    def _has_ended(self) -> bool:
        return self._state in ENDS

    def _post_command(self, command: str) -> None:
        self._pending, self._due = command, True
        self._changed.notify_all()


_LONG: Final = 3600.0  # longest single wait in seconds; the platform limits the length of a wait
_BEHIND: Final = 0.05  # a run slower than its speed limit may catch up this many seconds
