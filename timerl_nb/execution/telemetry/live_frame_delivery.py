"""Frames of what runs, made on a thread of its own as long as somebody looks, and handed to whoever does."""

from __future__ import annotations

import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from timerl_nb.base.errors import ExecutionError
from timerl_nb.execution.control.pause_and_stop import ENDS, RunControl
from timerl_nb.execution.telemetry.live_view_frames import Frame
from timerl_nb.execution.telemetry.process_metrics import ProcessMetrics
from timerl_nb.runtime.jax_backend.jax_engine import memory_in_use

RATE: Final = 15.0  # frames a second, at most
_IDLE: Final = 1.0  # seconds between frames of a run that rests
_BROKEN: Final = "no more frames can be made of the run, which goes on."


class Watching(ABC):
    """Makes frames, and hands them to whoever looks.

    Attributes:
        latest: the last frame that was made.
        error: what the run failed with.
    """

    def __init__(self, control: RunControl) -> None:
        self._control = control
        self._began = time.perf_counter()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._broken: Exception | None = None  # why there are no more frames
        self._listeners: list[_Listener] = []
        self._waiting = 0  # iterators
        self.latest: Frame | None = None
        self.error: str | None = None
        self._turns: deque[tuple[float, int]] = deque([(0.0, 0)])
        self._metrics: ProcessMetrics | None = None
        self._on_device = memory_in_use()

    @abstractmethod
    def _frame(self, metrics: ProcessMetrics) -> Frame:
        """The run at this moment."""

    def _ask(self) -> None:
        """Ask the run's thread for what only that can say; nothing, where others can."""
        return

    def _has_more(self) -> bool:
        """Whether there is something to be shown that no frame has."""
        return False

    @property
    def _number(self) -> int:
        """The next frame's."""
        return 0 if self.latest is None else self.latest.number + 1

    # --- who looks -------------------------------------------------------------------------------

    def listen(self, listener: Callable[[Frame], object]) -> Callable[[], None]:
        """Call a function with the last frame and all that follow; returns what ends that."""
        one = _Listener(listener)
        with self._changed:
            self._listeners.append(one)
            self._start_watching()
            last = self.latest
        if last is not None:
            self._deliver(one, last)
        return lambda: self._forget(one)

    def frames(self) -> Iterator[Frame]:
        """The frames from now on, the last when the run has ended; who is slow misses some."""
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
        """The latest frame, once there is one after that number.

        Raises:
            ExecutionError: there will be none.
        """
        with self._changed:
            while self.latest is None or self.latest.number <= seen:
                if self._broken is not None:
                    raise ExecutionError(_BROKEN, evidence=[repr(self._broken)]) from self._broken
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
        except Exception as error:  # the run goes on; who waits for a frame must hear of it
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
                self._hand_out(self._frame(metrics))
            if ended:
                return

    def _is_new(self) -> bool:
        last = self.latest
        if last is None or (last.turn, last.state) != (self._control.turn, self._control.state):
            return True
        return time.perf_counter() - self._began - last.elapsed > _IDLE or self._has_more()

    def _hand_out(self, frame: Frame) -> None:
        with self._changed:
            self.latest = frame
            listeners = tuple(self._listeners)
            self._changed.notify_all()
        for listener in listeners:
            self._deliver(listener, frame)

    def _deliver(self, listener: _Listener, frame: Frame) -> None:
        try:
            listener.hear(frame)
        except Exception as error:  # a picture that fails must not stop the others
            warnings.warn(
                f"{listener.function!r} failed, and gets no more frames: {error!r}", stacklevel=1
            )
            self._forget(listener)

    def _forget(self, listener: _Listener) -> None:
        with self._changed, suppress(ValueError):  # it may have left by itself
            self._listeners.remove(listener)

    def _rate(self, now: float, turn: int, state: str) -> float:
        """Turns a second: between the changes seen in the last second, or the last two."""
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
    """A function that gets frames in order, each once, whichever thread brings them."""

    def __init__(self, function: Callable[[Frame], object]) -> None:
        self.function = function
        self._seen, self._lock = -1, threading.RLock()

    def hear(self, frame: Frame) -> None:
        with self._lock:
            if frame.number > self._seen:
                self._seen = frame.number
                self.function(frame)
