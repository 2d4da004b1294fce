"""Creation of live frames on a background thread, and delivery to their consumers."""

from __future__ import annotations

import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, TypeVar

from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.execution.control.breakpoints import Breakpoint
from timerl_nb.execution.control.pause_and_stop import ENDS, RunControl
from timerl_nb.execution.results.live_values import LiveValues
from timerl_nb.execution.telemetry.live_view_frames import Frame
from timerl_nb.execution.telemetry.process_metrics import ProcessMetrics
from timerl_nb.runtime.jax_backend.arrays_and_devices import memory_in_use
from timerl_nb.runtime.run_protocol import RunProtocol

T = TypeVar("T")
RATE: Final = 15.0  # maximum frames per second
_IDLE: Final = 1.0  # seconds between frames of a paused run
_BROKEN: Final = "the frames of the run have stopped because of an error; the run continues."


class Watching(ABC):
    """Creates frames while someone consumes them, and delivers them.

    Attributes:
        latest: The newest frame; None if there was none.
        error: Message of the error that ended the run.
    """

    def __init__(self, control: RunControl) -> None:
        self._control = control
        self._began = time.perf_counter()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._broken: Exception | None = None  # error that stopped the frames
        self._listeners: list[_Listener] = []
        self._waiting = 0  # number of active iterators
        self.latest: Frame | None = None
        self.error: str | None = None
        self._turns: deque[tuple[float, int]] = deque([(0.0, 0)])
        self._metrics: ProcessMetrics | None = None
        self._on_device = memory_in_use()

    @abstractmethod
    def _frame(self, metrics: ProcessMetrics) -> Frame:
        """Return a frame of the current state."""

    def breakpoint(self, text: str) -> Callable[[int, int], str]:
        """Return a function for `RunControl.break_when` from a condition such as `turn = 3`.

        Raises:
            OptionError: The text is not a condition, or names anything other than the turn.
        """
        found = Breakpoint.from_text(text)
        if found.name != "turn":
            raise OptionError(
                f"a run cannot pause on {found.name!r}.", hint="compare `turn` with a number."
            )
        return lambda before, now: f"turn = {now}" if found.is_reached(before, now) else ""

    def live_values(self) -> dict[str, LiveValues]:
        """Return the values that the run holds between two iterations.

        Raises:
            ExecutionError: The run is not that of a program.
        """
        raise ExecutionError(
            "live values are available only for a run of a program.",
            hint="start a program by program.start().",
        )

    def call_on_run(self, function: Callable[[RunProtocol, int], T]) -> T:
        """Call a function of the run and its completed iterations on the run's thread.

        Raises:
            ExecutionError: The run is not that of a program.
        """
        raise ExecutionError(
            "only a run of a program can be replayed.", hint="start a program by program.start()."
        )

    def _ask(self) -> None:
        """Request data from the run's thread; the default needs none."""
        return

    def _has_more(self) -> bool:
        """Whether new data waits for the next frame."""
        return False

    @property
    def _number(self) -> int:
        """Number of the next frame."""
        return 0 if self.latest is None else self.latest.number + 1

    # --- consumers -------------------------------------------------------------------------------

    def listen(self, listener: Callable[[Frame], object]) -> Callable[[], None]:
        """Call a function with the latest frame and with every later one; return a function that ends this."""
        one = _Listener(listener)
        with self._changed:
            self._listeners.append(one)
            self._start_watching()
            last = self.latest
        if last is not None:
            self._deliver(one, last)
        return lambda: self._forget(one)

    def frames(self) -> Iterator[Frame]:
        """Iterate over new frames until the run ends. A slow consumer misses frames, but not the last."""
        seen = -1
        with self._changed:
            self._waiting += 1
            self._start_watching()
        try:
            while True:
                frame = self._wait_for_frame(seen)
                yield frame
                seen = frame.number
                if frame.state in ENDS:
                    return
        finally:
            with self._changed:
                self._waiting -= 1

    def _wait_for_frame(self, seen: int) -> Frame:
        """Wait for a frame with a number above `seen`, and return the latest.

        Raises:
            ExecutionError: An error stopped the frames.
        """
        with self._changed:
            while self.latest is None or self.latest.number <= seen:
                if self._broken is not None:
                    raise ExecutionError(
                        _BROKEN,
                        evidence=[repr(self._broken)],
                        hint="result() still returns the results.",
                    ) from self._broken
                self._changed.wait()
            return self.latest

    def _start_watching(self) -> None:
        if self._thread is None:
            self._broken = None
            self._thread = threading.Thread(target=self._watch, name="timerl frames", daemon=True)
            self._thread.start()

    # --- on a thread of its own -----------------------------------------------------------------

    def _watch(self) -> None:
        try:
            self._make_frames()
        except Exception as error:  # the run continues, and consumers get the error
            warnings.warn(f"{_BROKEN[:-1]}: {error!r}", stacklevel=1)
            with self._changed:
                self._broken, self._thread = error, None
                self._changed.notify_all()

    def _make_frames(self) -> None:
        metrics = self._metrics = self._metrics or ProcessMetrics(self._on_device)
        while True:
            self._ask()
            ended = self._control.ended.wait(1 / RATE)
            with self._changed:
                if not self._listeners and not self._waiting:
                    self._thread = None
                    return
            if ended or self._is_new():
                self._deliver_to_all(self._frame(metrics))
            if ended:
                return

    def _is_new(self) -> bool:
        last = self.latest
        if last is None or (last.turn, last.state) != (self._control.turn, self._control.state):
            return True
        return time.perf_counter() - self._began - last.elapsed > _IDLE or self._has_more()

    def _deliver_to_all(self, frame: Frame) -> None:
        with self._changed:
            self.latest = frame
            listeners = tuple(self._listeners)
            self._changed.notify_all()
        for listener in listeners:
            self._deliver(listener, frame)

    def _deliver(self, listener: _Listener, frame: Frame) -> None:
        try:
            listener.hear(frame)
        except Exception as error:  # one failing listener must not affect the others
            warnings.warn(
                f"the listener {listener.function!r} failed, and receives no more frames: {error!r}",
                stacklevel=1,
            )
            self._forget(listener)

    def _forget(self, listener: _Listener) -> None:
        with self._changed, suppress(ValueError):  # it may be removed already
            self._listeners.remove(listener)

    def _rate(self, now: float, turn: int, state: str) -> float:
        """Return iterations per second, from the changes of the last second or the last two changes."""
        changes = self._turns
        if state == "paused":
            changes.clear()
        if not changes or turn != changes[-1][1]:
            changes.append((now, turn))
        while len(changes) > 2 and changes[0][0] < now - 1.0:
            changes.popleft()
        (first, begun), (last, reached) = changes[0], changes[-1]
        span = max(last - first, now - last)
        return (reached - begun) / span if span > 0 and state != "paused" else 0.0


class _Listener:
    """Listener to frames: in order, each at most once, from any thread."""

    def __init__(self, function: Callable[[Frame], object]) -> None:
        self.function = function
        self._seen, self._lock = -1, threading.RLock()

    def hear(self, frame: Frame) -> None:
        with self._lock:
            if frame.number > self._seen:
                self._seen = frame.number
                self.function(frame)
