"""Steps per second of `how="ray"` beside "processes" and "loop" on one machine, interleaved.

The cheap environment is Gymnasium's CartPole. The expensive one adds about a millisecond of NumPy to
each of its steps. Ratios are of medians.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

import timerl_nb as trl

ROUNDS: Final = 9
SIZE: Final = 20_000  # numbers; no matrices, whose products use several threads in some processes
PASSES: Final = 5  # per step
BUSY: Final = "timerl/BusyCartPole-v0"
HOWS: Final = ("loop", "processes", "ray")


class BusyCartPole(CartPoleEnv):
    """CartPole with expensive steps."""

    _numbers = np.linspace(-1, 1, SIZE)

    def step(self, action: Any) -> Any:
        x = self._numbers
        for _ in range(PASSES):
            x = np.sin(x)
        return super().step(action)


gymnasium.register(BUSY, BusyCartPole, max_episode_steps=500)


@dataclass(frozen=True)
class Case:
    """One collecting task."""

    name: str
    env: str
    envs: int
    steps: int


CASES: Final = (
    Case("cheap", "gym.CartPole-v1", 16, 64),
    Case("cheap, few steps a batch", "gym.CartPole-v1", 16, 8),
    Case("expensive", f"gym.{BUSY}", 16, 16),
)


def measure(case: Case, workers: int, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return the steps per second of each batch, by strategy."""
    policy = trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), hidden=[64, 64])
    speeds = {how: list[float]() for how in HOWS}
    with ExitStack() as stack:
        opened = {}
        for how in HOWS:
            more: dict[str, Any] = {"workers": workers} if how == "ray" else {}
            sizes: dict[str, Any] = {"envs": case.envs, "steps": case.steps}
            c = trl.collect(case.env, policy, how=how, **sizes, **more)
            opened[how] = stack.enter_context(c)
            opened[how].next()
        for _ in range(rounds):
            for how, c in opened.items():
                began = perf_counter()
                count = c.next().count
                speeds[how].append(count / (perf_counter() - began))
    return speeds


def table(workers: int = 2, cases: Sequence[Case] = CASES, rounds: int = ROUNDS) -> Iterator[str]:
    """Return Markdown rows."""
    yield f"| environment | N, K | {', '.join(HOWS)}: steps/s | ray to processes | ray to loop |"
    yield "|---|---|---|---|---|"
    for case in cases:
        speeds = {how: median(found) for how, found in measure(case, workers, rounds).items()}
        figures = ", ".join(f"{x:,.0f}" for x in speeds.values())
        ratios = " | ".join(f"{speeds['ray'] / speeds[how]:.2f}" for how in ("processes", "loop"))
        yield f"| {case.name} | {case.envs}, {case.steps} | {figures} | {ratios} |"
