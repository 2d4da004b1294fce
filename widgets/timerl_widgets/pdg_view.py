"""`PdgView`: a dependence graph to click on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from timerl_nb.ir.pdg import Pdg
from timerl_nb.program import Program
from timerl_nb.show import GraphView, graph_view, layout_svg


class PdgView(anywidget.AnyWidget):
    """A dependence graph: click a node, or move with the keyboard, and `selected` follows.

    Attributes:
        selected: the keys of the selected nodes; set it to select from Python.
        selected_ops: the operation ids behind them.
    """

    _esm = Path(__file__).parent / "pdg_view.js"
    _css = Path(__file__).parent / "pdg_view.css"

    svg = traitlets.Unicode("").tag(sync=True)
    view = traitlets.Dict().tag(sync=True)
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    height = traitlets.Int(480).tag(sync=True)

    def __init__(self, graph: Pdg | Program | GraphView, **options: Any) -> None:
        """Show a graph, a program's graph as written, or a view made by `graph_view`."""
        if isinstance(graph, Program):
            graph = graph.pdg
        self.graph = graph_view(graph) if isinstance(graph, Pdg) else graph
        super().__init__(svg=layout_svg(self.graph.to_dot()), view=self.graph.to_json(), **options)

    @traitlets.validate("selected")
    def _known(self, proposal: dict[str, Any]) -> list[str]:
        """Only keys of nodes, each once: what a page sends is data, not to be trusted."""
        known = {node.key for node in self.graph.nodes}
        return [key for key in dict.fromkeys(proposal["value"]) if key in known]

    @property
    def selected_ops(self) -> list[int]:
        chosen = set(self.selected)
        return [op for node in self.graph.nodes if node.key in chosen for op in node.op_ids]

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The live widget, and the same picture as SVG for pages where nothing runs."""
        made = super()._repr_mimebundle_(**options)
        bundle, metadata = made if isinstance(made, tuple) else (made or {}, {})
        text = f"PdgView({len(self.graph.nodes)} nodes)"
        return {**bundle, "text/plain": text, "image/svg+xml": self.svg}, metadata
