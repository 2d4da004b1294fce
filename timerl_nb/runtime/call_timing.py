"""Timing of kernels and calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Stopwatch:
    """Total time of wrapped functions, including the wait for their results, and number of calls."""

    seconds: float = 0.0
    calls: int = 0

    def wrap(self, function: Callable[..., Any], wait: Callable[[Any], Any]) -> Callable[..., Any]:
        """Return the function with its time added to this stopwatch; `wait` waits for its results."""

        def call(*args: Any) -> Any:
            start = time.perf_counter()
            made = wait(function(*args))
            self.seconds += time.perf_counter() - start
            self.calls += 1
            return made

        return call
