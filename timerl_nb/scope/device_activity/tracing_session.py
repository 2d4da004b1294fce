"""Device tracing in time windows: `trl.scope.devices`, and `trl.scope.record(devices=3)`.

Tracing slows down the program, so it is limited to windows. The time to start and stop a tracer
counts as unobserved time of the thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from time import monotonic_ns
from typing import Final

from timerl_nb.base.errors import OptionError, TimeRLError, warn
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.scope.device_activity.clock_alignment import Anchor, Joint
from timerl_nb.scope.device_activity.device_operations import TracedWindow
from timerl_nb.scope.device_activity.trace_data import Rows, Trace, write_trace
from timerl_nb.scope.device_activity.tracer_backends import Tracer, find_tracer, tracer_busy_error
from timerl_nb.scope.recording.recorder import ThreadLane, each_step, own_process, this_lane
from timerl_nb.scope.storage.event_format import Kind

_ANCHORS: Final = 5  # clock comparisons at each end; the most accurate one is used


@explain_constructor
class devices:
    """Trace of device operations during a recording, as a context manager.

    The tracer is PyTorch's profiler if PyTorch is imported and sees a GPU, else JAX's profiler
    under the same condition, else CUPTI (`cupti-python`). Without a device, the recording contains
    the reason. Without a recording, it has no effect.

    Raises:
        ExecutionError: on entry: another tracer is active.

    Example:
        >>> with trl.scope.record() as recording:
        ...     with trl.scope.devices():
        ...         total = sum(range(100))
        >>> len(recording.read().devices.windows)
        1
    """

    def __init__(self) -> None:
        self._lane: ThreadLane | None = None
        self._tracer: Tracer | None = None
        self._absent = ""
        self._begin = 0
        self._anchors: list[tuple[int, int, int | None, int]] = []

    def __enter__(self) -> devices:
        global _now
        lane = this_lane()
        if lane is None:
            return self
        with _SWITCH:
            if _now is not None:
                raise tracer_busy_error("this recording")
            _now = self
        self._anchors.clear()
        try:
            with _mark_unobserved(lane):
                self._tracer, self._absent = find_tracer()
                if self._tracer is not None:
                    self._absent = self._tracer.start()
                if self._absent:
                    self._tracer = None
                self._compare(0)
        except BaseException:
            _now = None
            raise
        self._lane, self._begin = lane, monotonic_ns()
        return self

    def __exit__(self, *_: object) -> None:
        global _now
        lane, self._lane = self._lane, None
        if lane is None or _now is not self:  # without a recording, or in a forked child
            return
        end = monotonic_ns()
        try:
            with _mark_unobserved(this_lane()):
                self._compare(_ANCHORS)
                trace = self._trace(end)
                try:
                    write_trace(lane.recorder.folder, trace)
                except OSError as error:
                    lane.recorder.fail(error)
        finally:
            _now = None

    def _compare(self, first: int) -> None:
        """Read both clocks several times."""
        tracer = self._tracer
        if tracer is None:
            return
        for number in range(first, first + _ANCHORS):
            before = monotonic_ns()
            theirs = tracer.read_clock(number)
            self._anchors.append((number, before, theirs, monotonic_ns()))

    def _trace(self, end: int) -> Trace:
        """Return the trace in CLOCK_MONOTONIC."""
        if self._tracer is None:
            nobody = "no tracer"
            trace = Rows().trace(own_process(), nobody, self._begin, end, {}, self._absent)
            return replace(trace, window=replace(trace.window, drift=0))
        trace = self._tracer.stop()
        marks = {name.split()[2]: mark for name, mark in trace.marks.items()}
        both: dict[bool, list[Anchor]] = {False: [], True: []}
        for number, before, theirs, after in self._anchors:
            took = 0
            if theirs is None:
                _, theirs, until = marks[str(number)]
                took = until - theirs
            both[number >= _ANCHORS].append(Anchor.from_readings(before, theirs, after, took))
        first, last = (min(some, key=lambda anchor: anchor.width) for some in both.values())
        joined = trace.to_our_clock(Joint(first, last))
        window: TracedWindow = replace(
            joined.window, process=own_process(), begin=self._begin, end=end
        )
        return replace(joined, window=window)


@contextmanager
def _mark_unobserved(lane: ThreadLane | None) -> Iterator[None]:
    """Mark the time inside of this context as unobserved."""
    if lane is None or lane.silent:
        yield
        return
    lane.put(0, Kind.OFF, 0)
    try:
        yield
    finally:
        lane.put(0, Kind.ON, 0)


class Steps:
    """Device tracing of the first steps of a thread.

    It begins after the first step, because compilation happens there. The thread is the first one
    to end a step.

    Args:
        count: number of steps: outermost phases, or outermost operations before the first phase.

    Raises:
        OptionError: `count` is not a number of steps.
    """

    def __init__(self, count: int) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise OptionError(
                f"devices={count!r} is not a number of steps.",
                hint="pass the number of steps to trace, 0 for none.",
            )
        self.count = self._left = count
        self._thread: int | None = None
        self._phases = False
        self._devices: devices | None = None

    def begin(self) -> None:
        """Observe the steps of the current recording."""
        if self._left:
            each_step(self._handle_step_end)

    def _handle_step_end(self, lane: ThreadLane, is_phase: bool) -> None:
        self._thread = self._thread or lane.thread
        if self._left <= 0 or lane.thread != self._thread:
            return
        self._phases |= is_phase or bool(lane.phases)
        if self._phases and not is_phase:
            return
        if self._devices is None:
            self._devices = devices()
            self._switch_safely(self._devices.__enter__)
            return
        self._left -= 1
        if not self._left:
            self.end()

    def end(self) -> None:
        """Stop tracing."""
        self._left = 0
        if self._devices is not None:
            self._switch_safely(self._devices.__exit__)

    def _switch_safely(self, switch: Callable[[], object]) -> None:
        try:
            switch()
        except Exception as error:  # an error of a profiler must not end the program
            self._left = 0
            warn(
                error.what
                if isinstance(error, TimeRLError)
                else f"device tracing failed: {error!r}"
            )


def _reset_after_fork() -> None:
    global _now, _SWITCH
    _now, _SWITCH = None, Lock()


_SWITCH = Lock()
_now: devices | None = None
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
