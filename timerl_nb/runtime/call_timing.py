"""How long kernels and calls take, each waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from timerl_nb.runtime.jax_backend import jax_engine as backend


@dataclass
class Stopwatch:
    """Adds up the seconds inside functions, their results waited for, and counts their calls."""

    seconds: float = 0.0
    calls: int = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, measured."""

        def call(*args: Any) -> Any:
            start = time.perf_counter()
            made = backend.wait(function(*args))
            self.seconds += time.perf_counter() - start
            self.calls += 1
            return made

        return call
