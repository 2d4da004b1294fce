"""PPO, DQN and SAC of Stable-Baselines3 on the tasks of our algorithms, with our arguments."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

import timerl_nb as trl
from benchmarks.datasets.curves import Task
from timerl_nb.base.array_conversion import Array

NAMES: Final[Mapping[str, str]] = {"clipped_ppo": "PPO", "dqn": "DQN", "sac": "SAC"}
DIFFERENCES: Final = (
    "SB3's DQN neither chooses the next action by the network (double) nor learns distributions. "
    "Its networks start from other weights."
)


def is_installed() -> bool:
    return find_spec("stable_baselines3") is not None


def peer(algorithm: str, task: Task) -> Callable[[int], tuple[Array, Array]] | None:
    """Return a function from a seed to mean returns and numbers of episodes per step of all environments.

    It is None if Stable-Baselines3 has no such algorithm.
    """
    if algorithm not in NAMES or "atoms" in task.arguments or task.env not in _gymnasium():
        return None
    sb3: Any = importlib.import_module("stable_baselines3")
    base: Any = importlib.import_module("stable_baselines3.common.callbacks").BaseCallback
    vectors: Any = importlib.import_module("stable_baselines3.common.env_util")
    torch: Any = importlib.import_module("torch")
    envs, steps = task.bounds["B"], task.iterations * task.steps // task.bounds["B"]
    settings = arguments(algorithm, task)
    of = getattr(sb3, NAMES[algorithm])
    known = inspect.signature(of).parameters
    settings = {name: value for name, value in settings.items() if name in known}

    class Returns(base):
        """Collects the returns of the episodes that end at each step."""

        def __init__(self) -> None:
            super().__init__()
            self.total, self.count = np.zeros(steps + 1), np.zeros(steps + 1)

        def _on_step(self) -> bool:
            at = min(self.n_calls - 1, steps)
            ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
            self.total[at] += sum(ended)
            self.count[at] += len(ended)
            return True

    def run(seed: int) -> tuple[Array, Array]:
        torch.set_num_threads(1)  # small layers: faster than two
        seen = Returns()
        policy = {
            "net_arch": [*settings_of(algorithm, task)["hidden"]],
            "activation_fn": torch.nn.Tanh,
        }
        model = of(
            "MlpPolicy",
            vectors.make_vec_env(task.env, envs, seed=seed),
            **settings,
            policy_kwargs=policy,
            seed=seed,
            device="cpu",
        )
        model.learn(steps * envs, callback=seen)
        return seen.total / np.maximum(seen.count, 1), seen.count

    return run


def settings_of(algorithm: str, task: Task) -> dict[str, Any]:
    """Return all arguments of our algorithm: its defaults, and those of the task."""
    signature = inspect.signature(getattr(trl.algorithms, algorithm))
    defaults = {p.name: p.default for p in signature.parameters.values()}
    return {**defaults, **task.arguments}


def arguments(algorithm: str, task: Task) -> dict[str, Any]:
    """Return SB3's arguments for those of our algorithm."""
    ours, envs = settings_of(algorithm, task), task.bounds["B"]
    found: dict[str, Any] = {"gamma": ours["gamma"]}
    if algorithm == "clipped_ppo":
        return found | {
            "learning_rate": _annealed(ours["lr"]),
            "n_steps": task.bounds["T"],
            "batch_size": task.steps // ours["minibatches"],
            "n_epochs": ours["epochs"],
            "gae_lambda": ours["lam"],
            "clip_range": ours["clip"],
            "clip_range_vf": ours.get("value_clip", ours["clip"]),
            "ent_coef": ours["entropy"],
            "vf_coef": ours["critic"] / 2,  # our loss has half of the squared error
            "max_grad_norm": ours["max_norm"],
        }
    found |= {
        "buffer_size": ours["buffer_size"] * envs,
        "batch_size": ours["batch"] * envs,
        "learning_starts": ours["learning_starts"] * envs,
        "n_steps": ours["steps"],
        "train_freq": 1,
        "gradient_steps": 1,
    }
    if algorithm == "dqn":
        first, last, until = ours["epsilon"]
        return found | {
            "learning_rate": _annealed(ours["lr"]),
            "target_update_interval": ours["target_every"] * envs,
            "exploration_initial_eps": first,
            "exploration_final_eps": last,
            "exploration_fraction": until / task.iterations,
            "max_grad_norm": ours["max_norm"],
        }
    return found | {"learning_rate": ours["lr"][0], "tau": ours["tau"], "ent_coef": "auto"}


def _annealed(rate: float) -> Callable[[float], float]:
    return lambda left: rate * left


def _gymnasium() -> Mapping[str, Any]:
    registry: Mapping[str, Any] = importlib.import_module("gymnasium").registry
    return registry
