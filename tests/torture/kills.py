"""`kill -9` at random moments: a run, resumed again and again, ends with the same bits.

Kills hit any phase of a process (import, compilation, loading, training), or training alone, or the
writing of a state. The folder shows afterwards which phase was hit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Final, Literal

from tests.torture.progress import Progress
from tests.torture.subjects import differs
from timerl_nb.base.errors import TimeRLError
from timerl_nb.runtime.state.checkpoint_writer import arrays_of
from timerl_nb.runtime.state.run_folder import MANIFEST, RunFolder

ABOUT: Final = "kills (SIGKILL), of training and of saving"
COUNT: Final = 100
MINUTES: Final = 60.0
ROOT: Final = Path(__file__).parents[2]
# Programs, and numbers of iterations for runs that save after each iteration and now and then:
# enough for several kills per run.
TURNS: Final = {
    "reinforce": (1200, 4000),
    "clipped": (1500, 4000),
    "hosted": (200, 800),
    "interpreted": (150, 600),
}
EVERY: Final = ("1", "0.4s")
MOST: Final = 12  # kills of a run
MOMENTS: Final = ("saving", "training", "saving", "anywhere")
LONGEST: Final = 300.0  # seconds without an iteration: a hang

Fell = Literal["before the first state", "between two states", "while a state was written"]


def run(progress: Progress) -> None:
    """Kill up to the required number; finish and compare every run."""
    names = list(TURNS)
    while progress.goes_on:
        number = progress.kept.setdefault("runs", 0)
        name = names[number % len(names)]
        often = (number + number // len(names)) % 2
        place, seed = progress.folder / str(number), progress.seed + number
        killed = Killed(name, TURNS[name][often], EVERY[often], seed, place)
        random = Random(f"{progress.seed} {progress.done}")
        last = progress.kept.setdefault("until", progress.done + MOST)
        while progress.goes_on and progress.done < last and not killed.is_ended:
            fell, wrong = killed.kill(random.choice(MOMENTS), random)
            if fell is not None:
                progress.add(fell)
                progress.add(f"of {name}")
                progress.most("largest folder, states", round(killed.folder_share, 2))
            progress.tried(*wrong, tries=fell is not None)
        progress.tried(*killed.end(), tries=0)
        progress.add("runs compared with whole ones")
        progress.kept = {"runs": number + 1}
        progress.save()


@dataclass
class Killed:
    """A run that is killed, in a dedicated folder.

    Attributes:
        folder_share: Bytes in the folder after the last kill, relative to the state's.
    """

    name: str
    turns: int
    every: str
    seed: int
    place: Path
    folder_share: float = 0.0

    def __post_init__(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)

    @property
    def folder(self) -> Path:
        return self.place / "run"

    @property
    def is_ended(self) -> bool:
        return (self.place / "ended").exists()

    def kill(self, moment: str, random: Random) -> tuple[Fell | None, list[str]]:
        """Resume and kill; return the phase hit (None if the run had ended), and failures."""
        before = self._turn()
        with self._process("ended", self.folder) as child:
            if moment == "anywhere":
                self._wait(child, time.monotonic() + random.uniform(0, 8.0))
            else:
                self._wait(child, time.monotonic() + LONGEST, before)
                if moment == "training":
                    self._wait(child, time.monotonic() + random.uniform(0, 0.4))
                else:
                    # during a later save: a save starts when a draft appears
                    for _ in range(random.randrange(1, 4)):
                        self._wait_for_a_draft(child)
                    time.sleep(random.uniform(0, 0.004))
            child.send_signal(signal.SIGKILL)
            child.wait()
            assert child.stderr is not None
            said = child.stderr.read().decode(errors="replace")
        if child.returncode == 0:
            return None, []
        if child.returncode != -signal.SIGKILL:
            return None, [f"{self} ended with {child.returncode}: {said[-2000:]}"]
        return self._found(before)

    def _found(self, before: int) -> tuple[Fell, list[str]]:
        """Return the phase hit, from the files in the folder."""
        there = sorted(self.folder.iterdir()) if self.folder.exists() else []
        drafts = [path.name for path in there if path.name.startswith(".")]
        states = [path.name for path in there if path.name.startswith("state-")]
        if not (self.folder / MANIFEST).exists():
            return (
                "while a state was written" if drafts or states else "before the first state"
            ), []
        wrong = list[str]()
        try:
            manifest, _ = RunFolder(self.folder).read()
        except TimeRLError as error:
            return "while a state was written", [f"{self} left {error}"]
        if manifest.turn < before:
            wrong.append(f"{self} is at turn {manifest.turn}, and was at {before}")
        # of an interrupted save: a draft or final state, and perhaps the manifest's draft; states of the
        # manifest before it may still be there
        parts = len(states) + sum(name.startswith(".state-") for name in drafts)
        if len(drafts) > 1 or parts > 1 + len(manifest.states):
            wrong.append(f"{self} has left {[*drafts, *states]}")
        self.folder_share = sum(path.stat().st_size for path in there) / manifest.nbytes
        is_writing = bool(drafts) or not manifest.states.issuperset(states)
        return "while a state was written" if is_writing else "between two states", wrong

    def end(self) -> list[str]:
        """Finish the run; return failures."""
        if not self.is_ended:
            self._finish("ended", self.folder)
        self._finish("whole", None)
        want, have = (arrays_of((self.place / name).read_bytes()) for name in ("whole", "ended"))
        wrong = [f"{self} {other}"] if (other := differs(want, have)) else []
        left = sorted(path.name for path in self.folder.iterdir())
        if left != sorted(["lock", MANIFEST, *RunFolder(self.folder).manifest().states]):
            wrong.append(f"{self} leaves {left}")
        if not wrong:
            rmtree(self.place)
        return wrong

    def _finish(self, result: str, folder: Path | None) -> None:
        with self._process(result, folder) as child:
            _, said = child.communicate()
        if child.returncode:
            raise RuntimeError(f"{self} ended with {child.returncode}:\n{said.decode()}")

    def _process(self, result: str, folder: Path | None) -> subprocess.Popen[bytes]:
        given = [self.name, str(self.turns), str(self.seed), str(self.place / result)]
        return process(
            "tests.torture.subjects", [*given, *([str(folder), self.every] if folder else [])]
        )

    def _turn(self) -> int:
        """Return the number of saved iterations."""
        with suppress(TimeRLError):
            return RunFolder(self.folder).manifest().turn
        return -1

    def _wait(self, child: subprocess.Popen[bytes], end: float, turn: int | None = None) -> None:
        """Wait until a moment, the child's end, or the next iteration."""
        while time.monotonic() < end and child.poll() is None:
            if turn is not None and self._turn() > turn:
                return
            time.sleep(0.005)

    def _wait_for_a_draft(self, child: subprocess.Popen[bytes]) -> None:
        """Wait until the child starts to write a state."""
        end, was_there = time.monotonic() + LONGEST, True
        while time.monotonic() < end and child.poll() is None:
            is_there = any(name.startswith(".state-") for name in os.listdir(self.folder))
            if is_there and not was_there:
                return
            was_there = is_there

    def __str__(self) -> str:
        return f"run {self.place.name} of {self.name}, seed {self.seed}, every {self.every},"


def process(module: str, given: Sequence[str], *, reads: bool = False) -> subprocess.Popen[bytes]:
    """Start one of our processes on the CPU, with captured errors and output."""
    env = {**os.environ, "TIMERL_PROGRESS": "0", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", module, *given]
    out = subprocess.PIPE if reads else None
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.PIPE)
