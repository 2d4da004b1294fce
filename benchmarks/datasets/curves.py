"""Learning curves of all algorithms in `trl.algorithms`, each on an environment that it learns."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

import timerl_nb as trl
from timerl_nb.base.array_conversion import Array

COLUMNS: Final = ("seed", "iteration", "steps", "return")
SEEDS: Final = range(5)
ROWS: Final = 200  # per seed


@dataclass(frozen=True)
class Task:
    """An algorithm with an environment, the bounds of its program, and arguments that differ from the defaults.

    The outermost loop, the iterations of a curve, is the dimension of `I`, or of `T` without `I`.
    """

    env: str
    bounds: Mapping[str, int]
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def iterations(self) -> int:
        return self.bounds.get("I", self.bounds["T"])

    @property
    def steps(self) -> int:
        """Environment steps of an iteration, including steps after the end of an episode."""
        envs = self.bounds["B"] if "B" in self.bounds else 2 * self.bounds["N"]  # antithetic pairs
        return envs * (self.bounds["T"] if "I" in self.bounds else 1)


TASKS: Final[Mapping[str, Task]] = {
    "reinforce": Task("CartPole-v1", {"B": 32, "I": 100, "T": 200}, {"baseline": True, "lr": 3e-3}),
    # Actor and critic share layers: with the default weight of the critic's loss, it dominates.
    "ppo": Task(
        "CartPole-v1",
        {"B": 8, "I": 325, "T": 500},
        {
            "critic": 1e-3,
            "entropy": 0.0,
            "lam": 0.98,
            "lr": 7e-3,
            "anneal": True,
            "max_norm": 0.5,
            "bootstrap": True,
        },
    ),
    "clipped_ppo": Task("CartPole-v1", {"B": 4, "I": 976, "T": 128}),
    "dqn": Task("CartPole-v1", {"B": 8, "T": 15_000}),
    "ddpg": Task("Pendulum-v1", {"B": 4, "T": 10_000}),
    "a2c": Task("CartPole-v1", {"B": 16, "I": 1_500, "T": 16}),
    "r2d2": Task("TMaze", {"B": 8, "I": 1_950, "T": 32}),
    "td3": Task("Pendulum-v1", {"B": 4, "T": 8_000}),
    "sac": Task("Pendulum-v1", {"B": 4, "T": 8_000}),
    "impala": Task("CartPole-v1", {"B": 16, "I": 1_900, "T": 16}),
    "recurrent_ppo": Task("TMaze", {"B": 32, "I": 122, "T": 128}, {"segment": 32}),
    "evolution_strategies": Task("CartPole-v1", {"N": 16, "I": 125, "T": 500}),
}

Row = tuple[int, int, int, float]


def compile_task(
    name: str, iterations: int | None = None, options: trl.Options | None = None
) -> trl.Program:
    """Compile the program of a curve, or of its first iterations."""
    return compile_row(name, TASKS[name], iterations, options)


def compile_row(
    name: str, task: Task, iterations: int | None = None, options: trl.Options | None = None
) -> trl.Program:
    """Compile an algorithm for a task, or for its first iterations."""
    context = getattr(trl.algorithms, name)(task.env, **task.arguments)
    outermost = "I" if "I" in task.bounds else "T"
    bounds = {**task.bounds, outermost: iterations or task.iterations}
    return context.compile(bounds, options)


def curve(program: trl.Program, name: str, seed: int) -> Iterator[Row]:
    """Run a program once, and yield the rows of its seed."""
    result = program.execute(seed, progress=False)
    returns = np.asarray(result["return"])
    weights = np.asarray(result["episodes"]) if "episodes" in result else np.ones(len(returns))
    for last, mean in thin(returns, weights, -(-TASKS[name].iterations // ROWS)):
        yield seed, last, last * TASKS[name].steps, round(mean, 2)


def thin(returns: Array, weights: Array, width: int) -> Iterator[tuple[int, float]]:
    """Yield the last iteration and the weighted mean of each group of iterations with any weight."""
    for start in range(0, len(returns), width):
        group = slice(start, start + width)
        if (total := weights[group].sum()) > 0:
            mean = float((returns[group] * weights[group]).sum() / total)
            yield min(start + width, len(returns)), mean


def write(name: str, path: Path, seeds: Sequence[int] = SEEDS) -> None:
    """Run an algorithm with each seed, and write the curves into a file."""
    program = compile_task(name, options=trl.Options(executor="xla"))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for seed in seeds:
            writer.writerows(curve(program, name, seed))
