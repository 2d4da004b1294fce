"""`StreamView`: runs of a kernel stream, stepped by completed kernels."""

from __future__ import annotations

from typing import Any

import traitlets

from timerl_nb.show.systems import stream_view
from timerl_nb.show.widget_api import Report
from timerl_widgets.bundles import module
from timerl_widgets.view_messages import pack_view
from timerl_widgets.widget import Widget


class StreamView(Widget):
    """Runs of a kernel stream below each other: tracks, slots of the window, and its contents after a number of
    completions.

    Attributes:
        selected: the positions of the selected kernels in the stream; their dependences are outlined.
        step: the number of completed kernels of the last run at the shown moment.
    """

    _esm = module("stream_view")
    written = frozenset({"selected", "step"})

    view = traitlets.Dict().tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)

    def __init__(self, *reports: Report, name: str = "") -> None:
        """Show the reports of one or several runs of the same stream.

        Raises:
            CallError: an argument is not a report.
        """
        self.drawn = stream_view.StreamView.from_reports(*reports, name=name)
        self._kernels = {one.kernel for run in self.drawn.runs for one in run.launches}
        super().__init__(view=pack_view(self.drawn))

    @traitlets.validate("selected")
    def _validate_selected(self, proposal: dict[str, Any]) -> list[int]:
        """Return the drawn kernels without duplicates: pages are not trusted."""
        return [k for k in dict.fromkeys(proposal["value"]) if k in self._kernels]

    @traitlets.validate("step")
    def _validate_step(self, proposal: dict[str, Any]) -> int:
        last = self.drawn.runs[-1].launches if self.drawn.runs else ()
        return min(max(proposal["value"], 0), len(last))
