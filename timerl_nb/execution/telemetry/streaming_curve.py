"""Curve that grows during a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.execution.telemetry.live_view_frames import Curve


class StreamingCurve:
    """Known values of a curve, in arrays that are extended by doubling.

    Attributes:
        is_late: Whether values become known only at the end.
    """

    def __init__(self, *, is_late: bool = False) -> None:
        self.is_late = is_late
        self._at, self._values, self._count = np.zeros(256, np.int64), np.zeros(256), 0

    @property
    def last_point(self) -> int:
        """Last known point; -1 if there is none."""
        return int(self._at[self._count - 1]) if self._count else -1

    def extend(self, points: Sequence[int], values: Sequence[Any]) -> None:
        end = self._count + len(points)
        while end > len(self._at):  # frames refer to the old arrays, which do not change
            self._at = np.concatenate([self._at, np.zeros_like(self._at)])
            self._values = np.concatenate([self._values, np.zeros_like(self._values)])
        self._at[self._count : end] = points
        self._values[self._count : end] = [_mean(x) for x in values]
        self._count = end

    def add_to_last(self, value: float) -> None:
        """Add a number to the last value."""
        self._values = self._values.copy()  # frames refer to the old array
        self._values[self._count - 1] += value

    def replace(self, values: Array, at: Array | None = None) -> None:
        self._at = np.arange(len(values)) if at is None else np.array(at)  # a copy, for frames only
        self._count = len(values)
        self._values = np.array(values, np.float64)

    def curve(self) -> Curve:
        at, values = self._at[: self._count], self._values[: self._count]
        at.flags.writeable = values.flags.writeable = False
        return Curve(at, values, self.is_late)


def _mean(x: Any) -> float:
    """Return a number, or the mean over several seeds."""
    return float(np.asarray(x, np.float64).mean())
