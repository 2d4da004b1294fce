"""Threads that move from acting to training (Algorithm 1): both policies on a run with a slow learner.

The table has the policies' decisions, and the seconds per iteration before the first move and after
the last.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

from timerl_nb.replay import BySpeed, Dqn, Stepwise, train

TURNS, CONSULT = 400, 25


def main() -> None:
    print("| policy | ms a turn at first | at last | ratio | threads at last |")
    print("|---|---|---|---|---|")
    said: list[str] = []
    policies: tuple[Any, ...] = (None, Stepwise(), BySpeed())
    for policy in policies:
        run = train(
            Dqn("CartPole-v1", (512, 512)),
            actors=4,
            groups=4,
            batch=512,
            envs=8,
            steps=8,
            learning_starts=1000,
            policy=policy,
            consult=CONSULT,
            paused=True,
        )
        took: list[float] = []
        for _ in range(TURNS):
            begun = perf_counter()
            run.step()
            run.wait()
            took.append(perf_counter() - begun)
        run.stop()
        run.wait()
        learning = [x for x, turn in zip(took, range(TURNS), strict=True) if turn > TURNS // 8]
        first, last = (1e3 * median(x) for x in (learning[:CONSULT], learning[-CONSULT:]))
        name = "none" if policy is None else type(policy).__name__
        print(f"| {name} | {first:.1f} | {last:.1f} | {last / first:.2f} | {run.allocation} |")
        said += [f"{name}: {move}" for move in run.moves]
    print("\n".join(["", *said[:40]]))
