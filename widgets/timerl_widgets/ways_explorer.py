"""`WaysExplorer`: the ways of collecting, measured for whatever numbers of environments and steps are asked for."""

from __future__ import annotations

from threading import Thread
from typing import Any

import traitlets

from timerl_nb.show.systems.collection_strategies import WaysView
from timerl_nb.show.widget_api import Collector, OptionError, TimeRLError, expect_type
from timerl_widgets.bundles import module
from timerl_widgets.packed import packed
from timerl_widgets.requests import Collect, parse
from timerl_widgets.widget import Widget


class WaysExplorer(Widget):
    """How fast each way collects: type other numbers, and all ways are measured for them.

    The collector goes on as it was. What was measured is remembered, here and by `trl.collect`.

    Attributes:
        drawn: what is shown.
        busy: what is being measured; empty where nothing is.
        problem: why the last numbers could not be measured; empty where they were.
    """

    _esm = module("ways_view")

    view = traitlets.Dict().tag(sync=True)
    busy = traitlets.Unicode("").tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)

    def __init__(self, collector: Collector) -> None:
        """Measure the ways of a collector, if that was not done, and show them.

        Raises:
            CallError: it is no collector.
        """
        expect_type(collector, Collector, "a collector", "trl.collect(…) gives one.")
        self._collector = collector
        self._known: dict[tuple[int, int], WaysView] = {}
        self._thread: Thread | None = None
        self.drawn = self._measure_view(collector.envs, collector.steps)
        super().__init__(view=packed(self.drawn))
        self.on_msg(self._receive)

    def _measure_view(self, envs: int, steps: int) -> WaysView:
        if (envs, steps) not in self._known:
            ways = self._collector.ways_for(envs, steps)
            self._known[envs, steps] = WaysView.from_strategies(
                ways, self._collector.name, envs, steps
            )
        return self._known[envs, steps]

    def _receive(self, _: Any, content: Any, buffers: Any) -> None:
        self.problem = ""  # the same problem twice is told twice
        try:
            asked = parse(content)
            if not isinstance(asked, Collect):
                raise OptionError("ways take numbers of environments and steps alone.")
            if self.busy:
                raise OptionError("others are being measured.", hint="wait for their end.")
        except TimeRLError as error:
            self.problem = str(error)
            return
        self.busy = f"measuring N = {asked.envs:,}, K = {asked.steps:,} …"
        self._thread = Thread(target=self._measure, args=(asked,), daemon=True)
        self._thread.start()

    def _measure(self, asked: Collect) -> None:
        try:
            self.drawn = self._measure_view(asked.envs, asked.steps)
            self.view, self.problem = packed(self.drawn), ""
        except Exception as error:  # whatever environments raise is the reader's to see
            self.problem = str(error)
        finally:
            self.busy = ""

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until nothing is being measured; returns whether that is so."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return not self.busy
