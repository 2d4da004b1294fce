"""DQN and DDPG, as windows of a program's past, until they have learnt: returns by tenths of the run, and seconds.

What a run comes to is the mean return of the episodes that ended in its last tenth, with the exploration
that is left then. The first run, which compiles, is not among those that are timed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import numpy as np

import timerl_nb as trl

PARTS: Final = 10


@dataclass(frozen=True)
class Task:
    """What is learnt, by which algorithm, in how many steps of how many environments, and what counts as learnt."""

    env: str
    algorithm: str
    envs: int
    steps: int
    goal: float
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


TASKS: Final[Mapping[str, Task]] = {
    "cartpole": Task("CartPole-v1", "dqn", 8, 15_000, 475),
    "cartpole-priorities": Task("CartPole-v1", "dqn", 8, 15_000, 475, {"alpha": 0.6}),
    # Velocities are below 0.07: a network that sees them as they are gets there by two seeds of three.
    "mountain-car": Task(
        "MountainCar-v0",
        "dqn",
        8,
        24_000,
        -120,
        {
            "hidden": (128, 128),
            "steps": 5,
            "gamma": 0.98,
            "lr": 4e-3,
            "target_every": 150,
            "epsilon": (1.0, 0.03, 4_000),
            "scale": (1.0, 15.0),
        },
    ),
    "pendulum": Task("Pendulum-v1", "ddpg", 4, 10_000, -250),
    "mountain-car-continuous": Task(
        "MountainCarContinuous-v0", "ddpg", 4, 20_000, 90, {"lasting": 0.9, "steps": 5}
    ),
}


def tenths(returns: np.ndarray, episodes: np.ndarray) -> list[float]:
    """The mean return of the episodes that ended in each part of a run; NaN where none did."""
    parts = zip(np.array_split(returns, PARTS), np.array_split(episodes, PARTS), strict=True)
    return [float((r * n).sum() / n.sum()) if n.sum() else float("nan") for r, n in parts]


def main(*names: str, seeds: int = 3) -> None:
    """Print a row per seed, and whether the median of what they came to is what counts as learnt."""
    print("| task | seed | s | steps/s | return by tenths |")
    print("|---|---|---|---|---|")
    for name in names or TASKS:
        task = TASKS[name]
        ctx = getattr(trl.algorithms, task.algorithm)(task.env, **task.options)
        program = ctx.compile({"B": task.envs, "T": task.steps}, trl.Options(executor="xla"))
        program.execute(seeds, progress=False)
        came_to: list[float] = []
        for seed in range(seeds):
            began = time.perf_counter()
            result = program.execute(seed, progress=False)
            seconds = time.perf_counter() - began
            curve = tenths(result["return"], result["episodes"])
            came_to.append(curve[-1])
            shown = " ".join(f"{x:.0f}" for x in curve)
            print(f"| {name} | {seed} | {seconds:.1f} | {task.steps / seconds:,.0f} | {shown} |")
        found = median(came_to)
        judged = "learnt" if found >= task.goal else "not learnt"
        print(f"| {name} | | | | {found:.0f} of {task.goal:g}: {judged} |", flush=True)
