"""Curves of a training run per turn, and the frames of its live view."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from timerl_nb.base.array_conversion import Array
from timerl_nb.execution.control.pause_and_stop import RunControl
from timerl_nb.execution.telemetry.live_frame_delivery import Watching
from timerl_nb.execution.telemetry.live_view_frames import Frame
from timerl_nb.execution.telemetry.process_metrics import ProcessMetrics
from timerl_nb.execution.telemetry.streaming_curve import Growing


class Curves(Watching):
    """Values per turn, by name.

    Args:
        control: the run's control.
        turns: the number of turns; None for an unlimited run.

    Attributes:
        nbytes: the size of the buffer's rows, shown in frames.
    """

    def __init__(self, control: RunControl, turns: int | None) -> None:
        super().__init__(control)
        self._of, self._steps, self.nbytes = turns, 0, 0
        self._first = control.turn
        self._grown: dict[str, Growing] = {}
        self._lock = threading.Lock()

    def add(self, turn: int, steps: int, values: Mapping[str, float]) -> None:
        """Add the values of one turn. Called on the run's thread."""
        with self._lock:
            self._steps += steps
            for name, value in values.items():
                self._grown.setdefault(name, Growing()).extend([turn], [value])

    def add_to_last(self, name: str, value: float) -> None:
        """Add a number to the last value of a curve, or begin the curve if no turn has ended."""
        with self._lock:
            grown = self._grown.setdefault(name, Growing())
            if grown.last_point < 0:
                grown.extend([0], [0.0])
            grown.add_to_last(value)

    def values(self) -> dict[str, tuple[Array, Array]]:
        """Return the turns and the values of each curve."""
        with self._lock:
            curves = {name: grown.curve() for name, grown in self._grown.items()}
        return {name: (curve.at, curve.values) for name, curve in curves.items()}

    def restore(self, values: Mapping[str, tuple[Array, Array]]) -> None:
        """Load the curves of a resumed run."""
        with self._lock:
            for name, (at, value) in values.items():
                self._grown[name] = Growing()
                self._grown[name].extend(at.tolist(), value.tolist())

    def _frame(self, metrics: ProcessMetrics) -> Frame:
        state, turn = self._control.state, self._control.turn
        elapsed = time.perf_counter() - self._began
        rate = self._rate(elapsed, turn, state)
        with self._lock:
            curves = {name: grown.curve() for name, grown in self._grown.items()}
            done = max(turn - self._first, 1)
            steps = rate * self._steps / done
        return Frame(
            number=self._number,
            state=state,
            reason=self._control.reason,
            turn=turn,
            turns=self._of,
            elapsed=elapsed,
            turns_per_second=rate,
            steps_per_second=steps,
            busy=None,
            curves=curves,
            held=None,
            buffers=self.nbytes,
            compiling=None,
            process=metrics.process(),
            devices=metrics.devices(),
            error=self.error,
        )
