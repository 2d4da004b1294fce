"""Concurrent training against sequential training: equal blocks and learning steps per second, interleaved.

`serial` does all on one thread: act a block, insert it, draw a batch, learn, update priorities.
`free` and `exact` are modes of `trl.replay.train`. The networks make a block about as long as a
learning step; the table shows both times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

import timerl_nb as trl
from timerl_nb.replay import Dqn, Proportional, Replay, train

TURNS, ROUNDS = 100, 3
# strategy, then sizes: layers, batch, environments, and steps of a block
WORKS: Mapping[str, tuple[str, tuple[int, ...], int, int, int]] = {
    "scan": ("CartPole-v1", (256, 256), 256, 64, 24),
    "loop": ("gym.CartPole-v1", (256, 256), 256, 8, 5),
}


def serial(name: str) -> tuple[Callable[[], float], dict[str, list[float]]]:
    """Return a function that runs sequential iterations and returns seconds per iteration and per part."""
    env, hidden, batch, envs, steps = WORKS[name]
    algorithm = Dqn(env, hidden)
    buffer = Replay(100_000, algorithm.fields, priority=Proportional())
    state = algorithm.begin(0)
    parts: dict[str, list[float]] = {"acting": [], "learning": []}
    how = "scan" if name == "scan" else "loop"
    collector = trl.collect(
        env, algorithm.act, envs=envs, steps=steps, how=how, params=algorithm.acting(state)
    )
    while len(buffer) < 2 * batch:
        buffer.insert(collector.next())

    def run() -> float:
        nonlocal state
        begun = perf_counter()
        for _ in range(TURNS):
            acting = perf_counter()
            rows = collector.next(algorithm.acting(state)).numpy()
            parts["acting"].append(perf_counter() - acting)
            buffer.insert(rows)
            sample = buffer.sample(batch)
            learning = perf_counter()
            gradient, errors, loss = algorithm.gradient(state, sample.rows, sample.weight)
            state = algorithm.step(state, gradient, batch)
            float(loss)
            parts["learning"].append(perf_counter() - learning)
            buffer.update(sample.ticket, errors)
        return (perf_counter() - begun) / TURNS

    return run, parts


class Beside:
    """Training run that advances by a given number of iterations."""

    def __init__(self, name: str, mode: Any) -> None:
        env, hidden, batch, envs, steps = WORKS[name]
        self.block = envs * steps
        self.run = train(
            Dqn(env, hidden),
            mode=mode,
            groups=2,
            batch=batch,
            envs=envs,
            steps=steps,
            learning_starts=2 * batch,
            paused=True,
        )
        self.run.step(50)
        self.run.wait()

    def __call__(self) -> float:
        """Return the seconds per block or per learning step, of the rarer one."""
        before, begun = self.run.experience, perf_counter()
        self.run.step(TURNS)
        self.run.wait()
        seconds, blocks = perf_counter() - begun, (self.run.experience - before) / self.block
        return seconds / min(TURNS, blocks)


def main() -> None:
    print("| work | serial, ms a turn | acting | learning | exact / serial | free / serial |")
    print("|---|---|---|---|---|---|")
    for name in WORKS:
        alone, parts = serial(name)
        runs = {mode: Beside(name, mode) for mode in ("exact", "free")}
        found: dict[str, list[float]] = {"serial": [], "exact": [], "free": []}
        alone()
        parts["acting"].clear(), parts["learning"].clear()
        for _ in range(ROUNDS):
            found["serial"].append(alone())
            for mode, run in runs.items():
                found[mode].append(run())
        for one in runs.values():
            one.run.stop()
        each = " | ".join(f"{1e3 * median(parts[x]):.2f}" for x in ("acting", "learning"))
        faster = " | ".join(
            f"{median(x):.2f} × ({min(x):.2f} to {max(x):.2f})"
            for x in (
                [a / b for a, b in zip(found["serial"], found[m], strict=True)]
                for m in ("exact", "free")
            )
        )
        print(f"| {name} | {1e3 * median(found['serial']):.2f} | {each} | {faster} |", flush=True)
