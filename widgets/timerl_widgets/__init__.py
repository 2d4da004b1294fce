"""Notebook widgets of TimeRL-nb, drawn from the view-models of `timerl_nb.show`."""

from timerl_nb.show.widget_api import register_entry_point
from timerl_widgets.explorer import Explorer
from timerl_widgets.panes import IterationSpaceView, LoopView, MemoryTimeline
from timerl_widgets.pdg_view import PdgView
from timerl_widgets.run_monitor import RunMonitor

register_entry_point("program.explore", Explorer)

__all__ = ["Explorer", "IterationSpaceView", "LoopView", "MemoryTimeline", "PdgView", "RunMonitor"]
