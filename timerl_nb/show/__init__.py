"""View-models, pictures and figures of programs, runs and recordings (`trl.show`).

A view-model (`View`) holds the data of one view as plain values: notebook widgets show it, `to_svg` draws it
for static pages. Functions such as `memory_timeline` return Plotly figures.
"""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.show.artifact_renderers import register
from timerl_nb.show.comparison.argument_sweep import SweepView
from timerl_nb.show.comparison.plotly_figures import (
    iteration_space,
    learning_curves,
    memory_timeline,
    sweep,
)
from timerl_nb.show.comparison.program_comparison import ComparisonView
from timerl_nb.show.graph.graph_layout import layout_svg
from timerl_nb.show.graph.graph_view import GraphView, graph_view, laid_out
from timerl_nb.show.html_page import export_html
from timerl_nb.show.memory.memory_view import MemoryView
from timerl_nb.show.memory.store_view import StoresView
from timerl_nb.show.memory.value_view import ValuesView
from timerl_nb.show.schedule.iteration_space_view import IterationSpaceView
from timerl_nb.show.schedule.launch_timeline import LaunchView
from timerl_nb.show.schedule.loop_view import LoopView
from timerl_nb.show.schedule.points_of_one_iteration import Turn
from timerl_nb.show.side_by_side import side_by_side
from timerl_nb.show.stages.operation_costs import CostView
from timerl_nb.show.stages.operation_inspector import InspectorView
from timerl_nb.show.stages.operation_lineage import Lineage
from timerl_nb.show.stages.operation_search import Index, SearchView
from timerl_nb.show.stages.pipeline_view import PipelineView
from timerl_nb.show.stages.rewrite_steps import StepsView
from timerl_nb.show.stages.stage_outline import OutlineView, detail, source_view
from timerl_nb.show.systems.replay_figures import mapping, tree
from timerl_nb.show.systems.run_view import RunView
from timerl_nb.show.view_model import View

register()

__all__ = [
    "ComparisonView",
    "CostView",
    "GraphView",
    "Index",
    "InspectorView",
    "IterationSpaceView",
    "LaunchView",
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
    "ValuesView",
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
