"""Graph layout: Graphviz, from the wheel that brings it, behind one function."""

from __future__ import annotations

import re
from functools import lru_cache

import pygraphviz


@lru_cache(maxsize=64)
def layout_svg(dot: str) -> str:
    """The picture of a Graphviz graph as one `<svg>` element, with a background and no script."""
    drawn = pygraphviz.AGraph(string=dot).draw(format="svg", prog="dot")
    text = drawn.decode("utf-8") if isinstance(drawn, bytes) else str(drawn)
    start = text.index("<svg")
    return re.sub(r"<!--.*?-->\n?", "", text[start:], flags=re.S)
