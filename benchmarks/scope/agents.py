"""Small Stable-Baselines3 agents for profiling."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

# By algorithm: hyper-parameters that give some updates within a few hundred steps.
OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "A2C": {},
    "PPO": {"n_steps": 256, "batch_size": 64, "n_epochs": 4},
    "DQN": {"learning_starts": 100, "train_freq": 4},
    "DDPG": {"learning_starts": 100},
    "SAC": {"learning_starts": 100},
    "TD3": {"learning_starts": 100},
}


def agent(algorithm: str, env: Any, **options: Any) -> Any:
    """Return an untrained agent, limited to one thread."""
    warnings.filterwarnings("ignore")
    importlib.import_module("torch").set_num_threads(1)
    sb3 = importlib.import_module("stable_baselines3")
    given = {"seed": 0, "device": "cpu", **OPTIONS[algorithm], **options}
    return getattr(sb3, algorithm)("MlpPolicy", env, **given)


def learning(algorithm: str, env: str, steps: int, **options: Any) -> Callable[[], None]:
    """Return a function that restarts learning at each call."""

    def learn() -> None:
        agent(algorithm, env, **options).learn(steps)

    return learn
