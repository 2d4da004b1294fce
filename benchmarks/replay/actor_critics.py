"""DDPG, TD3 and SAC of `trl.replay.train` on Pendulum-v1: mean returns in the last tenth of a run, and seconds.

Each learning step follows a step of four environments, and draws 128 rows uniformly. The run is reproducible
(mode "exact"). Returns include exploration; the seconds include compilation.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

import numpy as np

import timerl_nb as trl
from timerl_nb.replay import Ddpg, Replay, Sac, Td3

TURNS: Final = 6_000
ALGORITHMS: Final = {"Ddpg": Ddpg, "Td3": Td3, "Sac": Sac}


def learn(name: str, seed: int, turns: int = TURNS) -> tuple[float, float]:
    """Return the mean return in the last tenth of a run, and its seconds."""
    algorithm = ALGORITHMS[name]("Pendulum-v1", gamma=0.98, tau=0.01)
    begun = perf_counter()
    run = trl.replay.train(
        algorithm,
        mode="exact",
        buffer=Replay(40_000, algorithm.fields),
        turns=turns,
        batch=128,
        groups=1,
        envs=4,
        steps=1,
        learning_starts=500,
        how="scan",
        seed=seed,
    )
    result = run.result()
    at = result.coordinates["return"]["turn"]
    return float(np.mean(result["return"][at >= 0.9 * turns])), perf_counter() - begun


def main() -> None:
    print("| algorithm | returns of seeds 0 to 2 | seconds |\n|---|---|---|")
    for name in ALGORITHMS:
        found = [learn(name, seed) for seed in range(3)]
        returns = ", ".join(f"{one:.0f}" for one, _ in found)
        print(f"| `{name}` | {returns} | {', '.join(f'{s:.0f}' for _, s in found)} |")
