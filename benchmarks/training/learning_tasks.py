"""Algorithms with tasks that they must learn: the table of `docs/algorithms/index.md`, and the programs of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.datasets import curves
from benchmarks.datasets.curves import Task

GREEDY: Final = "ε-greedy, ε = 0.01"


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        algorithm: its name in `trl.algorithms`.
        env: the environment's name in the table.
        steps: the number of environment steps, which a run does not exceed.
        threshold: the mean return in the last tenth that the median of five seeds must reach.
        acting: how the policy that acts chooses its actions.
        variant: text in the table that follows the algorithm's name.
        own: the program; None for that of the algorithm's learning curve.
    """

    algorithm: str
    env: str
    steps: int
    threshold: float
    acting: str
    variant: str = ""
    own: Task | None = None

    @property
    def task(self) -> Task:
        return self.own or curves.TASKS[self.algorithm]

    @property
    def label(self) -> str:
        """The algorithm's name in the table."""
        return f"`{self.algorithm}`{self.variant}"

    @property
    def task_name(self) -> str:
        """Name of the environment on the command line."""
        return self.env.split()[0]

    def text(self) -> str:
        """Return the row in Markdown."""
        threshold = f"{self.threshold:g}".replace("-", "−")
        return f"| {self.label} | {self.env} | {self.steps:,} | {threshold} | {self.acting} |"


_CAR: Final[Mapping[str, Any]] = {
    "hidden": (128, 128),
    "steps": 5,
    "gamma": 0.98,
    "lr": 4e-3,
    "target_every": 150,
    "epsilon": (1.0, 0.01, 4_000),
    "scale": (1.0, 15.0),  # velocities are below 0.07
}
_CONTINUOUS_CAR: Final[Mapping[str, Any]] = {
    "steps": 5,
    "batch": 8,
    "buffer_size": 5_000,
    "tau": 0.01,
    "repeat_probability": 0.95,  # independent actions do not move the car
}

ROWS: Final = (
    Row("a2c", "CartPole-v1", 400_000, 475, "sampled"),
    Row("ppo", "CartPole-v1", 1_300_000, 475, "sampled"),
    Row("clipped_ppo", "CartPole-v1", 500_000, 475, "sampled"),
    Row(
        "clipped_ppo",
        "Acrobot-v1",
        500_000,
        -100,
        "sampled",
        own=Task("Acrobot-v1", {"B": 4, "I": 976, "T": 128}),
    ),
    Row("dqn", "CartPole-v1", 120_000, 475, GREEDY),
    Row(
        "dqn",
        "MountainCar-v0",
        200_000,
        -120,
        GREEDY,
        own=Task("MountainCar-v0", {"B": 8, "T": 25_000}, _CAR),
    ),
    Row(
        "dqn",
        "CartPole-v1",
        120_000,
        475,
        GREEDY,
        " with `atoms=51` (C51)",
        Task("CartPole-v1", {"B": 8, "T": 15_000}, {"atoms": 51}),
    ),
    Row("ddpg", "Pendulum-v1", 40_000, -250, "with noise"),
    Row("td3", "Pendulum-v1", 32_000, -250, "with noise"),
    Row("sac", "Pendulum-v1", 32_000, -250, "sampled"),
    Row(
        "sac",
        "MountainCarContinuous-v0",
        100_000,
        90,
        "sampled",
        own=Task("MountainCarContinuous-v0", {"B": 16, "T": 6_250}, _CONTINUOUS_CAR),
    ),
    Row("impala", "CartPole-v1", 500_000, 475, "sampled", " (V-trace)"),
    Row("recurrent_ppo", "T-maze of length 20", 1_000_000, 0.9, "sampled"),
    Row("r2d2", "T-maze of length 20", 500_000, 0.9, GREEDY),
    Row("evolution_strategies", "CartPole-v1", 2_000_000, 475, "perturbed parameters"),
)
