"""What it takes to answer a page that zooms into a recording of ten million edges: CPU time of the kernel."""

from __future__ import annotations

from random import Random
from statistics import median
from time import process_time
from typing import Final

from timerl_widgets import ScopeView

from benchmarks.overlap import EDGES, made

DEEP: Final = 16  # times that a stretch is halved: to some hundred edges
COLUMNS: Final = 1_600


def main(edges: int = EDGES[-1], repeats: int = 5) -> None:
    """Print a table: what a zoom anywhere takes, by how deep it is."""
    recording, begun = made(edges), process_time()
    widget, draw = ScopeView(recording), Random(0)
    end = widget.drawn.end
    _asked(widget, 0, end)
    print(
        f"until a widget of {edges:,} edges is there: {process_time() - begun:.1f} s of CPU time\n"
    )
    print("| stretch | ms of CPU time | at most |\n|---|--:|--:|")
    for first in range(1, DEEP + 1, 4):
        depths = range(first, min(first + 4, DEEP + 1))
        took = list[float]()
        for size in [end >> k for k in depths for _ in range(repeats)]:
            begin = draw.randrange(end - size)
            took.append(_asked(widget, begin, begin + size))
        print(f"| 1/{2**first:,} to 1/{2 ** depths[-1]:,} | {median(took):.1f} | {max(took):.1f} |")


def _asked(widget: ScopeView, begin: int, end: int) -> float:
    """Milliseconds of an answer."""
    message = {"kind": "zoom", "begin": begin, "end": end, "width": COLUMNS, "process": None}
    begun = process_time()
    widget._handle_custom_msg(message, [])
    took = 1e3 * (process_time() - begun)
    assert widget.stretch["json"]["end"] == end and not widget.problem
    return took
