"""A simulation alone, block by block and whole: environments whose states together outgrow the cache.

CartPole's equations for small angles with random actions, each environment's state `copies` times over: K steps
in one call, nothing kept but the last state. All run in turn, in one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter

import numpy as np

import timerl_nb as trl
from benchmarks.race import WARM

STEPS = 100
MIB = 1 << 20
# Environments, and copies of the four numbers that are a state: 16, 16, 64 and a quarter MiB.
SHAPES = ((16_384, 64), (1_024, 1_024), (16_384, 256), (16_384, 1))
SIZES = (32, 128, 512, 2_048)


def simulation(copies: int) -> trl.Context:
    """Environments (b) that are pushed at random for T steps (t)."""
    with trl.Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims
        at = trl.random.uniform((4, copies), -0.05, 0.05, domain=(b,))
        state = trl.like(at, domain=(b, t))
        state[b, 0] = at
        x, v, angle, turning = (state.take(k) for k in range(4))
        push = trl.where(trl.random.uniform((), domain=(b, t)) < 0.5, -10.0, 10.0)
        sin, cos = angle, 1.0 - angle * angle / 2.0
        force = (push + 0.05 * turning * turning * sin) / 1.1
        speeding = (9.8 * sin - cos * force) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        moving = force - 0.05 * speeding * cos / 1.1
        later = [x + 0.02 * v, v + 0.02 * moving, angle + 0.02 * turning, turning + 0.02 * speeding]
        state[b, t + 1] = trl.stack(later).clip(-2.0, 2.0)
        ctx.output("last", state[b, T - 1])
    return ctx


def race(count: int, copies: int, tiles: Sequence[object], rounds: int) -> list[list[float]]:
    """Seconds of each round by tile, all tiles in turn."""
    ctx = simulation(copies)
    programs = [
        ctx.compile({"B": count, "T": STEPS}, trl.Options(executor="xla", tile=tile))  # pyright: ignore[reportArgumentType]
        for tile in tiles
    ]
    times: list[list[float]] = [[] for _ in programs]
    made = [program.execute(seed=1, progress=False)["last"] for program in programs]
    assert all(np.array_equal(made[0], one) for one in made), "blocks make other numbers"
    for k in range(WARM + rounds):
        for program, spent in zip(programs, times, strict=True):
            began = perf_counter()
            program.execute(seed=k, progress=False)
            if k >= WARM:
                spent.append(perf_counter() - began)
    return times


def main(rounds: int = 10) -> None:
    """Print medians, least and greatest, as steps a second, and ratios to the whole's median."""
    print(f"| environments, state | blocks | million steps/s ({rounds} rounds) | times as fast |")
    print("|---|---|---|---|")
    for count, copies in SHAPES:
        sizes = [size for size in SIZES if size < count]
        times = race(count, copies, [False, *({"b": size} for size in sizes), "auto"], rounds)
        held = f"{count:,}, {count * copies * 16 / MIB:g} MiB"
        for blocks, spent in zip(["none", *map(str, sizes), "auto"], times, strict=True):
            speeds = [count * STEPS / s / 1e6 for s in (median(spent), max(spent), min(spent))]
            ratio = median(a / b for a, b in zip(times[0], spent, strict=True))
            shown = f"{speeds[0]:.2f} ({speeds[1]:.2f}–{speeds[2]:.2f})"
            print(f"| {held} | {blocks} | {shown} | {ratio:.2f} |", flush=True)
