"""Cost of saving: milliseconds, MiB, and the share of an iteration.

Iterations with and without saving alternate within one process, so both see the same machine.
Figures are medians; the sizes are the README's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final
from unittest.mock import patch

import timerl_nb as trl
from tests.torture.progress import Progress
from timerl_nb.execution.control.periodic_saving import Saving
from timerl_nb.runtime.state.run_folder import RunFolder

ABOUT: Final = "what saving costs"
COUNT: Final = 10  # pairs of runs, with and without saving
MINUTES: Final = 10.0
TURNS: Final = 20


def reinforce() -> trl.Program:
    """The README's program, with its sizes."""
    ctx = trl.algorithms.reinforce(hidden=(32, 32), gamma=0.95)
    return ctx.compile({"B": 64, "I": TURNS, "T": 500}, trl.Options(executor="xla"))


def clipped() -> trl.Program:
    """The usual sizes of PPO on CartPole."""
    ctx = trl.algorithms.clipped_ppo(hidden=(64, 64), epochs=4, minibatches=4)
    return ctx.compile({"B": 4, "I": TURNS, "T": 128}, trl.Options(executor="xla"))


PROGRAMS: Final[dict[str, Callable[[], trl.Program]]] = {
    "REINFORCE, 64 × 500": reinforce,
    "clipped PPO, 4 × 128": clipped,
}


def run(progress: Progress) -> None:
    programs = {name: make() for name, make in PROGRAMS.items()}
    for program in programs.values():
        program.execute(seed=0)  # warm-up: XLA compiles
    while progress.goes_on:
        for name, program in programs.items():
            plain, saved, saves, size = pair(program, progress.done)
            known = progress.kept.setdefault(name, {"plain": [], "saved": [], "save": []})
            known["plain"].append(plain)
            known["saved"].append(saved)
            known["save"] += saves
            turn, one, more = (median(known[k]) for k in ("plain", "save", "saved"))
            progress.figures[name] = (
                f"a turn {turn * 1e3:.1f} ms, a save {one * 1e3:.1f} ms and {size / 2**20:.3f} MiB, "
                f"{one / turn:.0%} of a turn (with a save after each, turns take {more / turn:.2f} ×); "
                f'every="5min": {one / 300:.5%}'
            )
        progress.tried()


def pair(program: trl.Program, seed: int) -> tuple[float, float, list[float], int]:
    """Return seconds per iteration without and with saving, seconds per save, and bytes."""
    start = time.perf_counter()
    program.execute(seed=seed)
    plain = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder, timed() as saves:
        start = time.perf_counter()
        program.execute(seed=seed, checkpoint=folder, every=1)
        saved = time.perf_counter() - start
        size = RunFolder(folder).manifest().nbytes
    return plain / TURNS, saved / TURNS, saves, size


@contextmanager
def timed() -> Iterator[list[float]]:
    """Return the seconds of each save: of the copy to the host, and until it is on disk."""
    seconds, save = list[float](), Saving._save

    def measured(one: Saving, *args: Any) -> None:
        start = time.perf_counter()
        save(one, *args)
        seconds.append(time.perf_counter() - start)

    with patch.object(Saving, "_save", measured):
        yield seconds
