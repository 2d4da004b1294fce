"""Exclusive use of folders and buffers: a second user is refused, and a lock ends with its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.atomic_files import hold
from timerl_nb.replay import Dqn, Replay

ONE = {"x": ((), "f32")}
DQN = Dqn("gym.CartPole-v1", hidden=(4,))

# forks a child, which reports the outcome of using a buffer, and reads its input to the end
FORKING = """
import os, sys
import numpy as np
import timerl_nb as trl

def buffer():
    return trl.Replay(10, {"x": ((), "f32")}, above=0, folder=sys.argv[1])

mine = buffer()
mine.insert({"x": np.ones(3, "f4")})
apart = trl.Replay(10, {"x": ((), "f32")})  # in memory, of which a fork has a copy
if not os.fork():
    told = []
    for use in (lambda: mine.insert({"x": np.zeros(3, "f4")}), lambda: mine.sample(2), buffer):
        try:
            use()
            told.append("worked")
        except trl.errors.ExecutionError as error:
            told.append(str(error).splitlines()[0])
    apart.insert({"x": np.ones(3, "f4")})
    print(told, len(apart), flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""


def forking(folder: Path) -> subprocess.Popen[str]:
    made = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKING, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert made.stdout is not None
    said = made.stdout.readline()
    assert said.count("in files of the parent process") == 2
    assert "another buffer stores its rows in" in said
    assert said.endswith("] 3\n")
    return made


def on_files(folder: Path) -> Replay:
    return Replay(10, ONE, above=0, folder=folder)


def test_two_buffers_have_no_folder_in_common(tmp_path: Path) -> None:
    one = on_files(tmp_path)
    one.insert({"x": np.arange(1, 11)})
    with pytest.raises(trl.errors.ExecutionError, match="another buffer stores its rows in"):
        on_files(tmp_path)
    assert sorted(set(one.sample(200)["x"])) == list(range(1, 11))
    on_files(tmp_path / "other")
    del one
    on_files(tmp_path)
    Replay(10, ONE, folder=tmp_path)  # its rows are in memory


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_lock_ends_with_the_process_that_took_it(tmp_path: Path) -> None:
    process = forking(tmp_path)
    with pytest.raises(trl.errors.ExecutionError, match="another buffer stores its rows in"):
        on_files(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = on_files(tmp_path)  # its forked child is still alive
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.read()
    process.stdout.close()
    assert not len(again)


def test_a_file_that_is_held_is_free_when_it_is_closed(tmp_path: Path) -> None:
    with hold(tmp_path / "lock"), pytest.raises(BlockingIOError):
        hold(tmp_path / "lock")
    hold(tmp_path / "lock").close()


def trained(**given: Any) -> Any:
    return trl.replay.train(DQN, batch=4, envs=2, steps=4, learning_starts=4, **given)


def test_two_trainings_have_no_buffer_in_common(tmp_path: Path) -> None:
    buffer = Replay(100, DQN.fields, priority=trl.replay.Proportional())
    run = trained(buffer=buffer, paused=True, mode="exact", turns=3)
    with pytest.raises(trl.errors.ExecutionError, match="another training run uses"):
        trained(buffer=buffer, folder=tmp_path)
    run.stop()
    run.result()
    with pytest.raises(trl.errors.OptionError, match="no device 'cpu:99'"):
        trained(buffer=buffer, folder=tmp_path, mapping="cpu:99")
    run = trained(buffer=buffer, folder=tmp_path, mode="exact", turns=3)
    assert run.result() is not None
    assert trained(buffer=buffer, mode="exact", turns=1).result() is not None


def test_two_trainings_have_no_folder_in_common(tmp_path: Path) -> None:
    run = trained(folder=tmp_path, paused=True)
    buffer = Replay(100, DQN.fields)
    with pytest.raises(trl.errors.ExecutionError, match="another run saves its state in"):
        trained(folder=tmp_path, buffer=buffer)
    run.stop()
    run.result()
    assert trained(buffer=buffer, mode="exact", turns=1).result() is not None
