"""Control of a widget's run: starts it, passes commands to it, and shows its frames."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from timerl_nb.show.systems.run_view import EarlierRun, RunView, downsample_curve
from timerl_nb.show.widget_api import Breakpoint, ExecutionError, Frame, Program, Running
from timerl_widgets.requests import Command
from timerl_widgets.run_charts import RunCharts

ENDED: Final = ("stopped", "finished", "failed")
OVERLAID: Final = 3  # earlier runs whose curves are drawn, of at most `POINTS` points each
POINTS: Final = 200
SOON: Final = 2.0  # seconds to wait for the last frame of a run that has ended


class RunController:
    """The run of a widget, at most one at a time.

    Attributes:
        running, program: the latest run and its program, or None.
        view: the view of its latest frame, or None.
        condition: the condition on which runs pause; "" for none.
    """

    def __init__(self, show: Callable[[RunView], None]) -> None:
        """Create a controller without a run; `show` receives the view of every frame, on the run's thread."""
        self._show = show
        self._speed: float | None = None
        self.condition = ""
        self._leave: Callable[[], None] | None = None
        self.running: Running | None = None
        self.program: Program | None = None
        self.view: RunView | None = None
        self._is_last = threading.Event()
        self._count = 0
        self._earlier: tuple[EarlierRun, ...] = ()

    def act(self, command: Command, program: Program) -> None:
        """Execute a command of the page; "start" runs `program`.

        Raises:
            ExecutionError: there is no run, or a run is already active.
        """
        rests = self.running is None or self.running.state in ENDED
        match command.name:
            case "start":
                self.start(program)
            case "speed":
                self._speed = command.speed
                if self.running is not None and not rests:
                    self.running.speed = command.speed
            case "pause_when":
                if command.condition is not None:
                    Breakpoint.from_text(command.condition)
                if self.running is not None and not rests:
                    self.running.pause_when(command.condition)
                self.condition = command.condition or ""
            case "step" if rests:
                self.start(program, paused=True).step()
            case name:
                getattr(self._require_run(), name)()

    def start(self, program: Program, **options: Any) -> Running:
        """Start a run, with the options of `Program.start`.

        Raises:
            ExecutionError: a run is active.
        """
        if self.running is not None and self.running.state not in ENDED:
            raise ExecutionError("a run is active.", hint="stop it first.")
        given: dict[str, Any] = {
            "speed": self._speed,
            "pause_when": self.condition or None,
            **options,
        }
        self.watch(program, program.start(**given))
        assert self.running is not None
        return self.running

    def watch(self, program: Program, running: Running) -> None:
        """Show a run of a program that may have been started elsewhere."""
        self._store_curves()
        self.detach()
        live = RunCharts(program, self._earlier)
        self.running = running
        self.program, self.view = program, None
        is_last = self._is_last = threading.Event()

        def show(frame: Frame) -> None:
            self.view = live.view(frame)
            self._show(self.view)
            if frame.state in ENDED:
                is_last.set()

        self._leave = running.on_frame(show)

    def _store_curves(self) -> None:
        """Store the curves of the last run, for comparison with the next one."""
        view = self.view
        if view is None or not view.frame.curves:
            return
        self._count += 1
        curves = {
            n: downsample_curve(one, POINTS) for n, one in view.frame.curves.items() if len(one)
        }
        self._earlier = (*self._earlier, EarlierRun(f"run {self._count}", curves))[-OVERLAID:]

    def latest(self) -> RunView | None:
        """Return the view of the latest frame; of an ended run, wait for its last frame."""
        if self.running is not None and self.running.state in ENDED:
            self._is_last.wait(SOON)
        return self.view

    def detach(self) -> None:
        """Stop showing the run, which continues."""
        if self._leave is not None:
            self._leave()
        self._leave = None

    def _require_run(self) -> Running:
        if self.running is None:
            raise ExecutionError("no run is active.", hint="start a run first.")
        return self.running
