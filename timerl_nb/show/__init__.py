"""Pictures of artifacts: static SVG that needs no script, and plotly figures (`trl.show`)."""

from timerl_nb.show.compare import side_by_side
from timerl_nb.show.figures import iteration_space, learning_curves, memory_timeline
from timerl_nb.show.graph import GraphView, graph_view
from timerl_nb.show.layout import layout_svg
from timerl_nb.show.pictures import register

register()

__all__ = [
    "GraphView",
    "graph_view",
    "iteration_space",
    "layout_svg",
    "learning_curves",
    "memory_timeline",
    "side_by_side",
]
