"""Work of a program's thread, from the first iteration to the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from timerl_nb.base.errors import ExecutionError, warn
from timerl_nb.base.text_formatting import format_count
from timerl_nb.execution.control.pause_and_stop import RunControl, Stopped
from timerl_nb.execution.control.thread_lifecycle import RunThread
from timerl_nb.execution.logging.run_logger import RunLog
from timerl_nb.execution.results.run_result import Acting, Result
from timerl_nb.execution.telemetry.program_live_frames import Telemetry, Watched
from timerl_nb.runtime.output_assembly import Outputs
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.run_progress import SoFar


class ProgramThread(RunThread):
    """Run of a program.

    Args:
        control: Commands to the run.
        run: The run, not started yet.
        watched: Program as seen by telemetry.
        outputs: Names of the outputs to return; all by default.
        telemetry: Source of the frames.
        acting: Context and bounds of the program, needed by `Result.policy`.
        at_end: Called after the last iteration, unless the run was stopped.
        over: Called after the run, also if it failed.
        log: Log of the run.
    """

    def __init__(
        self,
        control: RunControl,
        run: RunProtocol,
        watched: Watched,
        outputs: Sequence[str] | None,
        telemetry: Telemetry,
        acting: Acting | None = None,
        at_end: Callable[[], None] = lambda: None,
        over: Callable[[], None] = lambda: None,
        log: RunLog | None = None,
    ) -> None:
        super().__init__(control)
        self._run, self._watched, self._names = run, watched, outputs
        self._telemetry, self._acting = telemetry, acting
        self._at_end, self._over, self._log = at_end, over, log
        self._lost_outputs: dict[str, str] = {}

    def so_far(self) -> Result:
        error = self.take_error()
        if error is None:
            return self.result()
        left, turns, lost = self._result, self._control.turn, self._lost_outputs
        said = [
            f"{why}: {', '.join(name for name in lost if lost[name] == why)}"
            for why in dict.fromkeys(lost.values())
        ]
        if left is None or (lost and not left and not left.parameters):
            raise ExecutionError(
                f"no results are left after {format_count(turns, 'turn')}.",
                evidence=said,
                hint="save states with start(checkpoint=folder, every=...), and resume from the last one.",
            ) from error
        if lost:
            warn(f"some results are missing after {format_count(turns, 'turn')}; {'; '.join(said)}")
        return left

    @property
    def _progress_so_far(self) -> SoFar:
        return SoFar(self._watched.progress, self._control.turn)

    @property
    def compiling(self) -> float | None:
        return None if self._control.ended.is_set() else self._run.compiling

    def _run_through(self) -> str:
        start, state = time.perf_counter(), "finished"
        try:
            try:
                if self._log is not None:
                    self._log.attach(self._run)
                self._control.enter()
                self._run.complete()
                self._at_end()
                values = self._run.outputs(self._names)
            except Stopped:
                state = "stopped"
                values = self._run.so_far(self._progress_so_far, self._names)
            if self._log is not None:
                self._log.finish(values, state)
            self._result = self._make_result(values, start)
            self._telemetry.finish(values)
        except BaseException as error:  # `result()` raises it
            state = "failed"
            self._store_error(error)
            self._telemetry.error = str(error)
            if self._log is not None:
                self._log.fail(error)
            try:
                values = self._run.so_far(self._progress_so_far, self._names, self._lost_outputs)
                self._result = self._make_result(values, start, error)
            except Exception as why:
                self._lost_outputs = {"all": str(why)}
            self._run.release(error)
        finally:
            self._over()
        return state

    def _make_result(
        self, values: Outputs, start: float, error: BaseException | None = None
    ) -> Result:
        seconds, along = time.perf_counter() - start, self._watched.stacked_over
        return Result.from_run(self._run, values, seconds, self._acting, error, along)
