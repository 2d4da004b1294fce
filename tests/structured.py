"""Gymnasium environment with structured spaces, for tests; worker processes import it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

OBSERVATIONS = Dict(
    {
        "place": Box(-1.0, 1.0, (2,), np.float64),
        "light": Discrete(3, start=-1),
        "doors": Tuple([MultiBinary(2), MultiDiscrete([2, 3], start=[1, 0])]),
    }
)
ACTIONS: dict[str, Any] = {
    "mixed": Dict(
        {
            "move": Discrete(3, start=5),
            "hands": MultiBinary((1, 2)),
            "arms": Tuple([MultiDiscrete([[2, 3]]), Discrete(2)]),
        }
    ),
    "numbers": Tuple([Box(-1.0, 1.0, (2, 1)), Box(-2.0, 2.0)]),
    "shifted": Discrete(4, start=-2),
    "binary": MultiBinary(3),
}


def number_of(action: Any) -> float:
    """Return a number in which the parts of an action can be recognised."""
    if isinstance(action, dict):
        return sum(10.0**k * number_of(action[name]) for k, name in enumerate(sorted(action)))
    if isinstance(action, tuple):
        return sum(0.1**k * number_of(part) for k, part in enumerate(action))
    return float(np.dot(np.ravel(action), 1.0 + np.arange(np.size(action))))


class Structured(gymnasium.Env[Any, Any]):
    """The observation counts steps; the reward is `number_of` the action. Episodes have three steps."""

    def __init__(self, actions: str = "mixed", observations: Any = OBSERVATIONS) -> None:
        self.observation_space, self.action_space = observations, ACTIONS[actions]
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._steps = 0
        return self.seen(0), {}

    def step(self, action: Any) -> Any:
        assert action in self.action_space, action
        self._steps += 1
        return self.seen(self._steps), number_of(action), self._steps == 3, False, {}

    @staticmethod
    def seen(k: int) -> Any:
        return {
            "place": np.array([0.25 * k, -0.25 * k]),
            "light": np.int64(k % 3 - 1),
            "doors": (np.array([k % 2, 1], np.int8), np.array([k % 2 + 1, k % 3])),
        }


gymnasium.register("Structured-v0", Structured)
