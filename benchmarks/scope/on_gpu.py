"""What RL-Scope found of GPUs (F.7 to F.9, F.11, C.4), where PyTorch finds one: `python -m benchmarks scope gpu`."""

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
from timerl_nb.scope.overlap import Breakdown

# By algorithm, its environment, and how many steps are looked at.
WORKS: Final = {
    "DDPG": ("Pendulum-v1", 200),
    "SAC": ("Pendulum-v1", 100),
    "DQN": ("CartPole-v1", 500),
    "A2C": ("CartPole-v1", 500),
    "PPO": ("CartPole-v1", 512),
}
ROUNDS: Final = 3
LEARNING: Final = [f"{name} (guessed)" for name in ("inference", "learn", "backward", "update")]


def main() -> None:
    """Print a row for each finding, and what each work took; or that there is no GPU."""
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
        with trl.scope.record(calibrated=False) as rec, trl.scope.devices():
            learn()
        tables[name], said[name] = rec.table(), rec.utilization()[0]
        slower[name] = _slower(learn)
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


def _learning(one: Any, steps: int, torch: Any) -> Callable[[], None]:
    def learn() -> None:
        one.learn(steps, reset_num_timesteps=False)
        torch.cuda.synchronize()

    return learn


def _slower(learn: Callable[[], None]) -> float:
    """How many times as long it takes where all is recorded and traced, by turns."""
    plain, traced = list[float](), list[float]()
    for _ in range(ROUNDS):
        begun = perf_counter()
        learn()
        plain.append(perf_counter() - begun)
        with trl.scope.record(calibrated=False), trl.scope.devices():
            begun = perf_counter()
            learn()
            traced.append(perf_counter() - begun)
    return median(traced) / median(plain)
