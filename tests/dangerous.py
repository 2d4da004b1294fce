"""An environment that fails, kills its process, or waits, as its actions say; and collectors of it on Ray."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from time import sleep
from typing import Any

import gymnasium
import numpy as np

import timerl_nb as trl
from timerl_nb.collecting import Collector

SEED = 3


class Dangerous(gymnasium.Env[Any, Any]):
    """Observes its step, its seed and its process; an episode has 7 steps.

    The action 1 raises an error, 2 kills the process, and 3 waits until the file `gate` exists. Before, it creates the
    file `gate` + ".waiting".
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, gate: str = "") -> None:
        self._gate, self._step, self._seed = gate, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._step, self._seed = 0, self._seed if seed is None else seed
        return self._seen(), {}

    def _seen(self) -> Any:
        return np.array([self._step, self._seed % 2**20, os.getpid()], np.float64)

    def step(self, action: Any) -> Any:
        self._step += 1
        if action == 1:
            raise RuntimeError("one is too much")
        if action == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == 3:
            Path(f"{self._gate}.waiting").touch()
            while not Path(self._gate).exists():
                sleep(0.01)
        return self._seen(), 1.0, self._step >= 7, False, {}


gymnasium.register("timerl/Dangerous-v0", Dangerous)


def dangerous(policy: Any, *, gate: str = "", **more: Any) -> Collector:
    """Return a collector of 4 environments, by default with two workers of Ray."""
    env = trl.env.make("gym.timerl/Dangerous-v0", gate=gate)
    named: dict[str, Any] = {"how": "ray", "workers": 2, "envs": 4, "steps": 4, "seed": SEED}
    return trl.collect(env, policy, **(named | more))


def calm(obs: Any) -> Any:
    """Return harmless actions."""
    return np.zeros(len(obs), int)
