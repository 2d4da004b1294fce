"""Two simultaneous writers of one folder: one is refused, and no data is mixed.

Both processes persist. In each round they start in a folder, or resume it, at the same moment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any, Final

from safetensors.numpy import save

from tests.torture.faults import TURNS, learning
from tests.torture.kills import ROOT
from tests.torture.progress import Progress
from tests.torture.subjects import differs, given_by
from timerl_nb.base.atomic_files import write_whole
from timerl_nb.base.errors import ExecutionError, TimeRLError
from timerl_nb.runtime.state.checkpoint_writer import arrays_of
from timerl_nb.runtime.state.run_folder import MANIFEST, RunFolder

ABOUT: Final = "two writers of one folder"
COUNT: Final = 500
MINUTES: Final = 10.0
SEEDS: Final = (3, 4)  # of the first and of the second
LONGEST: Final = 120.0


class Writer:
    """A process that starts and resumes runs on command."""

    def __init__(self, seed: int) -> None:
        command = [sys.executable, "-m", "tests.torture.writers", str(seed)]
        env = {**os.environ, "TIMERL_PROGRESS": "0", "JAX_PLATFORMS": "cpu"}
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()

    def ask(self, **what: Any) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(what).encode() + b"\n")
        self._child.stdin.flush()

    def answer(self) -> str:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"a writer ended with {self._child.wait()}")
        return json.loads(line)


def run(progress: Progress) -> None:
    want = [given_by(learning("interpret").execute(seed=seed)) for seed in SEEDS]
    folder = progress.folder / "shared"
    with ExitStack() as stack:
        writers = [stack.enter_context(Writer(seed)) for seed in SEEDS]
        while progress.goes_on:
            random = Random(f"{progress.seed} {progress.done}")
            ends, wrong = tried(folder, writers, want, random, resuming=progress.done % 2 == 1)
            for end in ends:
                progress.add(end)
            progress.tried(*wrong)
    rmtree(folder, ignore_errors=True)


def tried(
    folder: Path, writers: list[Writer], want: list[Any], random: Random, *, resuming: bool
) -> tuple[list[str], list[str]]:
    """Return the outcome of both writers in one round, and failures."""
    rmtree(folder, ignore_errors=True)
    place = folder / "run"
    folder.mkdir(parents=True)
    if resuming:  # begun by one of them
        writers[0].ask(folder=str(place), stops=1 + random.randrange(TURNS - 1))
        writers[0].answer()
    at = time.time() + 0.02
    for k, writer in enumerate(writers):
        # one may start a little later
        when = at + random.choice((0.0, random.uniform(0, 0.05)))
        writer.ask(folder=str(place), at=when, result=str(folder / str(k)), resumes=resuming)
    ends = [writer.answer() for writer in writers]
    wrong = [f"writer {k}: {end}" for k, end in enumerate(ends) if end.startswith("fails")]
    won = [k for k, end in enumerate(ends) if end == "ended"]
    # a writer that resumes after the other's end returns the other's results
    if not won or (len(won) == 2 and not resuming):
        wrong.append(f"{len(won)} of two have written: {ends}")
    for k in won:
        seed = 0 if resuming else k
        if other := differs(want[seed], arrays_of((folder / str(k)).read_bytes())):
            wrong.append(f"writer {k} ends otherwise: {other}")
    try:
        manifest, _ = RunFolder(place).read()
        if won and manifest.seed != SEEDS[0 if resuming else won[0]]:
            wrong.append(f"the run of seed {manifest.seed} is kept, writer {won[0]} wrote")
        left = sorted(path.name for path in place.iterdir())
        if not manifest.is_finished or left != sorted(["lock", MANIFEST, *manifest.states]):
            wrong.append(f"they leave {left} at turn {manifest.turn}")
    except TimeRLError as error:
        wrong.append(f"they leave {error}")
    return ends, wrong


def write(seed: int, asked: dict[str, Any]) -> str:
    """Execute the command, and return the outcome."""
    program, folder = learning("interpret"), asked["folder"]
    if "stops" in asked:
        with program.start(seed, checkpoint=folder, every=1, paused=True) as begun:
            begun.wait()
            begun.step(asked["stops"])
            begun.wait()
        return "begun"
    while time.time() < asked["at"]:
        pass
    try:
        if asked["resumes"]:
            result = program.resume(folder)
        else:
            result = program.execute(seed=seed, checkpoint=folder, every=1)
    except ExecutionError as error:
        said = {
            "another run saves its state in": "refused",
            "contains another run": "refused as there is a run",
        }
        found = [end for text, end in said.items() if text in error.what and error.hint]
        return found[0] if found and folder in error.what else f"fails: {error}"
    except Exception as error:
        return f"fails with {type(error).__name__}: {error}"
    write_whole(Path(asked["result"]), save(given_by(result)), synced=False)
    return "ended"


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(write(int(sys.argv[1]), json.loads(line))), flush=True)
