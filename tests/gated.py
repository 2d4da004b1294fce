"""Gymnasium environment whose steps wait for the test; worker processes import it."""

from __future__ import annotations

from pathlib import Path
from time import sleep
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Gated(gymnasium.Env[Any, Any]):
    """Observes its seed and the number of its steps. A step waits while the folder has a file named by the seed."""

    observation_space, action_space = spaces.Box(0, 2**32, (2,), np.float64), spaces.Discrete(2)

    def __init__(self, folder: str) -> None:
        self.folder, self.count, self.seed = Path(folder), 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seed = seed or 0
        return self.seen(), {}

    def seen(self) -> Any:
        return np.array([self.seed % 2**16, self.count], np.float64)

    def step(self, action: Any) -> Any:
        while (self.folder / str(self.seed)).exists():
            sleep(0.001)  # polls the condition
        self.count += 1
        return self.seen(), 1.0, False, False, {}


NAME = "timerl/Gated-v0"
if NAME not in gymnasium.registry:
    gymnasium.register(NAME, "tests.gated:Gated")
