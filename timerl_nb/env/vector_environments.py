"""Gymnasium's vector environments, with their three autoreset modes reduced to two."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import EnvError
from timerl_nb.env.action_masks import Masks, Rows, reported_rows
from timerl_nb.env.gymnasium import plain_spaces, row_conversions


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
        spaces = self._spaces = env.single_observation_space, env.single_action_space
        self.space = plain_spaces(repr(env), *spaces)[1]
        self._conversions = row_conversions(*spaces)
        self._mode = getattr(mode, "name", str(mode))
        self.restarts_at_once = self._mode != "NEXT_STEP"
        self.seeds = seed if isinstance(seed, list) else None
        self._env, self._seed, self._is_given = env, seed, is_given
        self._resets = self._mode == "DISABLED"

    def reset(self) -> tuple[Any, Rows | None]:
        obs, more = self._env.reset(seed=self._seed)
        if self._conversions is not None:
            obs = self._conversions[0](obs)
        return obs, reported_rows(more, self._env.num_envs)

    def step(self, action: Array) -> tuple[Any, Any, Any, Any, Any, Masks | None]:
        conversions = self._conversions
        if conversions is None:
            obs, reward, terminated, truncated, more = self._env.step(action)
        else:
            obs, reward, terminated, truncated, more = self._env.step(conversions[1](action))
            obs = conversions[0](obs)
        last, masks = None, None
        if "action_mask" in more:
            masks = Masks(reported_rows(more, self._env.num_envs))
        if self._resets:
            over = np.logical_or(terminated, truncated)
            if over.any():
                last = np.array(obs[over])
                obs, masks = self._restart(over, masks)
        elif "final_obs" in more:
            over = more["_final_obs"]
            last = self._last_rows(more["final_obs"][over])
            if "action_mask" in more.get("final_info", ()):
                rows = reported_rows(more["final_info"], self._env.num_envs)
                masks = Masks(
                    None if masks is None else masks.now, None if rows is None else rows.take(over)
                )
        return obs, reward, terminated, truncated, last, masks

    def _restart(self, over: Array, masks: Masks | None) -> tuple[Any, Masks | None]:
        """Reset the environments of ended episodes; return observations and masks of all."""
        obs, more = self._env.reset(options={"reset_mask": over})
        if self._conversions is not None:
            obs = self._conversions[0](obs)
        before = None if masks is None else masks.now
        begun = reported_rows(more, self._env.num_envs)
        if before is None and begun is None:
            return obs, None
        like = begun if before is None else before
        assert like is not None
        rows = Rows(np.zeros_like(like.masks), np.zeros_like(like.reported))
        for part, at in ((before, ~over), (begun, over)):
            if part is not None:
                rows.masks[at], rows.reported[at] = part.take(at)
        return obs, Masks(rows, None if before is None else before.take(over))

    def _last_rows(self, final: Any) -> Array:
        """Return the converted last observations of ended episodes."""
        if self._conversions is None:
            return np.stack(final)
        plain: Any = import_module("timerl_nb.env.plain_spaces")
        return self._conversions[0](plain.stacked(self._spaces[0], final))

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
