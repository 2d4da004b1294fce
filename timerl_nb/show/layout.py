"""Graph layout: Graphviz as WebAssembly, in a V8 of our own, behind one function.

The layout program is built from `widgets/src/layout.ts` (`widgets/bundle.py`) and ships with the
package. There is no `dot` binary and no font in it, so a graph looks the same on every machine.
"""

from __future__ import annotations

import atexit
import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from py_mini_racer import JSEvalException, JSPromise, JSTimeoutException, MiniRacer

from timerl_nb.dot import FONT
from timerl_nb.errors import DrawingError

PROGRAM = Path(__file__).parent / "static/layout.js"
SECONDS = 10.0  # what a layout may take; some 700 nodes
# What the text is measured by, or as wide, is everywhere: Verdana, or DejaVu Sans on Linux.
FACES = "DejaVu Sans,Verdana,sans-serif"


class LayoutTimeout(DrawingError):
    """A graph that is too large to be laid out in the time there is."""


@lru_cache(maxsize=64)
def layout_svg(dot: str, seconds: float = SECONDS) -> str:
    """The picture of a Graphviz graph as one `<svg>` element, with a background and no script.

    Args:
        seconds: how long the layout may take.

    Raises:
        LayoutTimeout: it took longer.
        DrawingError: the text is not a graph, or the layout program has not been built.
    """
    text = _GRAPHVIZ.layout(dot, seconds)
    text = re.sub(r"<!--.*?-->\n?", "", text[text.index("<svg") :], flags=re.S)
    return text.replace(f'font-family="{FONT}"', f'font-family="{FACES}"')


class Graphviz:
    """The layout program, in V8 on a thread of its own.

    MiniRacer adopts the asyncio loop that runs where it is made: in a notebook the kernel's own,
    which would then wait for itself. A context that is freed as the interpreter ends never returns.
    So it is made and used on one private thread, and closed before the end.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="graph-layout")
        self._v8: MiniRacer | None = None

    def layout(self, dot: str, seconds: float) -> str:
        return self._thread.submit(self._layout, dot, seconds).result()

    def _layout(self, dot: str, seconds: float) -> str:
        v8 = self._v8 = self._v8 or _loaded()
        try:
            return str(v8.call("timerl.layout", dot, timeout_sec=seconds))
        except JSTimeoutException:
            v8.eval("0")  # what was stopped answers once more
            self.close()  # and left its memory in any state
            raise LayoutTimeout(
                f"the graph could not be laid out within {seconds:g} s.",
                hint="fold some of it (`view.fold(…)`), or give the layout more `seconds`.",
            ) from None
        except JSEvalException as error:
            raise DrawingError("Graphviz does not take this graph.", evidence=str(error)) from None

    def close(self) -> None:
        v8, self._v8 = self._v8, None
        if v8 is not None:
            v8.close()


def _loaded() -> MiniRacer:
    if not PROGRAM.exists():
        raise DrawingError(
            f"the layout program is not built ({PROGRAM.name} is missing).",
            hint="run `make setup`, or `python widgets/bundle.py` in the repository.",
        )
    v8 = MiniRacer()
    v8.eval(PROGRAM.read_text(encoding="utf-8"))
    loading = v8.eval("timerl.load()")
    assert isinstance(loading, JSPromise)
    loading.get(timeout=60)
    return v8


_GRAPHVIZ = Graphviz()


def _forked() -> None:
    """A forked process has none of V8's threads: it begins anew, and leaves the old one alone."""
    global _GRAPHVIZ
    _LEFT.append(_GRAPHVIZ)
    _GRAPHVIZ = Graphviz()


_LEFT: list[Graphviz] = []
atexit.register(lambda: _GRAPHVIZ.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
