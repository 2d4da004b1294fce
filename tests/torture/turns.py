"""A million turns in one run that saves itself now and then: its memory does not grow.

It is a kept run: a call that is cut off is gone on with from its last state. Memory is that of the
longest process.
"""

from __future__ import annotations

from typing import Any, Final

import timerl_nb as trl
from tests.torture.growth import Growth
from tests.torture.progress import Progress

ABOUT: Final = "turns of one run"
MANY: Final = {"xla": 1_000_000, "interpret": 20_000}
COUNT: Final = sum(MANY.values())
MINUTES: Final = 40.0
PARTS: Final = 200  # of a run, after each of which memory is looked at
SAVES: Final = 20


def small(executor: str, turns: int) -> trl.Program:
    """A loop within a loop; what it returns is of its end alone, so that nothing need grow."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.random.normal((4,), domain=(i, t))
        s = trl.tensor((4,), domain=(i, t))
        s[i, 0], s[i, t + 1] = x[i, 0], (s * 0.5 + x[i, t + 1]).tanh()
        w = trl.tensor((4,), domain=(i,))
        w[0] = trl.random.normal((4,), domain=())
        w[i + 1] = w * 0.9 + s[i, T - 1]
        ctx.output("w", w[I - 1])
    options = trl.Options(executor=executor, vectorize=False)
    return ctx.compile({I: turns, T: 3}, options)


def run(progress: Progress) -> None:
    """Each executor in turn, as far as time goes."""
    for executor, turns in MANY.items():
        if progress.has_time and progress.kept.get(executor, 0) < turns:
            wrong = walked(progress, executor, turns)
            if wrong:
                progress.tried(*wrong, tries=0)


def walked(progress: Progress, executor: str, turns: int) -> list[str]:
    """Go on with the run of an executor; what is wrong."""
    program, folder = small(executor, turns), progress.folder / executor
    saved: dict[str, Any] = {"checkpoint": folder, "every": turns // SAVES}
    if (folder / "manifest.json").exists():
        saved = {"resume": folder}
    growth, part = Growth(), turns // PARTS
    before = progress.kept.get(executor, 0)
    with program.start(seed=progress.seed, paused=True, **saved) as running:
        running.wait()
        while running.turn < turns and progress.has_time:
            running.step(min(part, turns - running.turn))
            running.wait()
            growth.add()
        done = running.turn
    # what is kept is the last state, up to which the next call need not go again
    kept = done if done == turns else done // saved_every(turns) * saved_every(turns)
    progress.kept[executor] = kept
    tries = max(kept - before, 0)
    for name, value in growth.figures().items():
        progress.figures[f"{executor}, {name}"] = value
    progress.figures[f"{executor}, turns"] = kept
    progress.figures[f"{executor}, turns in one process"] = done - before
    progress.tried(tries=tries)
    return [f"{executor}: {text}" for text in growth.wrong]


def saved_every(turns: int) -> int:
    return turns // SAVES
