"""`RunMonitor`: a run with its controls, figures and learning curves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from timerl_nb.show import RunView
from timerl_nb.show.widget_api import (
    OptionError,
    Program,
    Running,
    TimeRLError,
    a_program,
    draw_text,
    expect_type,
)
from timerl_widgets.bundles import module
from timerl_widgets.requests import Command, parse
from timerl_widgets.run_controller import RunController
from timerl_widgets.view_messages import pack_view
from timerl_widgets.widget import Widget


class RunMonitor(Widget):
    """Control and display of a program's run: start, pause, step, stop, and live curves.

    Attributes:
        running: the run, or None.
        problem: the error of the last command, else "".
    """

    _esm = module("run_monitor")

    run = traitlets.Dict().tag(sync=True)
    acknowledged = traitlets.Int(0).tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)

    def __init__(self, program: Program, running: Running | None = None) -> None:
        """Show a run of a program, or let the page start one."""
        self._program = a_program(program)
        if running is not None:
            expect_type(running, Running, "a run", "program.start() gives one.")
        self._run_controller = RunController(self._show)
        super().__init__()
        self.on_msg(self._receive)
        if running is not None:
            self._run_controller.watch(program, running)

    @property
    def running(self) -> Running | None:
        return self._run_controller.running

    def start(self, **options: Any) -> Running:
        """Run the program, with the options of `Program.start`."""
        return self._run_controller.start(self._program, **options)

    def close(self) -> None:
        """Close the widget; an active run continues."""
        if "_run_controller" in vars(self):  # the constructor has completed
            self._run_controller.detach()
        super().close()

    def _show(self, view: RunView) -> None:
        self.run = pack_view(view)

    def _receive(self, _: Any, content: Any, buffers: Any) -> None:
        try:
            request = parse(content)
            if not isinstance(request, Command):
                raise OptionError("the message is not a command for a run.")
            self.acknowledged = max(self.acknowledged, request.number)
            self._run_controller.act(request, self._program)
            self.problem = ""
        except TimeRLError as error:
            self.problem = str(error)

    def _shown_as(self) -> tuple[str, Callable[[], str]]:
        view = self._run_controller.latest()
        if view is None:
            bounds = ", ".join(f"{name} = {n}" for name, n in self._program.bounds.items())
            text = f"RunMonitor({bounds}): the run had not started"
            return text, lambda: draw_text(text)
        return f"RunMonitor: {view}", view.to_svg
