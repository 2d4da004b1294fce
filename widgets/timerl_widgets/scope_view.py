"""`ScopeView`: a recording with zoomable tracks, optionally linked with an explorer."""

from __future__ import annotations

from typing import Any

import traitlets

from timerl_nb.show.recording.recording_view import with_stretches
from timerl_nb.show.widget_api import OptionError, Recorded, TimeRLError, expect_type
from timerl_widgets.bundles import module
from timerl_widgets.explorer import Explorer
from timerl_widgets.requests import Zoom, parse
from timerl_widgets.view_messages import NOTHING, pack_view
from timerl_widgets.widget import Widget


class ScopeView(Widget):
    """Time breakdown of a recording. A click on an operation marks it in all parts.

    Attributes:
        selected: the ids of the selected operations of a compiled program.
        operation: the name of the selected operation, or "".
        problem: the error of the last time window, else "".
    """

    _esm = module("scope_view")
    written = frozenset({"selected", "operation"})

    view = traitlets.Dict().tag(sync=True)
    stretch = traitlets.Dict().tag(sync=True)
    lineage = traitlets.Dict().tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)
    operation = traitlets.Unicode("").tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)

    def __init__(self, recording: Recorded, explorer: Explorer | None = None) -> None:
        """Show a recording.

        Args:
            recording: the recording.
            explorer: the explorer of the recorded program; both share the selection.

        Raises:
            CallError: an argument is not a recording or not an explorer.
        """
        expect_type(recording, Recorded, "a recording", "trl.scope.read(folder) gives one.")
        if explorer is not None:
            expect_type(explorer, Explorer, "an explorer", "program.explore() gives one.")
        self.drawn, self._stretches = with_stretches(recording.read())
        launches = [one.op_ids for one in self.drawn.operations]
        self._ids = frozenset(op_id for op_ids in launches for op_id in op_ids)
        self._explorer = explorer
        super().__init__(view=pack_view(self.drawn), stretch=NOTHING, lineage=NOTHING)
        self.on_msg(self._receive)
        if explorer is not None:
            traitlets.link((explorer, "selected"), (self, "selected"))
            traitlets.dlink((explorer, "lineage"), (self, "lineage"))

    @traitlets.validate("selected")
    def _validate_selected(self, proposal: dict[str, Any]) -> list[int]:
        """Return the operations of launches without duplicates; an explorer validates the ids itself."""
        ids = dict.fromkeys(proposal["value"])
        return [k for k in ids if self._explorer is not None or k in self._ids]

    @traitlets.validate("operation")
    def _validate_operation(self, proposal: dict[str, Any]) -> str:
        name = proposal["value"]
        return name if any(one.name == name for one in self.drawn.operations) else ""

    def _receive(self, _: Any, content: Any, buffers: Any) -> None:
        try:
            asked = parse(content)
            if not isinstance(asked, Zoom):
                raise OptionError("the message is not a time window of the recording.")
            shown = self._stretches.view(asked.begin, asked.end, asked.width, asked.process)
            self.stretch, self.problem = pack_view(shown), ""
        except TimeRLError as error:
            self.problem = str(error)
