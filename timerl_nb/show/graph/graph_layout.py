"""Graph layout by Graphviz, compiled to WebAssembly.

No `dot` binary and no system font are involved, so a graph looks the same on every machine.
"""

from __future__ import annotations

import re
from functools import lru_cache

from timerl_nb.base.errors import DrawingError
from timerl_nb.base.graphviz_text import FONT
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.show import offline_rendering

SECONDS = 10.0  # time limit of a layout, enough for some 700 nodes
# Graphviz measures text with the metrics of Verdana; DejaVu Sans on Linux is equally wide.
FACES = "DejaVu Sans,Verdana,sans-serif"


class LayoutTimeout(DrawingError):
    """The layout of a graph has exceeded its time limit."""


def layout_svg(dot: str, seconds: float = SECONDS) -> str:
    """Lay out a graph, and return the picture as one `<svg>` element without scripts.

    Args:
        dot: the graph in the DOT language.
        seconds: the time limit.

    Raises:
        LayoutTimeout: the layout has exceeded the time limit.
        DrawingError: the text is not a graph, or the drawing program has not been built.

    Example:
        >>> trl.show.layout_svg("digraph { a -> b }").startswith("<svg")
        True
    """
    expect_type(dot, str, "the text of a graph", "view.to_dot() gives one.")
    number("seconds", seconds, least=0)
    return _render_svg(dot, seconds)


@lru_cache(maxsize=64)
def _render_svg(dot: str, seconds: float) -> str:
    try:
        text = offline_rendering.call("layout", dot, seconds=seconds)
    except offline_rendering.TooLong:
        raise LayoutTimeout(
            f"the layout of the graph has exceeded {seconds:g} s.",
            hint="fold parts of the graph (`view.fold(…)`), or pass a larger `seconds`.",
        ) from None
    except offline_rendering.Failed as error:
        raise DrawingError("Graphviz rejects this graph.", evidence=error.evidence) from None
    text = re.sub(r"<!--.*?-->\n?", "", text[text.index("<svg") :], flags=re.S)
    return text.replace(f'font-family="{FONT}"', f'font-family="{FACES}"')
