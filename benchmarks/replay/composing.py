"""Predictions of `trl.compose` against measured iterations, for every mapping available here.

Each mapping has a training run. The actor adds at most one block of 64 steps per iteration.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import jax

from timerl_nb.compose import choose, measure
from timerl_nb.compose.assignment_search import Iteration
from timerl_nb.replay import Dqn, train

# batch and layers
WORKS = ((32, (64, 64)), (64, (256, 256)), (512, (256, 256)))
MODELLED = ("A100", "Agilex")
INSERTED, TURNS, ROUNDS = 64, 100, 5
WARM = 3  # warm-up rounds: actors compile meanwhile


def main() -> None:
    devices = ["CPU", "CPU x2", *(f"CPU:{k}" for k in range(1, len(jax.devices())))]
    print("| batch, layers | mapping | predicted, ms | measured, ms | off by | |")
    print("|---|---|---|---|---|---|")
    grids: list[str] = []
    for batch, hidden in WORKS:
        algorithm = Dqn("CartPole-v1", hidden)
        table, links = measure(algorithm, devices, batch=batch, inserted=INSERTED)
        choice = choose(table, links)
        there = [one for one in choice.all if not one.why_not and one.manager == "CPU"]
        took = _measured(algorithm, batch, there)
        fastest = min(took.values())
        for one in there:
            seconds = took[one.learner]
            off = f"{100 * (one.seconds / seconds - 1):+.0f} %"
            # "CPU x2" has the same replay manager as "CPU"
            chosen = one.learner == choice.best.learner
            mark = ", ".join(["chosen"] * chosen + ["the fastest"] * (seconds == fastest))
            print(
                f"| {batch}, {hidden} | learner on {one.learner} | {one.seconds * 1e3:.3g} "
                f"| {seconds * 1e3:.3g} | {off} | {mark} |",
                flush=True,
            )
        every = measure(algorithm, ["CPU", *MODELLED], batch=batch, inserted=INSERTED)
        grids.append(f"batch {batch}, layers {hidden}:\n{choose(*every)}")
    print("\nWith devices that are not there:\n")
    print("```text\n" + "\n\n".join(grids) + "\n```")


def _measured(algorithm: Dqn, batch: int, mappings: list[Iteration]) -> dict[str, float]:
    """Measure the seconds per iteration of one run per mapping, interleaved."""
    runs = {}
    for one in mappings:
        run = train(
            algorithm,
            groups=1,
            envs=8,
            steps=INSERTED // 8,
            batch=batch,
            learning_starts=2 * batch,
            mapping=one,
            paused=True,
        )
        run.step(2 * batch // INSERTED + 30)
        run.wait()
        runs[one.learner] = run
    found: dict[str, list[float]] = {name: [] for name in runs}
    for k in range(WARM + ROUNDS):
        for name, run in runs.items():
            begun = perf_counter()
            run.step(TURNS)
            run.wait()
            if k >= WARM:
                found[name].append((perf_counter() - begun) / TURNS)
    for run in runs.values():
        run.stop()
    return {name: median(seconds) for name, seconds in found.items()}
