"""DQN on CartPole: learning and environment steps per second of our two forms and of peers, interleaved.

All use eight environments, a network of two layers of 64, batches of 64 from 16,000 rows, a target
network, and one learning step per step of all environments. Ours and Stable-Baselines3 draw
uniformly. The table lists packages that are not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import timerl_nb as trl
from benchmarks.replay.pytorch_dqn import script
from timerl_nb.replay import Dqn, Proportional, Replay, train

ENVS, BATCH, ROWS, ROUNDS = 8, 64, 16_000, 3
HIDDEN = (64, 64)
WINDOW, BESIDE, OTHERS = 2_000, 200, 200  # learning steps of a round


def window(alpha: float | None) -> Callable[[], float]:
    """Window form: each measurement is a whole run, including the steps before learning starts."""
    how: dict[str, Any] = {"hidden": HIDDEN, "buffer_size": ROWS // ENVS, "batch": BATCH // ENVS}
    context = trl.algorithms.dqn(**how, steps=1, alpha=alpha, learning_starts=0)
    program = context.compile({"B": ENVS, "T": WINDOW}, trl.Options(executor="xla"))
    program.execute(progress=False)
    return _rate(WINDOW, lambda: program.execute(progress=False))


def beside(priority: Proportional | None) -> Callable[[], float]:
    """`trl.replay.train` in mode "exact": a block of one step per environment for each learning step."""
    algorithm = Dqn("CartPole-v1", HIDDEN)
    run = train(
        algorithm,
        mode="exact",
        buffer=Replay(ROWS, algorithm.fields, priority=priority),
        groups=2,
        envs=ENVS,
        steps=1,
        batch=BATCH,
        learning_starts=8 * BATCH,
        paused=True,
    )
    run.step(100)
    run.wait()

    def more() -> None:
        run.step(BESIDE)
        run.wait()

    return _rate(BESIDE, more)


def sb3() -> Callable[[], float]:
    """Stable-Baselines3, which alternates acting and learning."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    of: Any = importlib.import_module("stable_baselines3")
    made: Any = importlib.import_module("stable_baselines3.common.env_util")
    model = of.DQN(
        "MlpPolicy",
        made.make_vec_env("CartPole-v1", ENVS),
        buffer_size=ROWS,
        batch_size=BATCH,
        learning_starts=8 * BATCH,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=ENVS * 500,
        policy_kwargs={"net_arch": [*HIDDEN]},
        device="cpu",
    )
    model.learn(8 * BATCH + 50 * ENVS)
    return _rate(OTHERS, lambda: model.learn(OTHERS * ENVS, reset_num_timesteps=False))


def by_script() -> Callable[[], float]:
    """Plain PyTorch in the style of CleanRL."""
    more = script(ENVS, HIDDEN, ROWS, BATCH, 8 * BATCH)
    more(50)
    return _rate(OTHERS, lambda: more(OTHERS))


def _rate(steps: int, take: Callable[[], object]) -> Callable[[], float]:
    """Run learning steps, and return their number per second."""

    def run() -> float:
        begun = perf_counter()
        take()
        return steps / (perf_counter() - begun)

    return run


SYSTEMS: dict[str, Callable[[], Callable[[], float]]] = {
    "SB3": sb3,
    "a script in PyTorch": by_script,
    "window": lambda: window(None),
    "window, by priority": lambda: window(0.6),
    "trl.replay.train": lambda: beside(None),
    "trl.replay.train, by priority": lambda: beside(Proportional()),
}


def main() -> None:
    runs: dict[str, Callable[[], float]] = {}
    lacking: list[str] = []
    for name, make in SYSTEMS.items():
        try:
            runs[name] = make()
        except ImportError as error:
            lacking.append(f"{name} was not there: {error}")
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            found[name].append(run())
    print("| system | steps of learning a second | steps of environments | over SB3 |")
    print("|---|---|---|---|")
    for name, speeds in found.items():
        ratio = "–"
        if "SB3" in found:
            each = [a / b for a, b in zip(speeds, found["SB3"], strict=True)]
            ratio = f"{median(each):.2f} ({min(each):.2f} to {max(each):.2f})"
        rate = median(speeds)
        print(f"| {name} | {rate:,.0f} | {rate * ENVS:,.0f} | {ratio} |", flush=True)
    print("\n".join(["", *lacking]))
