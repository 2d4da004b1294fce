"""One environment of many, as vectors of Gymnasium's step it.

Processes of environments are given this file's text alone, and import nothing else of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Numbered:
    """One environment of many, which says which it is as it steps: it may raise, or end its process.

    The last observation of an episode is copied: a vector resets the environment before it reads it, and
    many environments return an array of their own, which the reset overwrites.

    Args:
        at: at 0, where the number of the one that is at play is written.
    """

    def __init__(self, env: Any, number: int, at: Any) -> None:
        self._env, self._number, self._at = env, number, at
        self._step: Callable[[Any], Any] = env.step

    def step(self, action: Any) -> Any:
        self._at[0] = self._number
        obs, reward, terminated, truncated, more = self._step(action)
        if terminated or truncated:
            obs = np.array(obs)
        return obs, reward, terminated, truncated, more

    def reset(self, **options: Any) -> Any:
        self._at[0] = self._number
        return self._env.reset(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)
