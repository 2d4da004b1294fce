"""Repeated writing, compiling and running in one process: memory is stable.

Memory is per process: an interrupted call keeps its figures, and the next one starts new ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import timerl_nb as trl
from tests.torture.growth import Growth
from tests.torture.progress import Progress
from tests.torture.subjects import walking

ABOUT: Final = "compile–run cycles in one process"
COUNT: Final = 1000
MINUTES: Final = 90.0


def learning(k: int) -> trl.Program:
    ctx = trl.algorithms.reinforce(hidden=(4,), steps=(None, 2)[k % 2])
    return ctx.compile({"B": 2, "I": 3, "T": 4 + k % 5}, trl.Options(executor="interpret"))


def stepping(k: int) -> trl.Program:
    """A recurrence, compiled by XLA under changing bounds."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.random.normal((4,), domain=(i, t))
        y = trl.tensor((4,), domain=(i, t))
        y[i, 0], y[i, t + 1] = x[i, 0], (y * 0.5 + x[i, t + 1]).tanh()
        ctx.output("y", y[i, 0:T].sum(axis=0))
    options = trl.Options(executor="xla", vectorize=False)
    return ctx.compile({I: 3, T: 4 + k % 7}, options)


def within(k: int) -> trl.Program:
    """A search within a budget."""
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        x = trl.random.normal((64,), domain=(b, t))
        ctx.output("y", (x[b, t:T].sum(axis=0) * 2).mean(over=(b, t)))
    return ctx.compile(
        {B: 8, T: 32 + k % 3}, trl.Options(executor="interpret", device_memory="1MB")
    )


WORKS: Final[tuple[Callable[[int], trl.Program], ...]] = (
    learning,
    stepping,
    lambda k: walking("interpret", 2 + k % 4),
    within,
    lambda k: walking("fused", 3 + k % 4),
)


def run(progress: Progress) -> None:
    growth = Growth()
    for k in range(progress.count):
        if not progress.has_time:
            break
        cycle(k)
        growth.add()
        if k + 1 > progress.done and (k + 1 == progress.count or k % 10 == 9):
            progress.done, progress.figures = k + 1, growth.figures()
            progress.wrong = growth.wrong
            progress.save()


def cycle(k: int) -> None:
    """Write, compile, run and drop a program."""
    WORKS[k % len(WORKS)](k).execute(seed=k)
