"""`PdgView`: a dependence graph to click on."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from timerl_nb.ir.pdg import Pdg
from timerl_nb.program import Program
from timerl_nb.show import GraphView, graph_view, layout_svg
from timerl_widgets.bundles import module


class PdgView(anywidget.AnyWidget):
    """A dependence graph: click a node, or move with the keyboard, and `selected` follows.

    Attributes:
        selected: the ids of the selected operations; set it to select from Python.
    """

    _esm = module("pdg_view")

    view = traitlets.Dict().tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)
    height = traitlets.Int(480).tag(sync=True)

    def __init__(self, graph: Pdg | Program | GraphView, **options: Any) -> None:
        """Show a graph, a program's graph as written, or a view made by `graph_view`."""
        if isinstance(graph, Program):
            graph = graph.pdg
        self.graph = graph_view(graph) if isinstance(graph, Pdg) else graph
        self.svg = layout_svg(self.graph.to_dot())
        super().__init__(view={**self.graph.to_json(), "svg": self.svg}, **options)

    @traitlets.validate("selected")
    def _known(self, proposal: dict[str, Any]) -> list[int]:
        """Only operations of the graph, each once: what a page sends is data, not to be trusted."""
        known = {op_id for node in self.graph.nodes for op_id in node.op_ids}
        return [op_id for op_id in dict.fromkeys(proposal["value"]) if op_id in known]

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The live widget, and the same picture as SVG for pages where nothing runs."""
        made = super()._repr_mimebundle_(**options)
        bundle, metadata = made if isinstance(made, tuple) else (made or {}, {})
        text = f"PdgView({len(self.graph.nodes)} nodes)"
        return {**bundle, "text/plain": text, "image/svg+xml": self.svg}, metadata
