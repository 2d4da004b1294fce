"""Counting environments: deterministic outputs that every collecting strategy must reproduce."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

ACTIONS = {
    "int": spaces.Discrete(7),
    "float": spaces.Box(-1, 1, (1,)),
    "vector": spaces.MultiDiscrete([3, 4]),
}


def length(offset: int, episode: int) -> int:
    return 1 + (offset + 3 * episode) % 5


def ends(episode: int) -> tuple[bool, bool]:
    """Return the end of an episode: terminated, truncated, or both."""
    return ((True, False), (False, True), (True, True))[episode % 3]


class Counting(gymnasium.Env[Any, Any]):
    """Observes its offset, the episode and the step; the reward is ten times the episode plus the action.

    Args:
        raises, dies: Step of its life at which an environment of odd offset raises, or ends its
        process.
        image: Number of repetitions of the observation, as an image.
        once: Whether all episodes have one step.
    """

    def __init__(
        self, act: str = "int", raises: int = 0, dies: int = 0, image: int = 0, once: bool = False
    ) -> None:
        self.action_space = ACTIONS[act]
        self.raises, self.dies, self.image, self.once = raises, dies, image, once
        kind = np.uint8 if image else np.float32
        shape = (image, image, 3) if image else (3,)
        self.observation_space = spaces.Box(0, 255, shape, kind)
        self.offset = self.episode = self.step_ = self.life = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.offset, self.episode = seed % 4, -1
        self.episode, self.step_ = self.episode + 1, 0
        return self.seen(), {}

    def seen(self) -> Any:
        one = np.array([self.offset, self.episode, self.step_], self.observation_space.dtype)
        return np.broadcast_to(one, self.observation_space.shape).copy() if self.image else one

    def step(self, action: Any) -> Any:
        self.life += 1
        if self.offset % 2 and self.life == self.raises:
            raise ValueError("a wheel came off")
        if self.offset % 2 and self.life == self.dies:
            os._exit(7)
        self.step_ += 1
        over = self.step_ == (1 if self.once else length(self.offset, self.episode))
        terminated, truncated = ends(self.episode) if over else (False, False)
        reward = float(10 * self.episode + np.sum(action))
        return self.seen(), reward, terminated, truncated, {}


class CountingVector(VectorEnv[Any, Any, Any]):
    """Vector environment of several counting environments; ends are reported one step later."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int, **options: Any) -> None:
        self.num_envs = num_envs
        self.envs = [Counting(**options) for _ in range(num_envs)]
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.over = np.zeros(num_envs, bool)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.stack([env.reset(seed=k)[0] for k, env in enumerate(self.envs)]), {}

    def step(self, actions: Any) -> Any:
        made = [
            (env.reset()[0], 0.0, False, False) if over else env.step(action)[:4]
            for env, action, over in zip(self.envs, actions, self.over, strict=True)
        ]
        obs, reward, terminated, truncated = map(np.array, zip(*made, strict=True))
        self.over = terminated | truncated
        return obs, reward, terminated, truncated, {}


NAME = "timerl/Counting-v0"
if NAME not in gymnasium.registry:
    gymnasium.register(
        NAME, "tests.counting:Counting", vector_entry_point="tests.counting:CountingVector"
    )
