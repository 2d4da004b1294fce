"""DQN as a single PyTorch script in the style of CleanRL:

Gymnasium environments, NumPy buffer, autograd.

Written for this comparison without logging, callbacks or policy classes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np


def script(
    envs: int, hidden: Sequence[int], rows: int, batch: int, least: int
) -> Callable[[int], None]:
    """Return a function that runs environment steps, each with one learning step.

    Args:
        envs: Number of environments, stepped one after the other.
        rows: Rows of the buffer; a step of all environments writes `envs`.
        batch: Rows per learning step, drawn uniformly.
        least: Rows written by random actions before learning starts.
    """
    gym, torch = importlib.import_module("gymnasium"), importlib.import_module("torch")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    made = gym.vector.SyncVectorEnv(
        [lambda: gym.make("CartPole-v1")] * envs,
        autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
    )
    online, target = _network(torch, hidden), _network(torch, hidden)
    target.load_state_dict(online.state_dict())
    adam = torch.optim.Adam(online.parameters(), 2.5e-4)
    fields = {"obs": 4, "action": 1, "reward": 1, "next_obs": 4, "terminated": 1}
    kept = {name: np.zeros((rows, size), np.float32) for name, size in fields.items()}
    state = {"obs": made.reset(seed=0)[0], "written": 0}

    def act(chance: float) -> None:
        obs = state["obs"]
        action = rng.integers(2, size=envs)
        if chance < 1:
            with torch.no_grad():
                best = online(torch.from_numpy(obs)).argmax(1).numpy()
            action = np.where(rng.random(envs) < chance, action, best)
        after, reward, terminated, truncated, infos = made.step(action)
        following = after
        if (terminated | truncated).any():
            following = after.copy()
            for k in np.flatnonzero(terminated | truncated):
                following[k] = infos["final_obs"][k]
        at = np.arange(state["written"], state["written"] + envs) % rows
        for name, value in zip(kept, (obs, action, reward, following, terminated), strict=True):
            kept[name][at] = value.reshape(envs, -1)
        state["obs"], state["written"] = after, state["written"] + envs

    def learn() -> None:
        at = rng.integers(min(state["written"], rows), size=batch)
        drawn = {name: torch.from_numpy(value[at]) for name, value in kept.items()}
        with torch.no_grad():
            best = target(drawn["next_obs"]).max(1, keepdim=True).values
            wanted = drawn["reward"] + 0.99 * best * (1 - drawn["terminated"])
        taken = online(drawn["obs"]).gather(1, drawn["action"].long())
        loss = torch.nn.functional.mse_loss(taken, wanted)
        adam.zero_grad()
        loss.backward()
        adam.step()
        if state["written"] // envs % 500 == 0:
            target.load_state_dict(online.state_dict())

    while state["written"] < least:
        act(1.0)

    def run(steps: int) -> None:
        for _ in range(steps):
            act(0.05)
            learn()

    return run


def _network(torch: Any, hidden: Sequence[int]) -> Any:
    layers: list[Any] = []
    for taken, made in pairwise((4, *hidden)):
        layers += [torch.nn.Linear(taken, made), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(hidden[-1], 2))
