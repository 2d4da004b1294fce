"""One program with eight seeds against eight sequential runs, interleaved, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import timerl_nb as trl
from timerl_nb.driver.program import Program

SEEDS = 8
BOUNDS = {"B": 64, "I": 20, "T": 500}  # the README's
WORKS: dict[str, Callable[..., trl.Context]] = {
    "REINFORCE": trl.algorithms.reinforce,
    "PPO": trl.algorithms.ppo,
}


def main(rounds: int = 5, bounds: dict[str, int] | None = None) -> list[str]:
    """Print a row per program: ratios of times, with minimum and maximum, and of peaks."""
    lines = [
        "| work | one program / eight runs | from, to | peak / one run's |",
        "|---|---|---|---|",
    ]
    for name, write in WORKS.items():
        ctx = write("CartPole-v1", hidden=[32, 32])
        under = bounds or BOUNDS
        together = ctx.compile(under, seeds=SEEDS, tell=False)
        alone = ctx.compile(under, tell=False)
        for program in (together, alone):
            program.execute(progress=False)  # XLA compiles
        ratios = [_seconds(together, 1) / _seconds(alone, SEEDS) for _ in range(rounds)]
        peaks = together.memory.peak / alone.memory.peak
        ends = f"{min(ratios):.2f}, {max(ratios):.2f}"
        lines.append(f"| {name} | {median(ratios):.2f} | {ends} | {peaks:.2f} |")
    print("\n".join(lines))
    return lines


def _seconds(program: Program, times: int) -> float:
    start = time.perf_counter()
    for seed in range(times):
        program.execute(seed, progress=False)
    return time.perf_counter() - start
