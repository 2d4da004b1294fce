"""Learning of all algorithms: returns in the last tenth of a run against thresholds, and times.

The table of tasks is `learning_tasks.ROWS`. If Stable-Baselines3 is installed, its PPO, DQN and SAC run the same
tasks, with as many environment steps and corresponding arguments. The two systems alternate, seed by seed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

import numpy as np

import timerl_nb as trl
from benchmarks.datasets import curves
from benchmarks.training.learning_tasks import ROWS, Row
from benchmarks.training.off_policy import tenths
from benchmarks.training.peers import sb3_learning
from timerl_nb.base.array_conversion import Array

Run = Callable[[int], tuple[Array, Array]]  # from a seed to returns and numbers of episodes
HEADER: Final = (
    "| algorithm | task | system | return, median | minimum | threshold | | steps/s | s |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def ours(row: Row) -> Run:
    """Compile a row's program, and return its runs."""
    program = curves.compile_row(row.algorithm, row.task, options=trl.Options(executor="xla"))

    def run(seed: int) -> tuple[Array, Array]:
        result = program.execute(seed, progress=False)
        returns = np.asarray(result["return"])
        count = result["episodes"] if "episodes" in result else np.ones(len(returns))
        return returns, np.asarray(count)

    return run


def systems(row: Row) -> dict[str, Run]:
    """Return the runs of a row by system."""
    found = {"TimeRL-nb": ours(row)}
    other = sb3_learning.peer(row.algorithm, row.task) if sb3_learning.is_installed() else None
    return found if other is None else {**found, "Stable-Baselines3": other}


def chosen(words: Sequence[str]) -> list[Row]:
    """Return the rows of the named algorithms or tasks, all by default.

    Raises:
        SystemExit: a name fits no row.
    """
    for word in words:
        if not any(word in (row.algorithm, row.task_name) for row in ROWS):
            known = dict.fromkeys(
                [*(row.algorithm for row in ROWS), *(row.task_name for row in ROWS)]
            )
            raise SystemExit(
                f"no algorithm or task is named {word!r}; choose from {', '.join(known)}."
            )
    rows = [r for r in ROWS if not words or {r.algorithm, r.task_name} & {*words}]
    missing = sorted({row.algorithm for row in rows} - {*trl.algorithms.__all__})
    if missing:
        raise SystemExit(f"trl.algorithms has no {', '.join(missing)}.")
    return rows


def main(*words: str) -> None:
    """Print a table: a line per row of tasks and system, over the seeds from 0 on."""
    parser = argparse.ArgumentParser("python -m benchmarks learning", description=__doc__)
    parser.add_argument("names", nargs="*", help="algorithms or tasks (default: all)")
    parser.add_argument("--seeds", type=int, default=5, help="the number of seeds (default: 5)")
    given = parser.parse_args(words)
    if given.seeds < 1:
        parser.error("--seeds must be at least 1")
    rows = chosen(given.names)
    print(HEADER, flush=True)
    for row in rows:
        runs = systems(row)
        last: dict[str, list[float]] = {name: [] for name in runs}
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for seed in range(given.seeds):
            for name, run in runs.items():
                began = time.perf_counter()
                found = run(seed)
                seconds[name].append(time.perf_counter() - began)
                last[name].append(tenths(*found)[-1])
        for name in runs:
            print(line(row, name, last[name], seconds[name]), flush=True)
    print("\nThe first run of TimeRL-nb includes compilation by XLA.")
    if not sb3_learning.is_installed():
        print(
            "Stable-Baselines3 is not installed here. `make torch-env` installs it; then run "
            "`.venv-torch/bin/python -m benchmarks learning`."
        )
    else:
        print(sb3_learning.DIFFERENCES)


def line(row: Row, system: str, last: Sequence[float], seconds: Sequence[float]) -> str:
    """Return a line of the table: medians over seeds, and the minimum of the returns."""
    came_to, took = median(last), median(seconds)
    judged = "reached" if came_to >= row.threshold else "missed"
    steps = row.task.iterations * row.task.steps
    return (
        f"| {row.label} | {row.env} | {system} | {came_to:.4g} | {min(last):.4g} "
        f"| {row.threshold:g} | {judged} | {steps / took:,.0f} | {took:.1f} |"
    )
