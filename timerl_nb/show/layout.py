"""Graph layout: Graphviz, from the wheel that brings it, behind one function."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import pygraphviz


@lru_cache(maxsize=64)
def layout_svg(dot: str) -> str:
    """The picture of a Graphviz graph as one `<svg>` element, with a background and no script."""
    graph = pygraphviz.AGraph(string=dot)
    with _quiet_libraries():
        drawn = graph.draw(format="svg", prog="dot")
    text = drawn.decode("utf-8") if isinstance(drawn, bytes) else str(drawn)
    return re.sub(r"<!--.*?-->\n?", "", text[text.index("<svg") :], flags=re.S)


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Keep the font libraries' remarks about the machine's configuration out of notebooks."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)
