"""`StrategiesExplorer`: measured speeds of the collection strategies for any numbers of environments and steps."""

from __future__ import annotations

from threading import Thread
from typing import Any

import traitlets

from timerl_nb.show.systems.collection_strategies import StrategiesView
from timerl_nb.show.widget_api import Collector, OptionError, TimeRLError, expect_type
from timerl_widgets.bundles import module
from timerl_widgets.requests import Collect, parse
from timerl_widgets.view_messages import pack_view
from timerl_widgets.widget import Widget


class StrategiesExplorer(Widget):
    """Speeds of all collection strategies; entering other numbers measures them again.

    The collector is not affected. Measurements are cached, also for `trl.collect`.

    Attributes:
        drawn: the shown view.
        selected: the positions of the selected strategies in `drawn.rows`.
        busy: the running measurement, or "".
        problem: the error of the last measurement, else "".
    """

    _esm = module("strategies_view")
    written = frozenset({"selected"})

    view = traitlets.Dict().tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)
    busy = traitlets.Unicode("").tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)

    def __init__(self, collector: Collector) -> None:
        """Measure the strategies of a collector unless cached, and show them.

        Raises:
            CallError: the argument is not a collector.
        """
        expect_type(collector, Collector, "a collector", "trl.collect(…) gives one.")
        self._collector = collector
        self._views: dict[tuple[int, int], StrategiesView] = {}
        self._thread: Thread | None = None
        self.drawn = self._measure_view(collector.envs, collector.steps)
        super().__init__(view=pack_view(self.drawn))
        self.on_msg(self._receive)

    @traitlets.validate("selected")
    def _validate_selected(self, proposal: dict[str, Any]) -> list[int]:
        """Return valid positions without duplicates: pages are not trusted."""
        return [k for k in dict.fromkeys(proposal["value"]) if 0 <= k < len(self.drawn.rows)]

    def _measure_view(self, envs: int, steps: int) -> StrategiesView:
        if (envs, steps) not in self._views:
            strategies = self._collector.strategies_for(envs, steps)
            self._views[envs, steps] = StrategiesView.from_strategies(
                strategies, self._collector.name, envs, steps
            )
        return self._views[envs, steps]

    def _receive(self, _: Any, content: Any, buffers: Any) -> None:
        self.problem = ""  # cleared, so that a repeated error is shown again
        try:
            asked = parse(content)
            if not isinstance(asked, Collect):
                raise OptionError("the message is not a request to measure strategies.")
            if self.busy:
                raise OptionError("another measurement is running.", hint="wait for its end.")
        except TimeRLError as error:
            self.problem = str(error)
            return
        self.busy = f"measuring N = {asked.envs:,}, K = {asked.steps:,} …"
        self._thread = Thread(target=self._measure, args=(asked,), daemon=True)
        self._thread.start()

    def _measure(self, asked: Collect) -> None:
        try:
            self.drawn = self._measure_view(asked.envs, asked.steps)
            self.view, self.problem = pack_view(self.drawn), ""
        except Exception as error:  # errors of the environments are shown to the user
            self.problem = str(error)
        finally:
            self.busy = ""

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until no measurement is running, and return whether that is so."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return not self.busy
