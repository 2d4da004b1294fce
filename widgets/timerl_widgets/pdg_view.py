"""`PdgView`: an interactive dependence graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from timerl_nb.show import GraphView, graph_view, laid_out
from timerl_nb.show.widget_api import DrawingError, Pdg, Program, format_count
from timerl_widgets.bundles import module
from timerl_widgets.widget import Widget


class PdgView(Widget):
    """Dependence graph. Clicks and keys change `selected`.

    Attributes:
        selected: the ids of the selected operations; assign to select from Python.
        graph: the shown view, including folded clusters.
        svg: its picture.
    """

    _esm = module("pdg_view")
    written = frozenset({"selected"})

    view = traitlets.Dict().tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)
    graph: GraphView
    svg: str
    height = traitlets.Int(480).tag(sync=True)

    def __init__(self, graph: Pdg | Program | GraphView, **options: Any) -> None:
        """Show a graph, a program's graph as written, or a view created by `graph_view`."""
        self.graph, self.svg = laid_out(_viewed(graph))
        super().__init__(view=self._model(), **options)
        self.on_msg(self._handle_message)

    def show(self, graph: Pdg | Program | GraphView) -> None:
        """Show another graph; the page marks added, removed and changed operations.

        Manually opened and folded clusters keep their state.
        """
        before = self.svg
        self.graph, self.svg = laid_out(_viewed(graph).as_in(self.graph))
        self.view = self._model("the previous graph" if self.svg != before else "the same graph")

    def _draw(self, view: GraphView) -> None:
        self.graph, self.svg = laid_out(view)
        self.view = self._model()

    def _model(self, against: str = "") -> dict[str, Any]:
        return {**self.graph.to_json(), "svg": self.svg, "against": against}

    def _handle_message(self, _: object, message: Any, __: object) -> None:
        """Open or fold a cluster on request of the page; messages are validated because pages are not trusted."""
        match message:
            case {"kind": "fold", "id": str(key), "folded": bool(folded)}:
                try:
                    self._draw(self.graph.fold(key) if folded else self.graph.unfold(key))
                except DrawingError:  # a cluster of a previous graph
                    self.send({"kind": "refused", "request": "fold"})

    @traitlets.validate("selected")
    def _validate_selected(self, proposal: dict[str, Any]) -> list[int]:
        """Return the operations of the graph without duplicates: pages are not trusted."""
        known = {op_id for node in self.graph.nodes for op_id in node.op_ids}
        return [op_id for op_id in dict.fromkeys(proposal["value"]) if op_id in known]

    def _shown_as(self) -> tuple[str, Callable[[], str]]:
        return f"PdgView({format_count(len(self.graph.nodes), 'node')})", lambda: self.svg


def _viewed(graph: Pdg | Program | GraphView) -> GraphView:
    if isinstance(graph, Program):
        return graph_view(graph.pdg, bounds=graph.bounds)
    return graph if isinstance(graph, GraphView) else graph_view(graph)
