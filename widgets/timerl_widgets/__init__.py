"""Notebook widgets of TimeRL-nb, drawn from the view-models of `timerl_nb.show`."""

from typing import Any

from timerl_widgets.explorer import Explorer
from timerl_widgets.magic import load
from timerl_widgets.mapping_explorer import MappingExplorer
from timerl_widgets.pdg_view import PdgView
from timerl_widgets.run_monitor import RunMonitor
from timerl_widgets.scope_view import ScopeView
from timerl_widgets.single_panes import IterationSpaceView, LoopView, MemoryTimeline
from timerl_widgets.strategies_explorer import StrategiesExplorer
from timerl_widgets.stream_view import StreamView

__all__ = [
    "Explorer",
    "IterationSpaceView",
    "LoopView",
    "MappingExplorer",
    "MemoryTimeline",
    "PdgView",
    "RunMonitor",
    "ScopeView",
    "StreamView",
    "StrategiesExplorer",
]


def load_ipython_extension(shell: Any) -> None:
    """Register the cell magic `%%scope`; called by `%load_ext timerl_widgets`."""
    load(shell)
