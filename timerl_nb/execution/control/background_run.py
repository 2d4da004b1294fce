"""Handle of a run on a background thread: pause, step, stop, watch, and fetch the result."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self, TypeVar

from timerl_nb.base.errors import ExecutionError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.execution.control.pause_and_stop import RunControl
from timerl_nb.execution.control.thread_lifecycle import RunThread
from timerl_nb.execution.results.live_values import LiveValues
from timerl_nb.execution.results.run_result import Result
from timerl_nb.execution.telemetry.live_frame_delivery import Watching
from timerl_nb.execution.telemetry.live_view_frames import Frame, compiling_text
from timerl_nb.runtime.jax_backend.fork_guard import check_process, is_forked
from timerl_nb.runtime.run_protocol import RunProtocol

T = TypeVar("T")
_GRACE: Final = 5.0  # seconds for which an interrupted `result` waits for the end of an iteration


class Running:
    """Handle of a run on a background thread.

    `program.start()` returns one. A *turn* is one iteration of the program's outermost loop.

    Methods return immediately, except `wait` and `result`, and can be called from any thread. The run
    obeys a command at the end of the current turn. With `fuse_iterations=n`, one call to XLA runs n
    turns, and the run obeys after that call. Until then, `state` is `pending pause`, `pending stop`, ….
    A program without an outermost loop has no turns. It can be watched, and `start(paused=True)` delays
    its beginning.

    As a context manager, the handle stops the run on exit. The run also stops when its handle is
    deleted (`del run`, or a notebook cell that assigns `run` again).

    Args:
        control: Commands to the run.
        telemetry: Source of the frames.
        run_thread: Work of the run's thread; it starts in `__init__`.
        turns: Total number of turns; None if unknown.

    Example:
        >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
        >>> with program.start(paused=True) as run:
        ...     run.step(3)
        ...     ok = run.wait()
        >>> run.turn, run.turns, run.state
        (3, 40, 'stopped')
        >>> run.result()["return"].shape
        (3,)
    """

    def __init__(
        self, control: RunControl, telemetry: Watching, run_thread: RunThread, turns: int | None
    ) -> None:
        self._control, self._telemetry, self._run_thread = control, telemetry, run_thread
        self._turns = turns
        weakref.finalize(self, _abandon, control).atexit = False  # pyrefly: ignore[missing-attribute]
        self._run_thread.begin()

    # --- commands --------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pause the run at the end of the current turn.

        Remaining turns of an earlier `step` are dropped.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> run = program.start()
            >>> run.pause()
            >>> run.wait()
            True
        """
        self._check_process().pause()

    def resume(self) -> None:
        """Continue a paused run.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> run = program.start(paused=True)
            >>> run.resume()
            >>> run.result()["return"].shape
            (40,)
        """
        self._check_process().resume()

    def step(self, turns: int = 1) -> None:
        """Run some turns of a paused run, then pause again.

        Args:
            turns: Number of turns.

        Raises:
            ExecutionError: The run is not paused.
            OptionError: `turns` is not a positive integer.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> with program.start(paused=True) as run:
            ...     run.step(3)
            ...     paused = run.wait()
            >>> run.turn
            3
        """
        self._check_process().step(turns)

    def stop(self) -> None:
        """Stop the run at the end of the current turn.

        `result` then returns partial results.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> run = program.start(paused=True)
            >>> run.stop()
            >>> run.wait(), run.state
            (True, 'stopped')
        """
        self._check_process().stop()

    @property
    def speed(self) -> float | None:
        """Limit on the turns per second; None for no limit. Assign a number to change it."""
        return self._control.speed

    @speed.setter
    def speed(self, speed: float | None) -> None:
        self._check_process().speed = speed

    def pause_when(self, condition: str | None) -> None:
        """Pause the run whenever a condition holds at the end of an iteration; None for no condition.

        `i = 3` pauses before iteration 3 of the outermost loop over i. `return > 400` pauses after an iteration
        whose output `return` is greater. With several seeds, the condition compares their mean. Each check
        copies the output to the host.

        Args:
            condition: An output with one number per iteration, the outermost dimension or `turn`; one of
                `=`, `!=`, `<`, `<=`, `>`, `>=`; and a number.

        Raises:
            OptionError: The text is not such a condition.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> with program.start(paused=True) as run:
            ...     run.pause_when("i = 3")
            ...     run.resume()
            ...     ok = run.wait()
            >>> run.turn
            3
        """
        control = self._check_process()
        control.break_when(None if condition is None else self._telemetry.breakpoint(condition))

    def live_values(self) -> dict[str, LiveValues]:
        """Return copies of the values that the run holds between two iterations, by the names of their tensors.

        These are the values that later iterations, or the outputs, read. The run's thread copies them: of a
        paused run at once, otherwise at the end of the current iteration.

        Returns:
            For each tensor, its points and the value at each of them.

        Raises:
            ExecutionError: The run has ended, or its outermost loop has an unknown number of iterations.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> with program.start(paused=True) as run:
            ...     run.step(3)
            ...     ok = run.wait()
            ...     values = run.live_values()
            >>> values["return"].points.ravel().tolist(), values["return"].values.shape
            ([0, 1, 2], (3,))
        """
        self._check_process()
        return self._telemetry.live_values()

    def call_on_run(self, function: Callable[[RunProtocol, int], T]) -> T:
        """Call a function of the run and its completed iterations on the run's thread, between two iterations.

        Args:
            function: Must not change the run, nor keep references to its arrays.

        Raises:
            ExecutionError: The run has ended.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> with program.start(paused=True) as run:
            ...     turns = run.call_on_run(lambda running, turn: turn)
            >>> turns
            0
        """
        self._check_process()
        return self._telemetry.call_on_run(function)

    def _check_process(self) -> RunControl:
        """Return the control of the run.

        Raises:
            ExecutionError: The run belongs to the parent process, of which this process is a fork.
        """
        if not self._control.ended.is_set():
            check_process()
        return self._control

    # --- looking ---------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """State of the run: `running`, `paused`, `stopped`, `finished`, `failed`, or `pending <command>`."""
        return self._control.state

    @property
    def turn(self) -> int:
        """Number of completed turns."""
        return self._control.turn

    @property
    def turns(self) -> int | None:
        """Total number of turns; None if the program does not determine it."""
        return self._turns

    @property
    def error(self) -> BaseException | None:
        """Exception that ended the run; None if it has not failed."""
        return self._run_thread.take_error()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run is paused or has ended.

        Args:
            timeout: Maximum time in seconds; None for no limit.

        Returns:
            False if the time is over before the run pauses or ends.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> run = program.start(paused=True)
            >>> run.wait(timeout=60.0)
            True
            >>> run.stop()
        """
        return self._check_process().wait(timeout)

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the end of the run, and return its results.

        `result()` of a stopped run returns partial results: outputs and parameters as of the last
        completed turn. Absent are outputs that are computed after the last turn, or from values of turns
        that did not run. An interrupt (Ctrl-C) stops the run, as `stop` does.

        Args:
            timeout: Maximum time in seconds; None for no limit.

        Returns:
            The results.

        Raises:
            TimeoutError: The run has not ended after `timeout` seconds. It continues.
            ExecutionError: The run is paused, and no timeout limits the wait.
            BaseException: The run failed; this is its exception.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> program.start().result()["return"].shape
            (40,)
        """
        try:
            control = self._check_process()
            if timeout is None and self.state == "paused":
                raise ExecutionError(
                    f"the run is paused after {format_count(self.turn, 'turn')}, so it does not end.",
                    hint="call resume() or stop() first, or pass a timeout.",
                )
            if not control.ended.wait(timeout):
                raise TimeoutError(f"the run has not ended within {timeout} s: {self!r}")
            return self._run_thread.result()
        except KeyboardInterrupt:
            self._control.stop()
            self._control.ended.wait(_GRACE)
            raise

    def so_far(self) -> Result:
        """Return the partial results of a failed run.

        They are the outputs and parameters as of the last completed turn. The turn that failed may have
        overwritten some of them: these are absent, and a warning lists them. For a run that did not fail,
        this method returns the same as `result`.

        Raises:
            ExecutionError: The run has not ended, or the turn that failed has overwritten everything.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> run = program.start()
            >>> run.wait()
            True
            >>> run.so_far()["return"].shape
            (40,)
        """
        if not self._control.ended.is_set():
            raise ExecutionError(
                f"the run is {self.state}, and partial results exist only after its end.",
                hint="call stop(), then result().",
            )
        return self._run_thread.so_far()

    def frames(self) -> Iterator[Frame]:
        """Iterate over frames of the run, at most 15 per second, until it ends.

        A slow consumer misses frames in between, but never the last one.

        Returns:
            An iterator of frames.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> [frame.state for frame in program.start().frames()][-1]
            'finished'
        """
        self._check_process()
        return self._frames()

    def _frames(self) -> Iterator[Frame]:
        yield from self._telemetry.frames()  # the generator refers to the handle: the run continues

    def on_frame(self, listener: Callable[[Frame], object]) -> Callable[[], None]:
        """Call a function with every frame, on a background thread.

        Args:
            listener: The function.

        Returns:
            A function that ends these calls.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> run, turns = program.start(), []
            >>> end = run.on_frame(lambda frame: turns.append(frame.turn))
            >>> result = run.result()
            >>> end()
        """
        return self._telemetry.listen(listener)

    @property
    def latest(self) -> Frame | None:
        """The newest frame; None if no frame was ever requested."""
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
        waits = self._run_thread.compiling
        if waits is not None:
            parts += [compiling_text(waits)]
        if (frame := self.latest) is not None:
            if waits is None:
                parts += [f"{frame.turns_per_second:.3g} turns/s"]
            parts += [f"{n} = {c.values[-1]:.4g}" for n, c in frame.curves.items() if len(c)]
        return f"Running({', '.join(parts)})"


def _abandon(control: RunControl) -> None:
    """End a run whose handle is gone."""
    try:
        if not is_forked():  # the run belongs to the parent process
            control.stop()
    except BaseException:  # an interrupt; Python ignores exceptions of a finaliser
        control.stop()
        raise
