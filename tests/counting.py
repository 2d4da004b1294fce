"""Environments that count, so that it is known what any way of stepping them has to bring."""

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
    """How an episode ends: terminated, truncated, or both at once."""
    return ((True, False), (False, True), (True, True))[episode % 3]


class Counting(gymnasium.Env[Any, Any]):
    """Observes its offset, the episode and the step within; the reward is ten times the episode and the action.

    Args:
        raises, dies: the step of its life at which the environments of an odd offset do so.
        image: how many times the observation is repeated, as an image.
        once: whether all episodes have one step.
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
    """As many of them, in one, the ends of which are told at the next step."""

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
