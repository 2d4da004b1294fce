"""`StreamView`: what ran on which stream, stepped by completion."""

from __future__ import annotations

from typing import Any

import traitlets

from timerl_nb.show.systems import stream_view
from timerl_nb.show.widget_api import Report
from timerl_widgets.bundles import module
from timerl_widgets.packed import packed
from timerl_widgets.widget import Widget


class StreamView(Widget):
    """Runs of a stream under each other: lanes, the window's slots, and what it held when so many kernels had completed.

    Attributes:
        selected: the places in the stream of the kernels that are chosen; those that they waited for are outlined.
        step: how many kernels of the last run have completed at the moment that is shown.
    """

    _esm = module("stream_view")
    written = frozenset({"selected", "step"})

    view = traitlets.Dict().tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)

    def __init__(self, *reports: Report, name: str = "") -> None:
        """Show what windows, graphs and runs in order report, one or several of the same stream.

        Raises:
            CallError: one is no report.
        """
        self.drawn = stream_view.StreamView.from_reports(*reports, name=name)
        self._kernels = {one.kernel for run in self.drawn.runs for one in run.launches}
        super().__init__(view=packed(self.drawn))

    @traitlets.validate("selected")
    def _validate_selected(self, proposal: dict[str, Any]) -> list[int]:
        """Kernels that are drawn, each once: what a page sends is not to be trusted."""
        return [k for k in dict.fromkeys(proposal["value"]) if k in self._kernels]

    @traitlets.validate("step")
    def _validate_step(self, proposal: dict[str, Any]) -> int:
        last = self.drawn.runs[-1].launches if self.drawn.runs else ()
        return min(max(proposal["value"], 0), len(last))
