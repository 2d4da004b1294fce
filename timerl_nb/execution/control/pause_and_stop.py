"""Where a run passes at the end of every turn of its outermost loop, and may be held or ended.

The run's thread calls `turned`; that adds to a number, and looks at one flag. All else happens only
when somebody has asked for something.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from timerl_nb.base.errors import ExecutionError, OptionError

ENDS: Final = ("finished", "stopped", "failed")


class Stopped(BaseException):
    """Unwinds a run that is told to end; nobody outside of it sees this."""


class RunControl:
    """The commands to a run, and how far it has obeyed them.

    Attributes:
        turn: how many turns are done.
        passed: when the run last went on, if it had been asked for something.
        ended: is set once the run has ended, however it did.
    """

    def __init__(self, *, held: bool = False, turn: int = 0) -> None:
        self.turn = turn
        self.passed = time.perf_counter()
        self.ended = threading.Event()
        self._changed = threading.Condition()
        self._state = "running"
        self._pending = "pause" if held else ""
        self._hold, self._left = held, 0  # `left` turns pass although it is held
        self._stop = False
        self._speed: float | None = None
        self._next = 0.0  # when the next turn may begin, at a limited speed
        self._asked: list[Callable[[], None]] = []
        self._due = held

    # --- on the run's thread ---------------------------------------------------------------------

    def on_turn(self, count: int = 1) -> None:
        """The run has made so many turns: hold it, or end it, as it was told.

        Raises:
            Stopped: the run is to end here.
        """
        self.turn += count
        if self._due:
            self._handle_requests(count)

    def enter(self) -> None:
        """The run begins, or waits before its first turn."""
        if self._due:
            self._handle_requests(0)

    def _handle_requests(self, count: int) -> None:
        with self._changed:
            self._left = max(0, self._left - count)
            self._next = max(self._next, time.perf_counter() - _BEHIND)
            if self._speed is not None:
                self._next += count / self._speed
            while True:
                asked, self._asked = self._asked, []
                for function in asked:
                    function()
                if self._stop:
                    raise Stopped
                wait = self._waits()
                if wait == 0.0:
                    break
                self._changed.wait(None if wait is None else min(wait, _LONG))
            if not self._hold:
                self._set_state("running")
            self._due = self._hold or self._speed is not None or bool(self._asked)
            self.passed = time.perf_counter()

    def _waits(self) -> float | None:
        """How long the run waits for, in seconds; None for a command."""
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
        """The run has ended: nothing is obeyed any more."""
        with self._changed:
            self._asked.clear()
            self._set_state(state)
            self.ended.set()

    # --- on any thread ---------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """`running`, `paused`, `pending …` until a command has taken effect, or how it ended."""
        pending = self._pending
        return f"pending {pending}" if pending else self._state

    @property
    def is_held(self) -> bool:
        """Whether the run waits for a command, or will at the end of a turn."""
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
            raise OptionError(f"step({turns!r}) is not possible.", hint="give a number of turns.")
        with self._changed:
            if self._has_ended:
                return
            if not self._hold:
                raise ExecutionError(
                    "a run that is not paused makes no steps.", hint="pause first."
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
        """Turns a second at most; None for as many as there can be."""
        return self._speed

    @speed.setter
    def speed(self, speed: float | None) -> None:
        if speed is not None and (
            isinstance(speed, bool) or not isinstance(speed, int | float) or not speed > 0
        ):
            raise OptionError(
                f"speed={speed!r} is not possible.",
                hint="give turns a second, or None for no limit.",
            )
        with self._changed:
            self._speed, self._next = speed, 0.0
            self._due = self._due or speed is not None
            self._changed.notify_all()

    def ask(self, function: Callable[[], None]) -> None:
        """Have a function called on the run's thread at the end of a turn, or while it is held.

        Once the run has ended it is not called.
        """
        with self._changed:
            if not self._has_ended:
                self._asked.append(function)
                self._due = True
                self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run rests or has ended; False if it has not after so many seconds."""
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


_LONG: Final = 3600.0  # seconds that a thread waits for at once; more may be more than it can count
_BEHIND: Final = 0.05  # seconds that a run may catch up where it is slower than its limit
