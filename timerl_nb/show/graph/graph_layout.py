"""Graph layout: Graphviz as WebAssembly, behind one function.

There is no `dot` binary and no font in it, so a graph looks the same on every machine.
"""

from __future__ import annotations

import re
from functools import lru_cache

from timerl_nb.base.errors import DrawingError
from timerl_nb.base.graphviz_text import FONT
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.show import offline_rendering

SECONDS = 10.0  # what a layout may take; some 700 nodes
# What the text is measured by, or as wide, is everywhere: Verdana, or DejaVu Sans on Linux.
FACES = "DejaVu Sans,Verdana,sans-serif"


class LayoutTimeout(DrawingError):
    """A graph that is too large to be laid out in the time there is."""


def layout_svg(dot: str, seconds: float = SECONDS) -> str:
    """The picture of a Graphviz graph as one `<svg>` element, with a background and no script.

    Args:
        seconds: how long the layout may take.

    Raises:
        LayoutTimeout: it took longer.
        DrawingError: the text is not a graph, or the drawing program has not been built.
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
            f"the graph could not be laid out within {seconds:g} s.",
            hint="fold some of it (`view.fold(…)`), or give the layout more `seconds`.",
        ) from None
    except offline_rendering.Failed as error:
        raise DrawingError("Graphviz does not take this graph.", evidence=error.evidence) from None
    text = re.sub(r"<!--.*?-->\n?", "", text[text.index("<svg") :], flags=re.S)
    return text.replace(f'font-family="{FONT}"', f'font-family="{FACES}"')
