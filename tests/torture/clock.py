"""Clock changes, backwards and forwards: runs with timed saving keep saving."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import timerl_nb as trl
from tests.torture.faults import SEED, TURNS, learning
from tests.torture.progress import Progress
from tests.torture.subjects import differs, given_by
from timerl_nb.base import atomic_files as files
from timerl_nb.base.errors import TimeRLError
from timerl_nb.execution.control import periodic_saving as saving
from timerl_nb.execution.control.periodic_saving import Saving
from timerl_nb.runtime.state.run_folder import Manifest, RunFolder

ABOUT: Final = "clocks that are put back, or jump ahead"
COUNT: Final = 500
MINUTES: Final = 5.0
EVERY: Final = {"20s": 20.0, "5min": 300.0}
LONG: Final = 40
# seconds by which the clock changes per iteration
STEPS: Final = (0.0, 1.0, 7.0, 15.0, 61.0)
JUMPS: Final = (-5.0, -3600.0, -1e9, 3600.0, 1e9)


@dataclass
class Clock:
    """Fake clock that records the iterations with saves.

    Attributes:
        moves: Change of the clock before each iteration.
        saved: The saved iterations; the last is the end.
    """

    moves: list[float]
    now: float = 1e6
    saved: list[int] = field(default_factory=list[int])

    @contextmanager
    def ticking(self) -> Iterator[None]:
        left, turned, write = iter(self.moves), Saving.on_turn, RunFolder.write

        def moved(one: Saving, count: int = 1) -> None:
            self.now += next(left)
            turned(one, count)

        def written(folder: RunFolder, manifest: Manifest, arrays: Any) -> Manifest:
            self.saved.append(manifest.turn)
            return write(folder, manifest, arrays)

        here = SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now)
        with (
            patch.object(saving, "time", here),
            patch.object(files, "time", here),
            patch.object(Saving, "on_turn", moved),
            patch.object(RunFolder, "write", written),
        ):
            yield


def run(progress: Progress) -> None:
    while progress.goes_on:
        random = Random(f"{progress.seed} {progress.done}")
        every = random.choice(list(EVERY))
        moves = [random.choice(JUMPS if random.random() < 0.15 else STEPS) for _ in range(LONG)]
        wrong = tried(every, moves)
        progress.add("turns", LONG)
        progress.add("jumps", sum(move in JUMPS for move in moves))
        progress.tried(*([f"every {every}, moves {moves}: {wrong}"] if wrong else []))


def tried(every: str, moves: list[float]) -> str:
    """Return the failures of a run under a clock with these changes."""
    clock = Clock(moves)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with clock.ticking():
                have = walk(len(moves)).execute(seed=SEED, checkpoint=folder, every=every)
        except TimeRLError as error:
            return f"fails: {error}"
        if not RunFolder(folder).manifest().is_finished:
            return "its end is not saved"
        if not Path(folder, RunFolder(folder).manifest().state).exists():
            return "its state is gone"
    if other := differs(given_by(walk(len(moves)).execute(seed=SEED)), given_by(have)):
        return other
    return missed(clock.saved, moves, EVERY[every])


def missed(saved: list[int], moves: list[float], seconds: float) -> str:
    """Return an iteration with a missing or surplus save, or nothing.

    A save is due when the interval has passed since the last one, and before the last iteration. Time
    before a step backwards is unknown, and not counted.
    """
    passed = 0.0
    for turn, move in enumerate(moves[:-1], 1):
        passed = max(passed + move, 0.0)
        is_due = passed >= seconds or turn == len(moves) - 1
        if is_due != (turn in saved[:-1]):
            return f"turn {turn} was {'not ' if is_due else ''}saved, {passed} s after the last"
        if is_due:
            passed = 0.0
    return ""


def walk(turns: int) -> trl.Program:
    """Return a small program of some iterations."""
    return (
        learning("interpret") if turns == TURNS else learning("interpret").with_bounds({"I": turns})
    )
