"""Overlap of collecting and learning: time of an iteration with `ahead=1` over the sum of both.

The learner multiplies matrices in XLA for about the time of a batch, so the least possible ratio is
one half. Both iterations alternate. The ratio is near one if no core is idle, except for an
environment that waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from statistics import median
from time import perf_counter, sleep
from typing import Any, Final

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.collecting.choices import Case

SIZE: Final = 192  # rows and columns of the learner's matrices
ROUNDS: Final = 15
WAITING: Final = "timerl/Waiting-v0"
CASES: Final[Sequence[tuple[Case, str]]] = (
    (Case(f"gym.{WAITING}", 1, 64, 0), "loop"),
    (Case("CartPole-v1", 256, 64), "scan"),
    (Case("CartPole-v1", 2048, 64), "scan"),
    (Case("gym.CartPole-v1", 16, 64), "loop"),
    (Case("gym.CartPole-v1", 256, 64), "native"),
    (Case("gym.CartPole-v1", 16, 64), "processes"),
)


class Waiting(gymnasium.Env[Any, Any]):
    """Environment that waits 1 ms per step, as for a simulator of another machine."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        sleep(1e-3)
        return np.zeros(4, np.float32), 1.0, False, False, {}


gymnasium.register(WAITING, Waiting)


def learner_of(seconds: float) -> Callable[[], object]:
    """Return a function that computes in XLA for about some seconds."""
    x = jnp.full((SIZE, SIZE), 1 / SIZE)
    work = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda _, y: y @ x, x))
    work(x, 1).block_until_ready()
    began = perf_counter()
    work(x, 50).block_until_ready()
    count = max(1, round(50 * seconds / (perf_counter() - began)))
    return lambda: work(x, count).block_until_ready()


def seconds_of(run: Callable[[], object]) -> float:
    began = perf_counter()
    run()
    return perf_counter() - began


def measure(case: Case, how: str, rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Return the median seconds of a batch, of learning, and of both with `ahead=1`."""
    with ExitStack() as stack:
        plain = stack.enter_context(case.collector(how))
        ahead = stack.enter_context(case.collector(how, ahead=1))
        plain.next()
        learn = learner_of(median(seconds_of(plain.next) for _ in range(5)))
        collecting, learning, both = list[float](), list[float](), list[float]()
        for _ in range(rounds):
            assert ahead.counts  # the background has finished its batch
            collecting.append(seconds_of(plain.next))
            learning.append(seconds_of(learn))
            ahead.next()  # its successor begins here
            both.append(seconds_of(lambda: (learn(), ahead.next())))
    return median(collecting), median(learning), median(both)


def table(cases: Sequence[tuple[Case, str]] = CASES, rounds: int = ROUNDS) -> Iterator[str]:
    """Return Markdown rows."""
    yield "| | strategy | batch, ms | learning, ms | both, ahead=1, ms | ratio to the sum |"
    yield "|---|---|---|---|---|---|"
    for case, how in cases:
        one, other, both = measure(case, how, rounds)
        figures = " | ".join(f"{1e3 * x:.2f}" for x in (one, other, both))
        yield f"| {case} | {how} | {figures} | {both / (one + other):.2f} |"
