"""Event queue of the simulator: calls at simulated times, in µs."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Clock:
    """Simulated time in µs, and the scheduled calls. Simultaneous calls run in the order of their insertion."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._inserted = 0

    def call_at(self, moment: float, call: Callable[..., None], *args: Any) -> None:
        self._inserted += 1
        heapq.heappush(self._due, (moment, self._inserted, call, args))

    def run(self) -> None:
        while self._due:
            self.now, _, call, args = heapq.heappop(self._due)
            call(*args)
