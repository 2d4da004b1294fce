"""Stock PPO on CartPole, full runs: steps per second, final returns, and seconds until solved.

Systems alternate, seed by seed. The first run of each system includes compilation and counts as
start-up time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

import jax
import numpy as np

import timerl_nb as trl
from benchmarks.training.peers import stock
from benchmarks.works import Stock

GOAL: Final = 475.0  # CartPole-v1 counts as solved at this return
EPISODES: Final = 100  # episodes of the mean that is compared with it
WORK: Final = Stock()

Run = Callable[[int], tuple[np.ndarray, np.ndarray]]  # seed to returns and episodes by iteration


@dataclass(frozen=True)
class Learnt:
    """One run: seconds, final mean return, and time until the goal.

    `solved` is the number of iterations until the goal; None if it was not reached.
    """

    seconds: float
    last: float
    solved: int | None


def ours(work: Stock, together: int) -> Run:
    options = trl.Options(executor="xla", fuse_iterations=together)
    program = work.compile(work.iterations, options)

    def run(seed: int) -> tuple[np.ndarray, np.ndarray]:
        result = program.execute(seed, progress=False)
        return result["return"], result["episodes"]

    return run


def jitted(work: Stock, together: int) -> Run:
    one = stock.iteration(work)
    several = jax.jit(lambda carry: jax.lax.scan(lambda c, _: one(c), carry, None, together))

    def run(seed: int) -> tuple[np.ndarray, np.ndarray]:
        carry, found = stock.start(work, seed), []
        for _ in range(work.iterations // together):
            carry, (_, *seen) = several(carry)
            found.append(seen)
        returns, episodes = zip(*jax.device_get(found), strict=True)
        return np.concatenate(returns), np.concatenate(episodes)

    return run


def systems(work: Stock) -> Mapping[str, Callable[[], Run]]:
    return {
        "jitted": lambda: jitted(work, 1),
        "ours": lambda: ours(work, 1),
        "jitted, whole": lambda: jitted(work, work.iterations),
        "ours, whole": lambda: ours(work, work.iterations),
    }


def recent(returns: np.ndarray, episodes: np.ndarray, until: int) -> float:
    """Return the mean return of the last EPISODES or more episodes before iteration `until`; NaN without episodes."""
    counts = episodes[:until][::-1]
    taken = 1 + int(np.searchsorted(np.cumsum(counts), EPISODES))
    counts = counts[:taken]
    return float((returns[:until][::-1][:taken] * counts).sum() / max(counts.sum(), 1))


def learnt(run: Run, seed: int) -> Learnt:
    began = time.perf_counter()
    returns, episodes = run(seed)
    seconds = time.perf_counter() - began
    enough = int(np.searchsorted(np.cumsum(episodes), EPISODES)) + 1
    reached = (k for k in range(enough, len(returns) + 1) if recent(returns, episodes, k) >= GOAL)
    return Learnt(seconds, recent(returns, episodes, len(returns)), next(reached, None))


def main(seeds: int | str = 5, work: Stock = WORK) -> None:
    """Print a row per system: medians over seeds, with minimum and maximum in brackets."""
    seeds = int(seeds)
    runs: dict[str, Run] = {}
    starts: dict[str, float] = {}
    found: dict[str, list[Learnt]] = {}
    for name, make in systems(work).items():
        began = time.perf_counter()
        runs[name] = make()
        runs[name](0)
        starts[name] = time.perf_counter() - began
        found[name] = []
    for seed in range(1, seeds + 1):
        for name, run in runs.items():
            found[name].append(learnt(run, seed))
    steps = work.iterations * work.points
    print(
        f"| C, {seeds} seeds | first run, s | s | steps/s | over jitted | return | s until {GOAL:g} |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, rows in found.items():
        seconds = [row.seconds for row in rows]
        ratios = [a.seconds / b.seconds for a, b in zip(found["jitted"], rows, strict=True)]
        waits = [
            float("inf") if x.solved is None else x.solved / work.iterations * x.seconds
            for x in rows
        ]
        print(
            f"| {name} | {starts[name]:.1f} | {_of(seconds)} | {steps / median(seconds):,.0f} "
            f"| {median(ratios):.2f} | {_of([row.last for row in rows])} | {_of(waits)} |"
        )


def _of(values: list[float]) -> str:
    return f"{median(values):.2f} [{min(values):.2f} to {max(values):.2f}]"
