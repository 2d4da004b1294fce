"""Vector environments of Gymnasium's, whose three ways of beginning anew become two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.errors import EnvError


class VectorStepping:
    """A vector environment of Gymnasium's.

    Args:
        env: the vector environment.
        seed: what it is reset with: of all, or of each.
        at: at 0, which of them is at play, where that is known.
        is_given: it belongs to somebody else, and is not closed.
    """

    def __init__(
        self, env: Any, seed: int | list[int], at: Sequence[int] | None = None, *, is_given: bool
    ) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode is None:
            raise EnvError(
                f"{env!r} does not say how it begins anew.",
                hint='set its metadata["autoreset_mode"] to a gymnasium.vector.AutoresetMode.',
            )
        self.space = env.single_action_space
        self._mode = getattr(mode, "name", str(mode))
        self.restarts_at_once = self._mode != "NEXT_STEP"
        self.seeds = seed if isinstance(seed, list) else None
        self._env, self._seed, self._at, self._is_given = env, seed, at, is_given

    def reset(self) -> Any:
        return self._env.reset(seed=self._seed)[0]

    def step(self, action: Array) -> tuple[Any, Any, Any, Any, Any]:
        obs, reward, terminated, truncated, more = self._env.step(action)
        if self._mode == "DISABLED":
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
        which = range(self._env.num_envs) if self._at is None else [self._at[0]]
        return which, f"{type(error).__name__}: {error}"

    def close(self) -> None:
        if not self._is_given:
            self._env.close()
