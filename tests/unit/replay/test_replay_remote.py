"""Parts of training on Ray that need no Ray: refused options, the code of an actor, and messages."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import cloudpickle
import numpy as np
import pytest

import timerl_nb as trl
from tests import counting
from timerl_nb.base import ray_session
from timerl_nb.base.errors import (
    ExecutionError,
    MissingPartError,
    OptionError,
    ShapeError,
)
from timerl_nb.base.ray_session import RaySession, missing_on_worker, reason_of_death
from timerl_nb.collecting.collection_task import Registration
from timerl_nb.env import environment
from timerl_nb.execution.control.pause_and_stop import Stopped
from timerl_nb.replay import Dqn, Proportional, Replay, Stepwise
from timerl_nb.replay.distributed.actor_environments import Failure, Stepper, SteppingRequest
from timerl_nb.replay.distributed.ray_actor_pool import RayActors, RayPool, RemoteGroup
from timerl_nb.replay.distributed.ray_shards import RayShard
from timerl_nb.replay.storage.replay_buffer import construction_of
from timerl_nb.replay.training.environment_group import ActedSteps, Death, Group
from timerl_nb.replay.training.environment_openers import opener
from timerl_nb.runtime.jax_backend import graph_function as graph
from timerl_nb.runtime.jax_backend.arrays_and_devices import jax_settings

DQN = Dqn("CartPole-v1", hidden=(8,))


def ray_of(version: str) -> Any:
    return SimpleNamespace(__version__=version)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cluster": "slurm"}, "cluster='slurm' is not supported"),
        ({"cluster": 3}, "cluster=3 is not supported"),
        ({"shards": 2}, 'shards=2 needs cluster="ray"'),
        ({"cluster": "ray", "shards": 2, "mode": "exact"}, 'mode="exact" excludes shards=2'),
        ({"cluster": "ray", "policy": Stepwise()}, "excludes policy="),
    ],
    ids=str,
)
def test_options_of_a_cluster_are_checked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        trl.replay.train(DQN, turns=3, **options)
    assert said in str(refused.value)


@pytest.mark.parametrize("shards", [0, -1, 1.5, "x", 2**70, 101])
def test_numbers_of_shards_are_checked(shards: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", ray_of("2.60.0"))
    monkeypatch.setattr(ray_session, "version", lambda name: "2.60.0")
    buffer = Replay(100, DQN.fields)
    with pytest.raises((OptionError, ShapeError), match="shards"):
        trl.replay.train(
            DQN, turns=3, cluster="ray", shards=shards, buffer=buffer, learning_starts=10, envs=2
        )
    # the buffer is free for another run
    trl.replay.train(DQN, turns=1, buffer=buffer, learning_starts=10, envs=2).result()


def test_a_missing_or_old_ray_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPartError) as missing:
        trl.replay.train(DQN, turns=3, cluster="ray")
    assert 'pip install "timerl-nb[ray]"' in str(missing.value)
    monkeypatch.setitem(sys.modules, "ray", ray_of("2.9.3"))
    monkeypatch.setattr(ray_session, "find_spec", lambda name: object())
    monkeypatch.setattr(ray_session, "version", lambda name: "2.9.3")
    with pytest.raises(MissingPartError, match=r"Ray 2\.9\.3 is older than 2\.60") as old:
        trl.replay.train(DQN, turns=3, cluster="ray")
    assert 'pip install "timerl-nb[ray]"' in str(old.value)


# --- the code of an actor ---------------------------------------------------------------------------


def stepper(algorithm: Dqn, buffer: Replay) -> Stepper:
    fields, options = construction_of(buffer)
    asked = SteppingRequest(algorithm, fields, options, 2, 6, None, 5, jax_settings())
    return Stepper(cloudpickle.dumps(asked))


def test_an_actor_makes_the_blocks_of_a_thread() -> None:
    buffer = Replay(100, DQN.fields, priority=Proportional(), n_step=3)
    remote = stepper(DQN, buffer)
    params = DQN.acting(DQN.begin(1))
    weights = {n: np.asarray(x) for n, x in graph.leaves(params).items()}
    for life in (0, 1):
        here = Group(1, opener(DQN, 2, 6), buffer.actor, 5, life)
        for version in (4, 5):
            made, entries = remote.block(1, life, version, weights)
            want = here.block(version, params)
            assert isinstance(made, ActedSteps) and made.version == version and not made.entries
            assert made.count == want.count == len(entries["obs"])
            assert made.incomplete == want.incomplete <= 2 * 2
            assert entries.keys() == want.entries.keys()
            for name, x in want.entries.items():
                assert entries[name].tobytes() == x.tobytes(), name
        here.close()


def test_a_failed_group_says_so_until_it_restarts() -> None:
    failing = Dqn(trl.env.make(f"gym.{counting.NAME}", raises=3), hidden=(4,))
    remote = stepper(failing, Replay(100, failing.fields))
    weights = {n: np.asarray(x) for n, x in graph.leaves(failing.acting(failing.begin(0))).items()}
    made = Failure("")
    for life in range(20):  # environments of an odd offset, a function of the seed, raise errors
        made, entries = remote.block(0, life, 0, weights)
        if isinstance(made, Failure):
            assert not entries and "failed at step 2 of the batch" in made.what
            assert remote.block(0, life, 0, weights)[0] == Failure("the group has failed before")
            break
    assert isinstance(made, Failure) and made.what


def test_a_module_that_an_actor_lacks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_there.py").write_text("class Mine:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_there  # type: ignore[import-not-found]

    content = pickle.dumps(only_there.Mine())
    del sys.modules["only_there"]
    (tmp_path / "only_there.py").unlink()
    made, _ = Stepper(content).block(0, 0, 0, {})
    assert isinstance(made, Failure) and made.missing == "only_there"
    said = str(missing_on_worker(made.missing, made.what))
    assert "cannot import only_there" in said and "install the package on every machine" in said


@pytest.mark.parametrize("n_step", [1, 3])
def test_steps_of_incomplete_entries_are_counted(n_step: int) -> None:
    buffer = Replay(100, DQN.fields, n_step=n_step)
    here = Group(0, opener(DQN, 2, 6), buffer.actor, 0)
    made = here.block(0, DQN.acting(DQN.begin(0)))
    # each step is the beginning of an entry, so the others are incomplete
    assert made.incomplete == made.steps - made.count
    assert (made.incomplete > 0) == (n_step > 1)
    here.close()


@pytest.mark.parametrize(
    ("folder", "every", "said"),
    [
        ("", 4, "pass folder= to save a run"),
        ("late", 1000, "has no save yet: choose a smaller every="),
        ("saved", 4, "to resume from its save after iteration 4"),
    ],
)
def test_a_failed_exact_run_names_its_save(
    folder: str, every: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = Group.block

    def fails_once(self: Group, version: int, params: Any) -> ActedSteps:
        if version == 4:
            raise RuntimeError("a cable was pulled")
        return block(self, version, params)

    place = tmp_path / folder if folder else None
    options: dict[str, Any] = {
        "mode": "exact",
        "envs": 2,
        "steps": 4,
        "learning_starts": 8,
        "batch": 8,
    }
    options |= {"groups": 1, "every": every, "folder": place, "turns": 9}
    monkeypatch.setattr(Group, "block", fails_once)
    run = trl.replay.train(DQN, **options)
    with pytest.raises(ExecutionError, match="a cable was pulled") as failed:
        run.result()
    assert said in str(failed.value) and str(place or "") in str(failed.value)
    monkeypatch.setattr(Group, "block", block)
    if folder:
        assert trl.replay.train(DQN, **options).result()["loss"].size


def test_actors_receive_the_registration_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a process of Ray, in which the user's script has not run."""
    from gymnasium import registry, spec

    class Short(trl.env.CartPole):
        pass

    given = {"RemoteShort": Short, "remote.*": lambda name, **options: Short(**options)}
    for name, factory in given.items():
        trl.env.register(name, factory)
    registry["RemoteGym-v0"] = copy(spec("CartPole-v1"))
    registry["RemoteGym-v0"].id = "RemoteGym-v0"
    gym = trl.env.make("gym.RemoteGym-v0")
    sent = [Registration.to_send(x) for x in ("RemoteShort", "remote.x", "gym.RemoteGym-v0", gym)]
    assert Registration.to_send("CartPole-v1") is None
    content = cloudpickle.dumps(sent)
    monkeypatch.setattr(environment, "_FACTORIES", {})
    monkeypatch.delitem(environment._FAMILIES, "remote")
    del registry["RemoteGym-v0"]
    for one in pickle.loads(content):
        Registration.receive(one)
    for name in ("RemoteShort", "remote.x", "gym.RemoteGym-v0"):
        assert trl.env.make(name).obs_space.shape == (4,)
    own = registry.pop("RemoteGym-v0")
    registry["RemoteGym-v0"] = "known here"  # type: ignore[assignment]
    Registration.receive(("gym.*", own))
    assert registry.pop("RemoteGym-v0") == "known here"


# --- a pool of processes, with a fake of Ray --------------------------------------------------------


class RayActorError(Exception): ...


class FakeRay:
    """Blocks without processes: each reference is a result, an error, or None while it is not finished."""

    exceptions = SimpleNamespace(RayActorError=RayActorError, ObjectLostError=KeyError)

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self.count = 0
        self.killed: list[Any] = []

    def remote(self, made: type) -> Any:
        def block(*given: Any) -> tuple[str, str]:
            self.count += 1
            self.results[f"block {self.count}"] = None
            return f"block {self.count}", f"entries {self.count}"

        def start(request: bytes) -> Any:
            method = SimpleNamespace(options=lambda num_returns: SimpleNamespace(remote=block))
            return SimpleNamespace(block=method)

        return SimpleNamespace(options=lambda **given: SimpleNamespace(remote=start))

    def put(self, x: Any) -> Any:
        return x

    def wait(
        self, asked: list[str], timeout: float, num_returns: int = 1
    ) -> tuple[list[str], list]:
        done = [ref for ref in asked if self.results[ref] is not None][:num_returns]
        return done, [ref for ref in asked if ref not in done]

    def get(self, ref: str) -> Any:
        if isinstance(found := self.results[ref], Exception):
            raise found
        return found

    def kill(self, actor: Any, no_restart: bool) -> None:
        self.killed.append(actor)


def test_blocks_that_a_process_has_completed_before_its_death_are_received() -> None:
    losses: list[Any] = []
    fake = FakeRay()
    pool = RayPool(_Session(fake), b"", 8, True, lambda: False, losses)  # type: ignore[arg-type]
    actors = RayActors(pool, [RemoteGroup(0), RemoteGroup(1)], lambda: (0, {}), again=True)
    actors.resize(1)  # two groups in one process
    steps = ActedSteps(1, {}, 8, np.zeros(0), 0, 0.1, 6, incomplete=2)
    fake.results |= {"block 1": RayActorError("It is gone."), "block 2": steps}
    made = [actors.take() for _ in range(3)]
    assert made[0] == replace(steps, entries="entries 2")  # type: ignore[arg-type]
    assert [(type(one), one.group) for one in made[1:]] == [(Death, 0), (Death, 1)]
    # the block of group 0, and the incomplete entries of group 1
    assert [(one.what, one.rows) for one in losses] == [("actor 0", 8 + 2)]
    assert len(fake.killed) == 1 and not actors._requests


class _Session:
    """A connection to a fake of Ray."""

    cpus = 2

    def __init__(self, ray: FakeRay) -> None:
        self.ray = ray

    def connected(self) -> Any:
        return nullcontext()

    def wait(self, references: Sequence[Any], seconds: float, count: int = 1) -> list[Any]:
        return self.ray.wait(list(references), num_returns=count, timeout=seconds)[0]

    def explain(self, error: Exception) -> ExecutionError:
        return ExecutionError(str(error))

    def raise_explained(self, error: Exception, what: str = "") -> NoReturn:
        raise self.explain(error) from error

    def kill(self, actor: Any) -> None:
        self.ray.kill(actor, no_restart=True)


# --- messages ---------------------------------------------------------------------------------------


class ObjectStoreFullError(Exception): ...


class OutOfDiskError(Exception): ...


def session(is_initialized: bool = True) -> RaySession:
    context = SimpleNamespace(get_session_name=lambda: "s", get_job_id=lambda: "1")
    fake = SimpleNamespace(
        is_initialized=lambda: is_initialized,
        get_runtime_context=lambda: context,
        exceptions=SimpleNamespace(
            ObjectStoreFullError=ObjectStoreFullError, OutOfDiskError=OutOfDiskError
        ),
    )
    return RaySession(fake, ("s", "1"), "a training run")


def test_a_shard_that_has_not_started_does_not_delay_a_stop() -> None:
    fake = FakeRay()
    fake.results["draw"] = None
    method = SimpleNamespace(remote=lambda *given: "draw")
    actor = SimpleNamespace(draw=method, _actor_id=SimpleNamespace(hex=lambda: "1"))
    shard = RayShard(_Session(fake), actor, 0, lambda: True)  # type: ignore[arg-type]
    with pytest.raises(Stopped):
        shard.draw(np.zeros(1), 1.0)()
    fake.results["draw"] = "rows"
    assert shard.draw(np.zeros(1), 1.0)() == "rows"


def test_a_start_that_times_out_names_the_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*given: Any, **options: Any) -> None:
        raise RuntimeError("The current node timed out during startup.")

    fake = SimpleNamespace(init=slow, shutdown=lambda: None, __version__="2.60.0")
    fake.is_initialized = lambda: False
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(ray_session, "version", lambda name: "2.60.0")
    with pytest.raises(ExecutionError, match="Ray does not start") as failed:
        RaySession.open("a training run")
    assert "the machine is probably busy" in failed.value.hint


def test_errors_of_ray_are_explained() -> None:
    assert "object_store_memory" in str(session().explain(ObjectStoreFullError("3 GiB")))
    caused = RuntimeError("task failed")
    caused.cause = OutOfDiskError()  # type: ignore[attr-defined]
    assert "object store of Ray is full" in str(session().explain(caused))
    missing = session().explain(RuntimeError("ModuleNotFoundError: No module named 'robots.arm'"))
    assert isinstance(missing, MissingPartError) and "'pip': ['robots']" in str(missing)
    assert "see the logs of Ray" in str(session().explain(RuntimeError("x")))
    own = OptionError("wrong.")
    assert session().explain(own) is own
    task = RuntimeError("ray::ReplayShard.load_state() (pid=3) Traceback")
    task.cause = own  # type: ignore[attr-defined]
    assert session().explain(task) is own
    with pytest.raises(OptionError, match=r"^wrong\."):
        session().raise_explained(task)
    assert "Ray was shut down while a training run used it" in str(
        session(is_initialized=False).explain(RuntimeError("x"))
    )
    with pytest.raises(ExecutionError, match="Ray was shut down"):
        session(is_initialized=False).check_alive()


def test_the_reason_of_a_death_is_one_line() -> None:
    text = (
        "The actor died unexpectedly before finishing this task.\n\tclass_name: A\n\tpid: 3\n"
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR "
        "Worker exit detail: End of file. Some common causes include: (1) the process was killed."
    )
    assert reason_of_death(RuntimeError(text)) == (
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR "
        "Worker exit detail: End of file"
    )
    assert reason_of_death(RuntimeError("It is gone.")) == "It is gone"
    assert reason_of_death(RuntimeError()) == "RuntimeError"
