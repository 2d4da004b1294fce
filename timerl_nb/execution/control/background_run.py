"""What runs on a thread of its own: it can be paused, stepped, stopped and looked at."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

from timerl_nb.base.errors import ExecutionError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.execution.control.pause_and_stop import RunControl
from timerl_nb.execution.control.thread_lifecycle import Course
from timerl_nb.execution.results.run_result import Result
from timerl_nb.execution.telemetry.live_frame_delivery import Watching
from timerl_nb.execution.telemetry.live_view_frames import Frame, compiling_text
from timerl_nb.runtime.jax_backend.fork_guard import check_process, is_forked

_GRACE: Final = 5.0  # seconds for which an interrupted `result` waits for the end of an iteration


class Running:
    """A run, and the commands to it.

    Commands return at once, on any thread. They take effect at the end of a turn of the outermost
    loop (of `fuse_iterations` turns where one call to XLA makes these); until then `state` is
    `pending …`. A program without such a loop has no turns: it can be watched, and held before it
    begins (`paused=True`), but not in between.

    As a context manager it stops the run on leaving. A run also stops once its handle is gone
    (`del run`, or a cell that assigns `run` again): its threads end after the current iteration.

    Args:
        telemetry: makes frames of it.
        course: what runs; begins at once.
        turns: how many there are; None where that is not known.
    """

    def __init__(
        self, control: RunControl, telemetry: Watching, course: Course, turns: int | None
    ) -> None:
        self._control, self._telemetry, self._course = control, telemetry, course
        self._turns = turns
        weakref.finalize(self, _abandon, control).atexit = False  # pyrefly: ignore[missing-attribute]
        self._course.begin()

    # --- commands --------------------------------------------------------------------------------

    def pause(self) -> None:
        """Hold the run at the end of this turn; the turns of a `step` that are left are not made."""
        self._check_process().pause()

    def resume(self) -> None:
        """Let a paused run go on."""
        self._check_process().resume()

    def step(self, turns: int = 1) -> None:
        """Let a paused run make so many turns, and pause again.

        Raises:
            ExecutionError: the run is not paused.
        """
        self._check_process().step(turns)

    def stop(self) -> None:
        """End the run at the end of this turn; `result` then has what was there."""
        self._check_process().stop()

    @property
    def speed(self) -> float | None:
        """Turns a second, at most; None for no limit. It can be set."""
        return self._control.speed

    @speed.setter
    def speed(self, speed: float | None) -> None:
        self._check_process().speed = speed

    def _check_process(self) -> RunControl:
        """What commands go to, and who waits asks.

        Raises:
            ExecutionError: the run goes on in another process, of which this one was forked.
        """
        if not self._control.ended.is_set():
            check_process()
        return self._control

    # --- looking ---------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """`running`, `paused`, `stopped`, `finished`, `failed`, or `pending …` with a command."""
        return self._control.state

    @property
    def turn(self) -> int:
        """How many turns of the outermost loop are done."""
        return self._control.turn

    @property
    def turns(self) -> int | None:
        """How many there are; None where the program does not say."""
        return self._turns

    @property
    def error(self) -> BaseException | None:
        """What the run failed with."""
        return self._course.take_error()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run is paused or has ended; False if it has not after so many seconds."""
        return self._check_process().wait(timeout)

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the run's end, and return its results.

        `result()` of a stopped run returns partial results: outputs and parameters as of the last
        completed iteration. Outputs computed after the last iteration, or from values of later
        ones, are absent. An interrupt (Ctrl-C) stops the run, as `stop` does.

        Raises:
            TimeoutError: it has not ended after `timeout` seconds; it goes on.
            ExecutionError: it is paused, and would not end by itself. Also what the run failed with,
                whatever that is.
        """
        try:
            control = self._check_process()
            if timeout is None and self.state == "paused":
                raise ExecutionError(
                    f"the run is paused after {format_count(self.turn, 'turn')}, and does not end.",
                    hint="resume() or stop() it first, or give a timeout.",
                )
            if not control.ended.wait(timeout):
                raise TimeoutError(f"the run has not ended within {timeout} s: {self!r}")
            return self._course.result()
        except KeyboardInterrupt:
            self._control.stop()
            self._control.ended.wait(_GRACE)
            raise

    def so_far(self) -> Result:
        """What a run that failed had after its last whole turn: `result` as if stopped there.

        What the turn that failed had changed already is missing, and warned of. Of a run that ended
        otherwise it is `result`.

        Raises:
            ExecutionError: the run has not ended; or nothing is left, since what failed had taken
                over the memory.
        """
        if not self._control.ended.is_set():
            raise ExecutionError(
                f"the run is {self.state}.", hint="stop() it; result() is what there was."
            )
        return self._course.so_far()

    def frames(self) -> Iterator[Frame]:
        """What the run looks like, from now on, at most 15 times a second; ends with the run.

        Who takes longer misses frames in between, never the last.
        """
        self._check_process()
        return self._frames()

    def _frames(self) -> Iterator[Frame]:
        yield from self._telemetry.frames()  # as a generator it holds the handle: the run goes on

    def on_frame(self, listener: Callable[[Frame], object]) -> Callable[[], None]:
        """Call a function with every frame, on a thread of its own; returns what ends that."""
        return self._telemetry.listen(listener)

    @property
    def latest(self) -> Frame | None:
        """The last frame that was made; None as long as nobody has looked."""
        return self._telemetry.latest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
            self._check_process().ended.wait()
        except KeyboardInterrupt:
            self._control.stop()
            self._control.ended.wait(_GRACE)
            raise

    def __repr__(self) -> str:
        of = "" if self._turns is None else f" of {self._turns}"
        parts = [f"turn {self.turn}{of}", self.state]
        waits = self._course.compiling
        if waits is not None:
            parts += [compiling_text(waits)]
        if (frame := self.latest) is not None:
            if waits is None:
                parts += [f"{frame.turns_per_second:.3g} turns/s"]
            parts += [f"{n} = {c.values[-1]:.4g}" for n, c in frame.curves.items() if len(c)]
        return f"Running({', '.join(parts)})"


def _abandon(control: RunControl) -> None:
    """End a run without a handle: no command can reach it any more."""
    try:
        if not is_forked():  # the run belongs to the parent process
            control.stop()
    except BaseException:  # an interrupt, which Python drops here
        control.stop()
        raise
