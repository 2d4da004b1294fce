"""Interrupts at every line of the thread that starts, awaits and stops runs and trainings."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl
from tests.interrupts import Line, interrupted, lines
from tests.reinforce import reinforce
from timerl_nb.base.atomic_files import hold
from timerl_nb.cli.main import main
from timerl_nb.replay import Dqn, Proportional, Replay
from timerl_nb.runtime.state.run_folder import LOCK, RunFolder

_TIMES = int(os.environ.get("TIMERL_FUZZ", "0"))
EVERY = 1 if _TIMES else 59  # distance of tested lines
RUN = (
    "driver/program_runs/run_in_folder.py",
    "driver/program.py",
    "driver/program_runs/",
    "execution/",
    "runtime/state/run_folder.py",
    "base/atomic_files.py",
)
COMMAND = ("cli/train.py", "cli/support/foreground_run.py", "cli/support/run_request.py")
TRAINING = ("replay/", "execution/", "base/atomic_files.py")
DQN = Dqn("gym.CartPole-v1", hidden=(4,), target_every=5, epsilon=(1.0, 0.1, 20))


def chosen(made: list[Line], first: int) -> list[Line]:
    """Return some of the lines, starting at one of the first."""
    return made[first % EVERY :: EVERY]


def check_nothing_goes_on(where: Line) -> None:
    """Raise `AssertionError` if one of our threads or child processes survives a few seconds."""
    for attempt in range(500):
        if attempt == 10:
            gc.collect()
        left = [t.name for t in threading.enumerate() if t.name.startswith("timerl")]
        if not left:
            break
        time.sleep(0.01)
    assert not left, (left, where)


def check_folder(folder: Path, where: Line) -> None:
    """Raise `AssertionError` if a folder is locked or has half-written files."""
    if not folder.exists():
        return
    if (folder / LOCK).exists():
        hold(folder / LOCK).close()
    drafts = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    assert not drafts, where


@pytest.fixture(scope="module")
def program() -> trl.Program:
    bounds = {"B": 2, "I": 3, "T": 4}
    return reinforce(hidden=(4,)).compile(bounds, trl.Options(executor="interpret"))


def executed(program: trl.Program, folder: Path) -> None:
    program.execute(3, checkpoint=folder, every=1, progress=False)


def started(program: trl.Program, folder: Path) -> None:
    with program.start(3, checkpoint=folder, every=1) as run:
        run.result()


def stopped(program: trl.Program, folder: Path) -> None:
    run = program.start(3, checkpoint=folder, every=1, paused=True)
    run.wait()
    run.step(1)
    run.wait()
    run.stop()
    run.result()


def logged(program: trl.Program, folder: Path) -> None:
    program.start(3, checkpoint=folder, every=1, log=folder).result()


# Python reports and drops an interrupt inside a finalizer
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("begun", [executed, started, stopped, logged])
def test_an_interrupt_at_any_line_leaves_a_run_to_go_on(
    begun: Callable[[trl.Program, Path], None], program: trl.Program, tmp_path: Path
) -> None:
    wanted = program.execute(3)
    begun(program, tmp_path / "first")
    made = lines(lambda: begun(program, tmp_path / "second"), *RUN)
    assert len(made) > 100
    hits = 0
    for number, line in enumerate(chosen(made, len(begun.__name__))):
        folder = tmp_path / str(number)
        raised = interrupted(partial(begun, program, folder), line, *RUN)
        hits += raised is not None
        if begun in (stopped, logged):
            del raised  # it holds the handle, and so the run
        check_nothing_goes_on(line)
        check_folder(folder, line)
        if RunFolder(folder).is_empty:
            found = program.execute(3, checkpoint=folder, every=1)
        else:
            found = program.resume(folder)
        for name, x in wanted.items():
            np.testing.assert_array_equal(found[name], x, err_msg=f"{name}, {line}")
        shutil.rmtree(folder)
    assert hits > 3


def test_an_interrupt_at_any_line_leaves_a_training_to_go_on(tmp_path: Path) -> None:
    def trained(folder: Path, buffer: Replay) -> trl.replay.Training:
        return trl.replay.train(
            DQN,
            mode="exact",
            batch=8,
            envs=2,
            steps=4,
            groups=1,
            learning_starts=8,
            turns=4,
            every=2,
            seed=3,
            buffer=buffer,
            folder=folder,
        )

    def fresh() -> Replay:
        return Replay(64, DQN.fields, priority=Proportional(), gamma=DQN.gamma, seed=3)

    def ends(folder: Path, buffer: Replay) -> None:
        with trained(folder, buffer) as run:
            run.result()

    def stops(folder: Path, buffer: Replay) -> None:
        run = trained(folder, buffer)
        run.stop()
        run.result()

    wanted = trained(tmp_path / "wanted", fresh()).result()
    hits = 0
    for call in (ends, stops):
        made = lines(partial(call, tmp_path / call.__name__, fresh()), *TRAINING)
        assert len(made) > 100
        for number, line in enumerate(chosen(made, 1)):
            folder, buffer = tmp_path / f"{call.__name__}-{number}", fresh()
            raised = interrupted(partial(call, folder, buffer), line, *TRAINING)
            hits += raised is not None
            if call is stops:
                del raised  # it holds the handle, and so the run
            check_nothing_goes_on(line)
            check_folder(folder, line)
            buffer.claim(line)
            buffer.release(line)
            found = trained(folder, fresh()).result()
            np.testing.assert_array_equal(found["loss"], wanted["loss"], err_msg=str(line))
            for name, x in wanted.parameters.items():
                np.testing.assert_array_equal(found.parameters[name], x, err_msg=str(line))
    assert hits > 3


def test_an_interrupt_at_any_line_of_a_command_leaves_a_folder_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--hidden", "4", "--bounds", "B=2,I=3,T=4", "--option", "executor=interpret"]
    words += ["--every", "1", "--quiet"]

    def trains(folder: Path) -> int:
        return main(["train", "reinforce", *words, "--folder", str(folder)])

    def resumes(folder: Path) -> int:
        return main(["resume", str(folder), "--quiet"])

    assert trains(tmp_path / "wanted") == 0
    wanted = (tmp_path / "wanted" / "result.json").read_bytes()
    made = lines(partial(trains, tmp_path / "traced"), *COMMAND)
    assert len(made) > 50
    for number, line in enumerate(chosen(made, 2)):
        folder = tmp_path / str(number)
        raised = interrupted(partial(trains, folder), line, *COMMAND)
        del raised
        check_nothing_goes_on(line)
        check_folder(folder, line)
        asked = folder / "asked.json"
        status = resumes(folder) if asked.exists() else trains(folder)
        assert status == 0, (line, capsys.readouterr())
        assert (folder / "result.json").read_bytes() == wanted, line
