"""Training on Ray: the bits of one machine, deaths of actors and shards, and clean ends. Needs Ray (`make peers-env`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import pytest

import timerl_nb as trl
from tests import counting
from timerl_nb.base.errors import ExecutionError, OptionError, TimeRLWarning
from timerl_nb.replay import Dqn, Proportional, Replay, Training

ray = pytest.importorskip("ray", reason="Ray is not installed: make peers-env")

# Ray's forked processes execute another program immediately, so forking with threads is safe
pytestmark = pytest.mark.filterwarnings(
    "ignore:os.fork:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

ROOT = Path(__file__).parents[3]
DQN = Dqn("CartPole-v1", hidden=(8,), target_every=5, epsilon=(1.0, 0.1, 20))
SMALL: dict[str, Any] = {"batch": 16, "envs": 2, "steps": 4, "learning_starts": 16, "seed": 3}
ENVIRONMENT = {
    "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'widgets'}",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.fixture(scope="module", autouse=True)
def started() -> Iterator[None]:
    """A Ray of the user: training must not end it."""
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
        runtime_env={"env_vars": ENVIRONMENT},
    )
    yield
    assert ray.is_initialized()
    ray.shutdown()


@pytest.fixture
def short() -> Iterator[str]:
    """Folder of a second Ray; its path is short, because it contains sockets."""
    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


RUNS: list[Training] = []


@pytest.fixture(autouse=True)
def every_run_ends() -> Iterator[None]:
    yield
    for run in RUNS:
        run.stop()
        run._control.ended.wait()
    RUNS.clear()


def trained(algorithm: Any = DQN, **given: Any) -> Training:
    RUNS.append(trl.replay.train(algorithm, **{**SMALL, "cluster": "ray", **given}))
    return RUNS[-1]


def bits(run: Training) -> dict[str, bytes]:
    result = run.result()
    found = {n: x.tobytes() for n, x in result.items() if n != "lost"}
    return found | {f"weights {n}": x.tobytes() for n, x in result.parameters.items()}


def until(condition: Callable[[], Any]) -> Any:
    """Wait for a condition, and return its value."""
    ends = time.monotonic() + 300
    while not (found := condition()):
        assert time.monotonic() < ends, "the condition has not become true"
        assert all(run.state != "failed" for run in RUNS), "a run has failed"
        time.sleep(0.01)
    return found


def process_of(actor: Any) -> int:
    return int(ray.get(actor.__ray_call__.remote(lambda self: os.getpid())))


def actors(run: Training) -> list[Any]:
    return [one.actor for one in run._training._actors._processes]  # type: ignore[attr-defined]


def shards(run: Training) -> list[Any]:
    return [one.handle.actor for one in run._training._buffer._shards]  # type: ignore[union-attr]


def is_gone(process: int) -> bool:
    return not psutil.pid_exists(process) or psutil.Process(process).status() == "zombie"


# --- the same bits ---------------------------------------------------------------------------------


def test_exact_gives_the_bits_of_one_machine(tmp_path: Path) -> None:
    def buffer() -> Replay:
        return Replay(200, DQN.fields, priority=Proportional(), n_step=3, gamma=0.99)

    options: dict[str, Any] = {"mode": "exact", "turns": 24, "blocks": 3, "every": 8}
    here = trained(cluster=None, buffer=buffer(), folder=tmp_path / "here", **options)
    there = trained(actors=2, buffer=buffer(), folder=tmp_path / "there", **options)
    want, found = bits(here), bits(there)
    assert {n: found[n] == x for n, x in want.items()} == dict.fromkeys(want, True)
    assert there.result()["lost"].tolist() == [0.0] * 24 and not there.losses
    # a run saved on one machine continues on Ray
    again = trained(actors=1, buffer=buffer(), folder=tmp_path / "here", **{**options, "turns": 32})
    whole = trained(
        cluster=None, buffer=buffer(), folder=tmp_path / "w", **{**options, "turns": 32}
    )
    assert bits(again) == bits(whole)


def test_a_death_in_mode_exact_names_the_save_to_resume_from(tmp_path: Path) -> None:
    options: dict[str, Any] = {"mode": "exact", "every": 4, "groups": 2}
    want = bits(trained(cluster=None, turns=30, folder=tmp_path / "whole", **options))
    run = trained(turns=30, actors=2, folder=tmp_path / "run", paused=True, **options)
    run.step(6)
    run.wait()
    os.kill(process_of(actors(run)[1]), signal.SIGKILL)
    run.resume()
    with pytest.raises(ExecutionError) as failed:
        run.result()
    assert [one.what for one in run.losses] == ["actor 1"]
    said = str(failed.value)
    assert "actor 1 has died" in said and "to resume from its save after iteration 4" in said
    assert str(tmp_path / "run") in said
    assert bits(trained(turns=30, actors=1, folder=tmp_path / "run", **options)) == want


# --- deaths in mode "free" --------------------------------------------------------------------------


@pytest.mark.parametrize("sharded", [None, 2])
def test_a_killed_actor_is_replaced(sharded: int | None) -> None:
    run = trained(actors=2, shards=sharded, turns=None)
    until(lambda: run.turn > 20)
    first = actors(run)[0]
    before = run.experience
    os.kill(process_of(first), signal.SIGKILL)
    with pytest.warns(TimeRLWarning, match="actor 0 has died with at most 8 rows"):
        until(lambda: run.deaths)
        (loss,) = run.losses
        # its block in progress; one-step rows have no incomplete entries
        assert loss.what == "actor 0" and loss.rows == 2 * 4 and "died" in loss.error
        assert actors(run)[0] is not first and [one.group for one in run.deaths] == [0]
        # the successor acts
        until(lambda: run._training._groups[0].life == 1)
        until(lambda: run.experience > before + 500)
        run.stop()
        result = run.result()
    assert result["lost"].sum() == loss.rows and run.state == "stopped"


def test_a_killed_shard_is_replaced(tmp_path: Path) -> None:
    options: dict[str, Any] = {"actors": 1, "shards": 3, "folder": tmp_path, "every": 10_000}
    run = trained(turns=None, buffer=Replay(600, DQN.fields, priority=Proportional()), **options)
    buffer: Any = run._training._buffer
    until(lambda: len(buffer) == 600)
    os.kill(process_of(shards(run)[1]), signal.SIGKILL)
    with pytest.warns(TimeRLWarning, match="200 rows were lost with shard 1"):
        until(lambda: run.losses)
        assert [(one.what, one.rows) for one in run.losses] == [("shard 1", 200)]
        until(lambda: len(buffer) == 600)  # the successor fills
        turn = run.turn
        until(lambda: run.turn > turn + 10)
        run.stop()
        result = run.result()
    assert result["lost"].sum() == 200 and np.isfinite(result["loss"]).all()
    # the learner's checkpoint resumes, with the rows of all shards
    again = trained(
        turns=run.turn + 5, buffer=Replay(600, DQN.fields, priority=Proportional()), **options
    )
    assert again.result()["loss"].shape[0] >= result["loss"].shape[0] + 5
    assert np.array_equal(again.result()["loss"][: len(result["loss"])], result["loss"])
    with pytest.raises(ExecutionError, match="shards: 3 in the folder, 2 here"):
        trained(turns=3, buffer=Replay(600, DQN.fields), **{**options, "shards": 2})


# --- back-pressure, weights -------------------------------------------------------------------------


def test_requests_are_bounded_and_weights_sent_once_per_version() -> None:
    run = trained(actors=2, groups=3, turns=40, paused=True)
    pool: Any = run._training._actors
    stored: list[int] = []
    put = ray.put

    def counted(x: Any) -> Any:
        stored.append(1)
        return put(x)

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return counted if name == "put" else getattr(ray, name)

    pool._ray = Counted()
    most: list[int] = []
    submit = pool._submit
    pool._submit = lambda *given: (submit(*given), most.append(len(pool._requests)))
    run.resume()
    run.result()
    assert max(most) <= 3 < len(most)
    assert len(stored) <= run._training.slots.version + 1 < len(most) + 40


# --- clean ends -------------------------------------------------------------------------------------


def test_a_stopped_run_leaves_no_processes() -> None:
    run = trained(actors=2, shards=2, turns=None)
    until(lambda: run.turn > 3)
    processes = [process_of(one) for one in (*actors(run), *shards(run))]
    run.stop()
    run.result()
    until(lambda: all(map(is_gone, processes)))
    assert ray.is_initialized()
    assert not [t for t in threading.enumerate() if t.name.startswith("timerl")]


def test_ctrl_c_in_a_terminal_leaves_no_processes(tmp_path: Path, short: str) -> None:
    """A script that starts its own Ray, is interrupted, and goes on."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, ray, timerl_nb as trl

            class Mine(trl.replay.Dqn):  # of __main__, as in a notebook
                def act(self, params, obs, key):
                    return super().act(params, obs, key)

            if __name__ == "__main__":
                run = trl.replay.train(
                    Mine("CartPole-v1", hidden=(8,)), batch=16, envs=2, steps=4, learning_starts=16, cluster="ray"
                )
                while run.turn < 5:
                    pass
                pool = run._training._actors
                print(ray.get(pool._processes[0].actor.__ray_call__.remote(lambda self: os.getpid())), flush=True)
                try:
                    run.result()
                except KeyboardInterrupt:
                    print(run.state, ray.is_initialized(), flush=True)
            """
        )
    )
    with subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, **ENVIRONMENT, "RAY_TMPDIR": short},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as script_run:
        assert script_run.stdout is not None
        process = int(script_run.stdout.readline())
        assert not is_gone(process)
        os.killpg(script_run.pid, signal.SIGINT)
        assert script_run.stdout.readline().split() == ["stopped", "False"]
        until(lambda: is_gone(process))
        assert script_run.wait(60) == 0


# --- errors -----------------------------------------------------------------------------------------


def test_a_failing_environment_is_named() -> None:
    failing = Dqn(trl.env.make(f"gym.{counting.NAME}", raises=6), hidden=(4,))
    with pytest.warns(TimeRLWarning, match="group 0 has failed and restarts"):
        run = trained(failing, turns=200, envs=8, steps=8)
        with pytest.raises(ExecutionError, match="all actors have failed") as failed:
            run.result()
    assert "at step 5 of the batch" in str(failed.value) and len(run.deaths) == 3
    assert not run.losses  # the process has survived


def test_an_environment_that_ends_its_process_is_named() -> None:
    dying = Dqn(trl.env.make(f"gym.{counting.NAME}", dies=6), hidden=(4,))
    with pytest.warns(TimeRLWarning, match="actor 0 has died with at most 64 rows"):
        run = trained(dying, turns=200, envs=8, steps=8)
        with pytest.raises(ExecutionError, match="actor 0 has died") as failed:
            run.result()
    assert len(run.losses) == 3 and "all actors have failed" in str(failed.value)


def test_a_package_that_workers_lack_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "missing_on_actors.py").write_text(
        "from timerl_nb.replay import Dqn\nclass Mine(Dqn):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import missing_on_actors  # type: ignore[import-not-found]

    with pytest.warns(TimeRLWarning, match="cannot import missing_on_actors"):
        run = trained(missing_on_actors.Mine("CartPole-v1", hidden=(4,)), turns=10)
        with pytest.raises(ExecutionError) as failed:
            run.result()
    assert "install the package on every machine" in str(failed.value)


def test_what_cannot_be_pickled_is_refused() -> None:
    class Locked:
        def __init__(self) -> None:
            self.of, self.lock = DQN, threading.Lock()

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") or name == "of":
                raise AttributeError(name)
            return getattr(self.of, name)

    with pytest.raises(OptionError, match="cannot be sent to other processes") as refused:
        trained(Locked(), turns=3)
    assert "lock" in str(refused.value)


@pytest.mark.parametrize("sharded", [None, 2])
def test_a_full_object_store_is_explained(
    sharded: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(x: Any) -> Any:
        raise ray.exceptions.ObjectStoreFullError("3 GiB wanted")

    monkeypatch.setattr(ray, "put", full)
    run = trained(turns=5, shards=sharded)
    with pytest.raises(ExecutionError, match="object store of Ray is full") as failed:
        run.result()
    assert "object_store_memory" in str(failed.value)
