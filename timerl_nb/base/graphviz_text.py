"""Writer of Graphviz text with the fonts, shapes and colours of the project."""

from __future__ import annotations

from graphviz import Digraph, escape

FONT = "DejaVu Sans"  # Graphviz knows its widths, and its wide glyphs leave space for other fonts.
# Okabe-Ito colours, lightened. Shapes differ too, so colour is never the only distinction.
SOURCE, CONTROL, SINK, FUSED, PLAIN = "#dfeef8", "#fbe9c6", "#f6d3c1", "#d3ecdf", "#f2f2f2"
STROKE = "#777777"
_QUICK = {"nslimit": "2", "nslimit1": "2", "mclimit": "0.5", "splines": "polyline"}


class Dot:
    """A directed graph under construction. Labels are plain text, without markup.

    Args:
        name: the graph's name.
        rankdir: the direction of edges: "TB" is top to bottom.
        level: rank the nodes of all clusters together. Cycles of few nodes become clearer; large graphs
            become higher.
        many: use a layout of lower quality in a third of the time.
    """

    def __init__(
        self, name: str, *, rankdir: str = "TB", level: bool = False, many: bool = False
    ) -> None:
        look = {"rankdir": rankdir, "fontname": FONT, "newrank": str(level).lower()}
        look |= _QUICK if many else {}
        self._root = Digraph(name, graph_attr=look)
        self._root.attr(
            "node",
            style="filled,rounded",
            color=STROKE,
            fontname=FONT,
            fontsize="10",
            margin="0.16,0.06",
        )
        self._root.attr("edge", color=STROKE, fontname=FONT, fontsize="9", arrowsize="0.7")
        self._open: list[Digraph] = [self._root]
        self._clusters = 0

    def node(
        self, key: str, label: str, *, fill: str = PLAIN, shape: str = "box", element: str = ""
    ) -> None:
        """Add a node; `element` is the id of its SVG element."""
        named = {"id": element} if element else {}
        self._open[-1].node(key, escape(label), fillcolor=fill, shape=shape, **named)

    def edge(
        self, tail: str, head: str, label: str = "", *, element: str = "", dashed: bool = False
    ) -> None:
        named = {"id": element} if element else {}
        named |= {"style": "dashed"} if dashed else {}
        beside = "\n".join(f" {line} " for line in label.split("\n")) if label else ""
        self._root.edge(tail, head, label=escape(beside), **named)

    def open_cluster(self, label: str, *, style: str = "", element: str = "") -> None:
        """Open a box around the nodes that follow, until `close_cluster`.

        Args:
            label: the title of the box.
            style: outline: "bold", "dashed", or "" for a thin line.
            element: the id of its SVG element.
        """
        self._clusters += 1
        look = {"label": escape(label), "color": STROKE} | ({"id": element} if element else {})
        cluster = Digraph(f"cluster_{self._clusters}", graph_attr=look)
        cluster.attr(fontname=FONT, fontsize="11", style=f"rounded,{style}".rstrip(","))
        self._open.append(cluster)

    def close_cluster(self) -> None:
        cluster = self._open.pop()
        self._open[-1].subgraph(cluster)

    def __str__(self) -> str:
        return self._root.source
