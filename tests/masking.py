"""Gymnasium environments that report masks of actions, for tests; worker processes import it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ACTIONS = 5


def permitted(offset: int, episode: int, step: int) -> list[bool]:
    """Return the mask of a state; at least one action is permitted."""
    word = 1 + (offset * 7 + episode * 3 + step * 11) % 31
    return [bool(word >> k & 1) for k in range(ACTIONS)]


class Masking(gymnasium.Env[Any, Any]):
    """Observes its offset, the episode and the step; a forbidden action has the reward -1.

    Args:
        length: steps of an episode.
        where: the infos with a mask: "reset" and "step".
        as_list: whether a mask is a list instead of an array.
    """

    def __init__(
        self,
        length: int = 3,
        where: tuple[str, ...] = ("reset", "step"),
        offset: int | None = None,
        as_list: bool = False,
    ) -> None:
        self.observation_space = spaces.Box(0, 99, (3,), np.float32)
        self.action_space = spaces.Discrete(ACTIONS)
        self.length, self.where, self.as_list = length, where, as_list
        self.offset, self.episode, self.now = offset or 0, -1, 0
        self.is_fixed = offset is not None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None and not self.is_fixed:
            self.offset = seed % 7
        self.episode, self.now = self.episode + 1, 0
        return self.seen(), self.told("reset")

    def seen(self) -> Any:
        return np.array([self.offset, self.episode, self.now], np.float32)

    def told(self, where: str) -> dict[str, Any]:
        mask = permitted(self.offset, self.episode, self.now)
        made = mask if self.as_list else np.array(mask, np.int8)
        return {"action_mask": made} if where in self.where else {}

    def step(self, action: Any) -> Any:
        reward = float(permitted(self.offset, self.episode, self.now)[action]) or -1.0
        self.now += 1
        over = self.now == self.length
        return self.seen(), reward, over and self.episode % 2 == 0, over, self.told("step")


NAME = "timerl/Masking-v0"
if NAME not in gymnasium.registry:
    gymnasium.register(NAME, "tests.masking:Masking")
