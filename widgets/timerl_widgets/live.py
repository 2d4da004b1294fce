"""A run as the page shows it: its last frame, with the histories that charts need."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from timerl_nb.frames import Frame
from timerl_nb.program import Program
from timerl_nb.show.view import Array, amounts
from timerl_widgets.packed import Packed, packed

MOST: Final = 600  # points of a chart; a screen has not more columns


class Live:
    """Takes the frames of one run, and says what there is to draw after each."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._predicted = program.memory.timeline().bytes
        self._load: deque[tuple[float, float, float]] = deque(maxlen=MOST)

    def draw(self, frame: Frame) -> Packed:
        """What `RunMonitor` draws of a frame and those before it."""
        busy = np.nan if frame.busy is None else frame.busy
        host = min(1.0, frame.process.cpu / frame.process.cores)
        self._load.append((frame.elapsed, busy, host))
        load = np.array(self._load)
        held = frame.held
        return packed(
            {
                "state": frame.state,
                "turn": frame.turn,
                "turns": frame.turns,
                "elapsed": frame.elapsed,
                "turns_per_second": frame.turns_per_second,
                "steps_per_second": frame.steps_per_second,
                "busy": frame.busy,
                "cpu": frame.process.cpu,
                "cores": frame.process.cores,
                "resident": frame.process.resident,
                "live": held.live,
                "peak": held.peak,
                "source": held.source,
                "predicted_peak": self._program.memory.peak,
                "devices": [device.to_json() for device in frame.devices],
                "error": frame.error,
                "curves": [
                    {
                        "name": name,
                        "at": amounts(thinned(c.at)),
                        "values": amounts(thinned(c.values)),
                    }
                    for name, c in frame.curves.items()
                ],
                "held": {
                    "first": held.first,
                    "last": held.last,
                    "bytes": amounts(held.bytes),
                    "predicted": amounts(self._parts(held.first, held.last, len(held.bytes))),
                },
                "load": {
                    "at": amounts(load[:, 0]),
                    "busy": amounts(load[:, 1]),
                    "host": amounts(load[:, 2]),
                },
            }
        )

    def _parts(self, first: int, last: int, count: int) -> Array:
        """The greatest predicted bytes in each of equal parts of executed points."""
        shown = self._predicted[first:last]
        if not count or not len(shown):
            return np.zeros(0)
        edges = np.linspace(0, len(shown), count + 1).astype(int)
        starts = np.minimum(edges[:-1], len(shown) - 1)
        return np.maximum.reduceat(shown, starts)


def thinned(values: Array) -> Array:
    """At most `MOST` of some values, evenly; the last always."""
    if len(values) <= MOST:
        return values
    return values[np.linspace(0, len(values) - 1, MOST).astype(int)]
