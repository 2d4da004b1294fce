"""RL-Scope's GPU findings (F.7 to F.9, F.11, C.4) on a real GPU, by PyTorch:

`python -m benchmarks scope gpu`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from statistics import mean, median
from time import perf_counter
from typing import Any, Final

import timerl_nb as trl
from benchmarks.finding import Finding, table
from benchmarks.scope.agents import agent
from benchmarks.scope.devices import f7, f8, f9
from timerl_nb.scope.analysis.time_breakdown import Breakdown

# By algorithm: environment, and number of recorded steps.
WORKS: Final = {
    "DDPG": ("Pendulum-v1", 100),
    "SAC": ("Pendulum-v1", 60),
    "DQN": ("CartPole-v1", 400),
    "A2C": ("CartPole-v1", 400),
    "PPO": ("CartPole-v1", 256),
}
PLAIN: Final = 2  # rounds before the traced one, and after it
LEARNING: Final = [f"{name} (guessed)" for name in ("inference", "learn", "backward", "update")]


def main() -> None:
    """Print a row for each finding and the time of each workload, or the absence of a GPU."""
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        print("gpu is not shown: PyTorch finds none")
        return
    source = torch.cuda.get_device_name()
    tables: dict[str, Breakdown] = {}
    said: dict[str, Any] = {}
    slower: dict[str, float] = {}
    for name, (env, steps) in WORKS.items():
        one = agent(name, env, device="cuda")
        one.learn(max(steps, 200))
        learn = _learning(one, steps, torch)
        plain = [learn() for _ in range(PLAIN)]
        with trl.scope.record(calibrated=False) as rec, trl.scope.devices():
            traced = learn()
        plain += [learn() for _ in range(PLAIN)]
        tables[name], said[name] = rec.table(), rec.utilization()[0]
        slower[name] = traced / median(plain)
        print(f"{name}\n\n```text\n{rec.table()}\n{said[name]}\n```\n", flush=True)
    most = max(said, key=lambda name: said[name].reported - said[name].busy)
    print(
        table(
            [
                f7(tables, {}, source),
                f8(tables, {}, source),
                f9(tables, {}, source, LEARNING),
                Finding.of(
                    "F.11",
                    f"`nvidia-smi` against kernels, of {most}",
                    f"{said[most].reported:.0%} against {said[most].busy:.1%}",
                    "",
                    "100 % against 0.4 % of one",
                    said[most].reported > 0.99 and said[most].busy < 0.5,
                    source,
                ),
                Finding.of(
                    "C.4",
                    "recorded and traced over neither",
                    f"{min(slower.values()):.2f} to {max(slower.values()):.2f} x, mean {mean(slower.values()):.2f}",
                    "",
                    "1.6 to 2.2 x",
                    1.3 < mean(slower.values()) < 2.6,
                    source,
                ),
            ]
        )
    )


def _learning(one: Any, steps: int, torch: Any) -> Callable[[], float]:
    """Learn for a number of steps, and return the seconds."""

    def learn() -> float:
        begun = perf_counter()
        one.learn(steps, reset_num_timesteps=False)
        torch.cuda.synchronize()
        return perf_counter() - begun

    return learn
