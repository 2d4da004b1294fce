"""Gymnasium's vector environments, with their three autoreset modes reduced to two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import EnvError


class VectorStepping:
    """Wrapper of a Gymnasium vector environment.

    Args:
        env: the vector environment.
        seed: the seed of its reset: one for all environments, or one for each.
        is_given: whether the caller owns it, so that it is not closed here.
    """

    def __init__(self, env: Any, seed: int | list[int], *, is_given: bool) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode is None:
            raise EnvError(
                f"{env!r} does not declare its autoreset mode.",
                hint='set its metadata["autoreset_mode"] to a gymnasium.vector.AutoresetMode.',
            )
        self.space = env.single_action_space
        self._mode = getattr(mode, "name", str(mode))
        self.restarts_at_once = self._mode != "NEXT_STEP"
        self.seeds = seed if isinstance(seed, list) else None
        self._env, self._seed, self._is_given = env, seed, is_given
        self._resets = self._mode == "DISABLED"

    def reset(self) -> Any:
        return self._env.reset(seed=self._seed)[0]

    def step(self, action: Array) -> tuple[Any, Any, Any, Any, Any]:
        obs, reward, terminated, truncated, more = self._env.step(action)
        if self._resets:
            over = np.logical_or(terminated, truncated)
            if over.any():
                last = np.array(obs[over])
                obs, _ = self._env.reset(options={"reset_mask": over})
                return obs, reward, terminated, truncated, last
        elif "final_obs" in more:
            last = np.stack(more["final_obs"][more["_final_obs"]])
            return obs, reward, terminated, truncated, last
        return obs, reward, terminated, truncated, None

    def at_fault(self, error: Exception) -> tuple[Sequence[int], str]:
        said, trace = f"{type(error).__name__}: {error}", error.__traceback__
        numbers = {id(one): k for k, one in enumerate(getattr(self._env.unwrapped, "envs", ()))}
        while trace is not None:  # find a frame of a method of one of the environments
            known = numbers.get(id(trace.tb_frame.f_locals.get("self")))
            if known is not None:
                return [known], said
            trace = trace.tb_next
        return range(self._env.num_envs), said

    def close(self) -> None:
        if not self._is_given:
            self._env.close()
