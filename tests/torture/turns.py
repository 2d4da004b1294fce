"""A million iterations in one run that saves now and then: memory is stable.

An interrupted call resumes from the last save. Memory is that of the longest process.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import timerl_nb as trl
from tests.torture.growth import Growth
from tests.torture.progress import Progress
from timerl_nb.runtime.state.run_folder import MANIFEST, RunFolder

ABOUT: Final = "turns of one run"
MANY: Final[dict[Executor, int]] = {"xla": 1_000_000, "interpret": 20_000}
COUNT: Final = sum(MANY.values())
MINUTES: Final = 40.0
SAVES: Final = 20
SECONDS: Final = 1.0  # iterations between memory checks

Executor = Literal["xla", "interpret"]


def small(executor: Executor, turns: int) -> trl.Program:
    """A loop within a loop; its outputs are of the end, so that nothing has to grow."""
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
    """Run each executor, until the time limit."""
    for executor, turns in MANY.items():
        if progress.has_time and progress.kept.get(executor, 0) < turns:
            wrong = walked(progress, executor, turns)
            progress.tried(*wrong, tries=0)


def walked(progress: Progress, executor: Executor, turns: int) -> list[str]:
    """Continue the run of an executor; return failures."""
    program, folder = small(executor, turns), progress.folder / executor
    begun = (folder / MANIFEST).exists()
    before = RunFolder(folder).manifest().turn if begun else 0
    given: dict[str, Any] = {"checkpoint": folder, "every": turns // SAVES}
    if begun:
        given = {"resume": folder}
    growth = Growth()
    with program.start(progress.seed, **given) as running:
        while not running.wait(SECONDS) and progress.has_time:
            growth.add()
        done = running.turn
        if running.state == "failed":
            running.result()
    # the folder has the last state, from which the next call resumes
    kept = RunFolder(folder).manifest().turn if (folder / MANIFEST).exists() else 0
    progress.kept[executor] = kept
    progress.figures |= {f"{executor}, {name}": value for name, value in growth.figures().items()}
    progress.figures[f"{executor}, turns"] = kept
    progress.figures[f"{executor}, turns in one process"] = done - before
    progress.tried(tries=kept - before)
    return [f"{executor}: {text}" for text in growth.wrong]
