"""Graphviz text with the project's look: one place for fonts, shapes, colours and escaping."""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

from graphviz import Digraph, escape

FONT = "DejaVu Sans"  # Graphviz knows its widths; it is wide, so that other fonts fit
# Okabe-Ito colours, lightened; what they tell apart is told apart by shape as well.
SOURCE, CONTROL, SINK, FUSED, PLAIN = "#dfeef8", "#fbe9c6", "#f6d3c1", "#d3ecdf", "#f2f2f2"
_QUICK = {"nslimit": "2", "nslimit1": "2", "mclimit": "0.5", "splines": "polyline"}


class Dot:
    """A directed graph being written; labels are text, never markup.

    `level` ranks all nodes alike, in clusters or not: few nodes on cycles are then clearer, and many
    higher. `many` gives up some beauty for a layout in a third of the time.
    """

    def __init__(
        self, name: str, *, rankdir: str = "TB", level: bool = False, many: bool = False
    ) -> None:
        look = {"rankdir": rankdir, "fontname": FONT, "newrank": str(level).lower()}
        look |= _QUICK if many else {}
        self._root = Digraph(name, graph_attr=look)
        self._root.attr(
            "node", style="filled,rounded", fontname=FONT, fontsize="10", margin="0.16,0.06"
        )
        self._root.attr("edge", fontname=FONT, fontsize="9")
        self._open: list[Digraph] = [self._root]

    def node(
        self, key: str, label: str, *, fill: str = PLAIN, shape: str = "box", element: str = ""
    ) -> None:
        """A node; `element` is the id of its element in pictures."""
        named = {"id": element} if element else {}
        self._open[-1].node(key, escape(label), fillcolor=fill, shape=shape, **named)

    def edge(self, tail: str, head: str, label: str = "") -> None:
        self._root.edge(tail, head, label=escape(label))

    def open_cluster(self, label: str) -> None:
        """Let the nodes that follow stand in a box of that name, until `close_cluster`."""
        name = f"cluster_{len(self._root.body)}_{len(self._open)}"
        cluster = Digraph(name, graph_attr={"label": escape(label), "color": "#999999"})
        cluster.attr(fontname=FONT, fontsize="11", style="rounded")
        self._open.append(cluster)

    def close_cluster(self) -> None:
        cluster = self._open.pop()
        self._open[-1].subgraph(cluster)

    def __str__(self) -> str:
        return self._root.source
