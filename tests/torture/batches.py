"""A thousand batches per collecting strategy: memory is stable, and old batches are unchanged."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import timerl_nb as trl
from tests.counting import NAME
from tests.torture.growth import Growth
from tests.torture.progress import Progress

ABOUT: Final = "batches that are collected"
MANY: Final = 1_000
WAYS: Final = {
    "scan": "CartPole-v1",
    "step": "CartPole-v1",
    "native": "CartPole-v1",
    "loop": f"gym.{NAME}",
    "processes": f"gym.{NAME}",
}
COUNT: Final = MANY * len(WAYS)
MINUTES: Final = 20.0
EACH: Final = 20  # batches between memory checks


def run(progress: Progress) -> None:
    """Run each strategy, until the time limit."""
    for how, env in WAYS.items():
        if progress.has_time and how not in progress.kept:
            progress.tried(*collected(progress, how, env), tries=MANY)
            progress.kept[how] = MANY
            progress.save()


def collected(progress: Progress, how: str, env: str) -> list[str]:
    """Collect with one strategy; return failures."""
    growth, wrong = Growth(), []
    with trl.collect(env, trl.policies.random, envs=16, steps=32, how=how) as c:
        first = c.next()
        kept = {name: np.array(x) for name, x in arrays(first).items()}
        for k in range(1, MANY):
            c.next()
            if k % EACH == 0:
                growth.add()
        same = (np.array_equal(x, kept[name]) for name, x in arrays(first).items())
        if not all(same):
            wrong.append("the first batch has changed")
    progress.figures |= {f"{how}, {name}": value for name, value in growth.figures().items()}
    return [f"{how}: {text}" for text in (*wrong, *growth.wrong)]


def arrays(batch: Any) -> dict[str, Any]:
    return {n: np.asarray(x) for n, x in vars(batch).items() if hasattr(x, "shape")}
