"""Pictures and view-models of artifacts: static SVG that needs no script, values that a page draws,
and plotly figures (`trl.show`)."""

from timerl_nb.entry_points import register_entry_point
from timerl_nb.frontend.foreign import module_names as _module_names
from timerl_nb.show.compare import side_by_side
from timerl_nb.show.comparison import ComparisonView
from timerl_nb.show.figures import iteration_space, learning_curves, memory_timeline, sweep
from timerl_nb.show.graph import GraphView, graph_view, laid_out
from timerl_nb.show.inspector import InspectorView
from timerl_nb.show.layout import layout_svg
from timerl_nb.show.lineage import Lineage
from timerl_nb.show.loop import LoopView
from timerl_nb.show.memory import MemoryView
from timerl_nb.show.outline import OutlineView, detail, source_view
from timerl_nb.show.page import export_html
from timerl_nb.show.pipeline import PipelineView
from timerl_nb.show.register import register
from timerl_nb.show.replay_figures import mapping, tree
from timerl_nb.show.run import RunView
from timerl_nb.show.search import Index, SearchView
from timerl_nb.show.space import IterationSpaceView
from timerl_nb.show.steps import StepsView
from timerl_nb.show.stores import StoresView
from timerl_nb.show.sweeping import SweepView
from timerl_nb.show.turn import Turn
from timerl_nb.show.view import View

register()
register_entry_point("program.export_html", export_html)

__all__ = [
    "ComparisonView",
    "GraphView",
    "Index",
    "InspectorView",
    "IterationSpaceView",
    "Lineage",
    "LoopView",
    "MemoryView",
    "OutlineView",
    "PipelineView",
    "RunView",
    "SearchView",
    "StepsView",
    "StoresView",
    "SweepView",
    "Turn",
    "View",
    "detail",
    "export_html",
    "graph_view",
    "iteration_space",
    "laid_out",
    "layout_svg",
    "learning_curves",
    "mapping",
    "memory_timeline",
    "side_by_side",
    "source_view",
    "sweep",
    "tree",
]

__getattr__, __dir__ = _module_names("trl.show", lambda: __all__)
