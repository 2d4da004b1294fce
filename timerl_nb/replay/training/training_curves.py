"""Curves of a training run per iteration, and the frames of its live view."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from timerl_nb.base.array_conversion import Array
from timerl_nb.execution.control.pause_and_stop import RunControl
from timerl_nb.execution.telemetry.live_frame_delivery import Watching
from timerl_nb.execution.telemetry.live_view_frames import Frame
from timerl_nb.execution.telemetry.process_metrics import ProcessMetrics
from timerl_nb.execution.telemetry.streaming_curve import StreamingCurve


class Curves(Watching):
    """Values per iteration, by name.

    Args:
        control: the run's control.
        turns: the number of iterations; None for an unlimited run.

    Attributes:
        nbytes: the size of the buffer's rows, shown in frames.
    """

    def __init__(self, control: RunControl, turns: int | None) -> None:
        super().__init__(control)
        self._of, self._steps, self.nbytes = turns, 0, 0
        self._first = control.turn
        self._curves: dict[str, StreamingCurve] = {}
        self._lock = threading.Lock()

    def add(self, turn: int, steps: int, values: Mapping[str, float]) -> None:
        """Add the values of one iteration. Called on the run's thread."""
        with self._lock:
            self._steps += steps
            for name, value in values.items():
                self._curves.setdefault(name, StreamingCurve()).extend([turn], [value])

    def add_to_last(self, name: str, value: float) -> None:
        """Add a number to the last value of a curve, or begin the curve if no iteration has ended."""
        with self._lock:
            curve = self._curves.setdefault(name, StreamingCurve())
            if curve.last_point < 0:
                curve.extend([0], [0.0])
            curve.add_to_last(value)

    def values(self) -> dict[str, tuple[Array, Array]]:
        """Return the iterations and the values of each curve."""
        with self._lock:
            curves = {name: grown.curve() for name, grown in self._curves.items()}
        return {name: (curve.at, curve.values) for name, curve in curves.items()}

    def restore(self, values: Mapping[str, tuple[Array, Array]]) -> None:
        """Load the curves of a resumed run."""
        with self._lock:
            for name, (at, value) in values.items():
                self._curves[name] = StreamingCurve()
                self._curves[name].extend(at.tolist(), value.tolist())

    def _frame(self, metrics: ProcessMetrics) -> Frame:
        state, turn = self._control.state, self._control.turn
        elapsed = time.perf_counter() - self._began
        rate = self._rate(elapsed, turn, state)
        with self._lock:
            curves = {name: grown.curve() for name, grown in self._curves.items()}
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
