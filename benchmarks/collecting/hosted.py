"""Environments of other libraries, stepped on the host under a policy in NumPy or PyTorch."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import Any, Final

import gymnasium
import numpy as np

from benchmarks.collecting.cell import Cell
from benchmarks.collecting.implementation import Batch, Implementation
from benchmarks.collecting.policy import Act, by_numpy

NAME: Final = "CartPole-v1"
MOST_PROCESSES: Final = 16  # limit that leaves the machine responsive
Stepped = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Environments(ABC):
    """Several environments of one library.

    Attributes:
        calls: Library calls for a step of all environments.
        copies: Arrays copied from other processes for a step of all environments.
        resets: Whether the step after the end of an episode is only a reset.
    """

    calls, copies, resets = 1, 0, False

    @abstractmethod
    def reset(self) -> np.ndarray: ...

    @abstractmethod
    def step(self, action: np.ndarray) -> Stepped:
        """Return observations, rewards, terminations and truncations."""

    def close(self) -> None:
        """Release all resources."""
        return


class Loop(Environments):
    """One object per environment, as the paper runs OpenAI Gym."""

    def __init__(self, count: int) -> None:
        self._envs: list[Any] = [gymnasium.make(NAME) for _ in range(count)]
        self.calls = count

    def reset(self) -> np.ndarray:
        return np.stack([env.reset(seed=k)[0] for k, env in enumerate(self._envs)])

    def step(self, action: np.ndarray) -> Stepped:
        count = len(self._envs)
        obs, reward = np.empty((count, 4), np.float32), np.empty(count, np.float32)
        ended, cut = np.empty(count, bool), np.empty(count, bool)
        for k, env in enumerate(self._envs):
            obs[k], reward[k], ended[k], cut[k], _ = env.step(action[k])
            if ended[k] or cut[k]:
                obs[k], _ = env.reset()
        return obs, reward, ended, cut


class Vector(Environments):
    """A Gymnasium vector environment: "sync", "async" or "vector_entry_point"."""

    def __init__(self, count: int, mode: str) -> None:
        if mode == "async" and count > MOST_PROCESSES:
            raise ValueError(f"it takes {count:,} processes, one for each environment")
        self.resets = mode == "vector_entry_point"  # it offers no other mode
        self.copies = 4 if mode == "async" else 0
        same = gymnasium.vector.AutoresetMode.SAME_STEP
        options: dict[str, Any] = {} if self.resets else {"vector_kwargs": {"autoreset_mode": same}}
        if mode == "async":  # never fork a process with JAX's threads
            options["vector_kwargs"]["context"] = "spawn"
        self._env: Any = gymnasium.make_vec(NAME, count, vectorization_mode=mode, **options)

    def reset(self) -> np.ndarray:
        return self._env.reset(seed=0)[0]

    def step(self, action: np.ndarray) -> Stepped:
        return self._env.step(action)[:4]

    def close(self) -> None:
        self._env.close()


class EnvPool(Environments):
    """EnvPool's C++ threads, in place of the paper's implementation."""

    resets = True

    def __init__(self, count: int) -> None:
        envpool: Any = importlib.import_module("envpool")
        self._env = envpool.make(NAME, env_type="gymnasium", num_envs=count, seed=0)

    def reset(self) -> np.ndarray:
        return self._env.reset()[0]

    def step(self, action: np.ndarray) -> Stepped:
        return self._env.step(action.astype(np.int32))[:4]

    def close(self) -> None:
        self._env.close()


class Hosted(Implementation):
    """Loop over steps in Python, into preallocated arrays."""

    def __init__(self, cell: Cell, envs: Environments, act: Act) -> None:
        super().__init__(cell)
        self._envs, self._act = envs, act
        shape = cell.steps, cell.envs
        self._kept = {
            "obs": np.empty((*shape, 4), np.float32),
            "action": np.empty(shape, np.int64),
            "reward": np.empty(shape, np.float32),
            "terminated": np.empty(shape, bool),
            "truncated": np.empty(shape, bool),
            "valid": np.ones(shape, bool),
            "log_prob": np.zeros(shape, np.float32),
        }
        self._obs, self._over = envs.reset(), np.zeros(cell.envs, bool)
        self.copies = envs.copies * cell.steps

    def advance(self) -> int:
        kept, obs, over = self._kept, self._obs, self._over
        for k in range(self.cell.steps):
            kept["obs"][k] = obs
            action, logp = self._act(obs)
            kept["action"][k] = action
            if logp is not None:
                kept["log_prob"][k] = logp
            if self._envs.resets:
                kept["valid"][k] = ~over
            obs, kept["reward"][k], ended, cut = self._envs.step(np.asarray(action))
            kept["terminated"][k], kept["truncated"][k] = ended, cut
            over = ended | cut
        self._obs, self._over = obs, over
        self.calls = (self._envs.calls + (self.cell.width > 0)) * self.cell.steps
        return int(kept["valid"].sum())

    def batch(self) -> Batch:
        return {**self._kept, "last_obs": np.array(self._obs)}

    def close(self) -> None:
        self._envs.close()


def by_torch(width: int) -> Act:
    """Apply the policy in PyTorch; its tensors share memory with NumPy's arrays."""
    torched: Any = importlib.import_module("benchmarks.collecting.torched")
    return torched.policy(width)


def loop(cell: Cell) -> Hosted:
    return Hosted(cell, Loop(cell.envs), by_numpy(cell.width))


def loop_torch(cell: Cell) -> Hosted:
    return Hosted(cell, Loop(cell.envs), by_torch(cell.width))


def vector(cell: Cell) -> Hosted:
    return Hosted(cell, Vector(cell.envs, "sync"), by_numpy(cell.width))


def native(cell: Cell) -> Hosted:
    return Hosted(cell, Vector(cell.envs, "vector_entry_point"), by_numpy(cell.width))


def processes(cell: Cell) -> Hosted:
    return Hosted(cell, Vector(cell.envs, "async"), by_numpy(cell.width))


def threads(cell: Cell) -> Hosted:
    return Hosted(cell, EnvPool(cell.envs), by_numpy(cell.width))
