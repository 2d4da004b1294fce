"""Wrapper of one environment inside Gymnasium's vector environments.

Worker processes execute the text of this file and import no other module of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Numbered:
    """One environment of many, which records its number before each call, to identify failures.

    The last observation of an episode is copied: the vector environment resets before it reads it, and many environments
    return the same array each time. Observations are converted to the type of the space: the vector environment would
    truncate int64 for an int32 space, and reject int64 for a uint8 space. It would accept the reward None as NaN.

    Args:
        at: an array; element 0 is the number of the current environment.
        tell: called if a conversion makes a finite number infinite.
    """

    def __init__(self, env: Any, number: int, at: Any, tell: Callable[[], object]) -> None:
        self._env, self._number, self._at, self._tell = env, number, at, tell
        self._step: Callable[[Any], Any] = env.step
        kind = env.observation_space.dtype
        self._kind: Any = kind if kind is not None and kind.kind in "iuf" else None

    def step(self, action: Any) -> Any:
        self._at[0] = self._number
        obs, reward, terminated, truncated, more = self._step(action)
        kind = self._kind
        # the usual types are checked here, since calls for every environment and step are expensive
        if kind is not None and not (obs.__class__ is np.ndarray and obs.dtype is kind):
            obs = self._convert(obs)
        if terminated or truncated:
            obs = np.array(obs)
        if reward.__class__ is not float:
            reward = number_of(reward)
        return obs, reward, terminated, truncated, more

    def reset(self, **options: Any) -> Any:
        self._at[0] = self._number
        obs, more = self._env.reset(**options)
        return obs if self._kind is None else self._convert(obs), more

    def _convert(self, obs: Any) -> Any:
        kind = self._kind
        if obs.__class__ is np.ndarray and obs.dtype == kind:
            return obs
        array = np.asarray(obs)
        if kind.kind != "f":
            return _as_integers(obs, array, kind)
        if array.dtype.kind != "f" or np.can_cast(array.dtype, kind):
            return obs
        with np.errstate(over="ignore"):
            made = array.astype(kind)
        if np.isfinite(array[np.isinf(made)]).any():
            self._tell()
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


def number_of(reward: Any) -> float:
    """Return a reward as a number.

    Raises:
        TypeError: it is not a number.
    """
    try:
        if reward.__class__ is np.ndarray and reward.size == 1:
            reward = reward.item()
        return float(reward)
    except (TypeError, ValueError):
        name = "None" if reward is None else type(reward).__name__
        raise TypeError(f"its reward is {name}, not a number") from None


def _as_integers(obs: Any, array: Any, kind: Any) -> Any:
    """Convert an observation to the integer type of its space; other types are unchanged.

    Raises:
        ValueError: it contains integers out of range.
    """
    if array.dtype.kind not in "iu" or array.dtype == kind:
        return obs
    if array.size and not np.can_cast(array.dtype, kind):
        ends = np.iinfo(kind)
        for one in (int(array.min()), int(array.max())):
            if not ends.min <= one <= ends.max:
                raise ValueError(
                    f"an observation has integers that do not fit into {kind}, such as {one}"
                )
    return array.astype(kind)
