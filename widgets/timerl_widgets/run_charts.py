"""Collection of a run's frames into the data of its charts."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from timerl_nb.show.memory.store_view import measured_amounts, stated_amounts
from timerl_nb.show.systems.run_view import (
    MOST,
    EarlierRun,
    LiveBytes,
    Load,
    RunView,
    Turns,
    downsample_curve,
    nothing,
)
from timerl_nb.show.view_model import amounts
from timerl_nb.show.widget_api import Array, Frame, Program

# Shown instead of the bytes of another program's run.
NO_TURN = nothing("the run belongs to the previous program")


class RunCharts:
    """Receives the frames of one run, and returns the view after each."""

    def __init__(self, program: Program, earlier: tuple[EarlierRun, ...] = ()) -> None:
        self._program, self._earlier = program, earlier
        self._line = program.memory.timeline()
        self._load: deque[tuple[float, ...]] = deque(maxlen=MOST)
        self._held_bytes: LiveBytes | None = None
        self._turns = Turns(program)

    def view(self, frame: Frame) -> RunView:
        """Return the view after a frame, including the history of earlier frames."""
        busy = np.nan if frame.busy is None else frame.busy
        host = min(1.0, frame.process.cpu / frame.process.cores)
        memory = frame.process.resident, frame.process.on_device
        taken = (np.nan if nbytes is None else nbytes for nbytes in memory)
        self._load.append((frame.elapsed, busy, host, *taken))
        held = frame.held
        if held is not None and (self._held_bytes is None or len(held.bytes)):
            predicted = self._peaks_per_part(held.first, held.last, len(held.bytes))
            self._held_bytes = LiveBytes(
                held.first, held.last, amounts(held.bytes), amounts(predicted)
            )
        return RunView(
            replace(
                frame, curves={name: downsample_curve(one) for name, one in frame.curves.items()}
            ),
            self._program.memory.peak,
            self._held_bytes,  # a last frame may have no points
            Load(*np.array(self._load).T),
            self._turns.latest_complete(frame.held),
            (*measured_amounts(frame), *stated_amounts(self._program)),
            self._earlier,
        )

    def _peaks_per_part(self, first: int, last: int, count: int) -> Array:
        """Return the predicted maximum of live bytes in each of several equal ranges of executed points."""
        shown = self._line.bytes_between(first, last)
        if not count or not len(shown):
            return np.zeros(0)
        edges = np.linspace(0, len(shown), count + 1).astype(int)
        starts = np.minimum(edges[:-1], len(shown) - 1)
        return np.maximum.reduceat(shown, starts)
