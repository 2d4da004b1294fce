"""Arguments of `trl.collect` for Ray that are refused. These tests need no Ray."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
import threading
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base import ray_session
from timerl_nb.base.errors import (
    EnvError,
    ExecutionError,
    MissingPartError,
    OptionError,
    ShapeError,
)
from timerl_nb.base.ray_session import OLDEST, RaySession, import_ray, why_no_ray
from timerl_nb.collecting.ray_actors import ray_batches
from timerl_nb.collecting.ray_actors.batch_parts import BatchInProgress, split_environments
from timerl_nb.collecting.ray_actors.ray_batches import RayTurns

ENV = "gym.CartPole-v1"


def collect(**more: Any) -> Any:
    return trl.collect(ENV, trl.policies.random, **{"envs": 4, **more})


def test_without_ray_the_strategy_does_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(OptionError, match="Ray is not installed") as caught:
        collect(how="ray")
    assert 'pip install "timerl-nb[ray]"' in caught.value.what
    with pytest.raises(MissingPartError, match="Ray cannot be imported") as missing:
        import_ray()
    assert 'pip install "timerl-nb[ray]"' in missing.value.hint
    row = collect(cluster="ray", how="any").strategies["ray"]
    assert row.why_not == 'Ray is not installed: pip install "timerl-nb[ray]"'


def test_an_old_ray_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "find_spec", lambda _: object())
    for version, is_old in (
        ("2.59.9", True),
        ("1.13", True),
        ("2.60.0", False),
        ("3.0.0rc1", False),
    ):
        monkeypatch.setattr(ray_session, "version", lambda _, version=version: version)
        assert (why_no_ray() is not None) == is_old
    monkeypatch.setattr(ray_session, "version", lambda _: "2.9.3")
    with pytest.raises(OptionError, match=r"Ray 2\.9\.3 is older than 2\.60") as caught:
        collect(how="ray")
    assert 'pip install -U "timerl-nb[ray]"' in caught.value.what

    def unknown(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(ray_session, "version", unknown)
    assert why_no_ray() is None
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    oldest = ".".join(map(str, OLDEST))
    assert extras["project"]["optional-dependencies"]["ray"][0].startswith(f"ray>={oldest},")


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        ({"how": "ray", "workers": 0}, "workers, the number of Ray workers, must be", ""),
        ({"how": "ray", "workers": "x"}, "workers, the number of Ray workers, must be", ""),
        ({"how": "ray", "workers": 5}, "workers=5, but there are 4 environments", "workers=4"),
        ({"how": "loop", "workers": 2}, "but how='loop' does not use them", 'how="ray"'),
        ({"workers": 2}, "but how='auto' does not use them", 'cluster="ray"'),
        ({"how": "loop", "cluster": "ray"}, "but how='loop'", 'how="ray"'),
        ({"cluster": "10.0.0.1:6379"}, "cluster='10.0.0.1:6379' is not supported", "ray.init"),
        ({"cluster": True}, "cluster=True is not supported", "ray.init"),
    ],
)
def test_contradictory_arguments_are_refused(
    arguments: dict[str, Any], what: str, hint: str
) -> None:
    with pytest.raises(trl.errors.TimeRLError) as caught:
        collect(**arguments)
    assert what in caught.value.what and hint in caught.value.hint


def test_other_environments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timerl_nb.collecting.strategies.ray_workers.why_no_ray", lambda: None)
    import gymnasium

    vector = gymnasium.make_vec("CartPole-v1", 2)
    with pytest.raises(
        OptionError, match="a given vector environment steps its environments itself"
    ):
        trl.collect(vector, trl.policies.random, how="ray")
    vector.close()
    monkeypatch.setattr("timerl_nb.collecting.strategies.envpool_threads.library", lambda: None)
    with pytest.raises(OptionError, match=r"'ray-threads' does not apply: EnvPool"):
        trl.collect(ENV, trl.policies.random, how="ray-threads")


def test_auto_ignores_an_initialised_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    with collect(how="auto") as c:
        assert "ray" not in [row.name for row in c.strategies]


@pytest.mark.parametrize(("envs", "count"), [(1, 1), (5, 2), (7, 3), (64, 9), (4, 4)])
def test_groups_have_nearly_equal_sizes(envs: int, count: int) -> None:
    workers = [*split_environments(envs, count)]
    assert [k for w in workers for k in range(w.rows.start, w.rows.stop)] == [*range(envs)]
    assert len(workers) == count and {w.envs for w in workers} <= {envs // count, -(-envs // count)}


def fake_ray(**more: Any) -> Any:
    context = SimpleNamespace(get_session_name=lambda: "s", get_job_id=lambda: "1")
    found = {"is_initialized": lambda: True, "get_runtime_context": lambda: context, **more}
    return SimpleNamespace(__spec__=object(), **found)


def test_ray_of_the_user_is_not_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()
    ray = fake_ray(init=lambda *_, **__: calls.append("init"), shutdown=lambda: calls.append("end"))
    monkeypatch.setitem(sys.modules, "ray", ray)
    RaySession.open("a test").close()
    assert calls == []
    here = [False]
    ray.is_initialized = lambda: here[0]
    ray.init = lambda *_, **__: calls.append("init") or here.__setitem__(0, True)
    one, other = RaySession.open("a test"), RaySession.open("a test")
    one.close()
    assert calls == ["init"]
    other.close()
    assert calls == ["init", "end"]


def test_a_start_omits_messages_that_every_start_repeats(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("ray._private.worker")

    def start(*_: Any, **__: Any) -> None:
        logger.warning("SIGTERM handler is not set because current thread is not the main thread.")
        logger.warning("The object store is using /tmp instead of /dev/shm.")

    ray = fake_ray(init=start, shutdown=lambda: None)
    ray.is_initialized = lambda: False
    monkeypatch.setitem(sys.modules, "ray", ray)
    RaySession.open("a test").close()
    assert caplog.messages == ["The object store is using /tmp instead of /dev/shm."]
    logger.warning("SIGTERM handler is not set by the user")
    assert len(caplog.messages) == 2


def test_a_ray_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ConnectionError("no cluster at 10.0.0.1")

    ray = fake_ray(is_initialized=lambda: False, init=fails, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(ExecutionError, match="Ray does not start: ConnectionError") as caught:
        RaySession.open("a test")
    assert "RAY_ADDRESS" in caught.value.hint


def test_parts_of_different_types_are_refused() -> None:
    turns: Any = RayTurns.__new__(RayTurns)
    turns._task = SimpleNamespace(envs=4)
    one, other = split_environments(4, 2)
    into = dict[str, Any]()
    turns._copy_rows(into, "value", np.ones((3, 2), np.float32), one, axis=1)
    with pytest.raises(ShapeError, match="the policy's value is int64"):
        turns._copy_rows(into, "value", np.ones((3, 2), np.int64), other, axis=1)
    turns._copy_rows(into, "value", np.zeros((3, 2), np.float32), other, axis=1)
    np.testing.assert_array_equal(into["value"], [[1, 1, 0, 0]] * 3)


def copied(*pieces: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> Any:
    """Return a batch of two workers with two environments each, from arrays, extras and states."""
    turns: Any = RayTurns.__new__(RayTurns)
    turns._task = SimpleNamespace(envs=4, acting=SimpleNamespace(tree_of=lambda states: states))
    turns._workers, turns._restarts = [*split_environments(4, 2)], []
    part = BatchInProgress(0, None, 0)
    none = np.zeros(0, np.int64)
    for worker, (arrays, extras, states) in zip(turns._workers, pieces, strict=True):
        own = {"arrays": arrays, "extras": extras, "states": states, "count": 6, "speed": None}
        ends = {"final": {"step": none, "env": none, "obs": none}, "episodes": (none, none)}
        turns._copy(worker, part, own | ends)
    return turns._joined(part)


def arrays_of(first: int, masks: bool = False) -> dict[str, Any]:
    """Return the arrays of 3 steps of two environments, from the given number."""
    x = np.arange(3)[:, None] * 10 + np.arange(first, first + 2)
    flags = {name: np.ones((3, 2), bool) for name in ("terminated", "truncated", "valid")}
    found = {"obs": x, "action": x, "reward": x, "last_obs": x[-1] + 10, **flags}
    if masks:
        found |= {
            "action_mask": np.ones((3, 2, 5), bool),
            "last_action_mask": np.ones((2, 5), bool),
        }
    return found


def test_extras_and_states_of_any_name_are_joined_by_environments() -> None:
    """The name `last_…` of an extra or state does not mean the last observations."""
    x = np.arange(3)[:, None] * 10 + np.arange(4)
    parts = [
        (arrays_of(k), {"last_value": x[:, k : k + 2]}, {"last_h": x[:, k : k + 2]}) for k in (0, 2)
    ]
    batch = copied(*parts)
    np.testing.assert_array_equal(batch.last_value, x)
    np.testing.assert_array_equal(batch.states["last_h"], x)
    np.testing.assert_array_equal(batch.last_obs, x[-1] + 10)


def test_arrays_of_some_workers_only_are_refused() -> None:
    """The rows of the others would be memory without a value."""
    with pytest.raises(
        ShapeError, match="returns v for environments 2 to 3, but not for"
    ) as caught:
        copied((arrays_of(0), {}, {}), (arrays_of(2), {"v": np.ones((3, 2))}, {}))
    assert "equal extras" in caught.value.hint
    with pytest.raises(
        EnvError, match="worker of environments 0 to 1 received an action_mask"
    ) as found:
        copied((arrays_of(0, masks=True), {}, {}), (arrays_of(2), {}, {}))
    assert "infos of every reset" in found.value.hint


def test_errors_of_actors_are_explained() -> None:
    pytest.importorskip("ray", reason="needs Ray: make peers-env")
    turns: Any = RayTurns.__new__(RayTurns)
    known = SimpleNamespace(ObjectStoreFullError=MemoryError, OutOfDiskError=BlockingIOError)
    turns._session = RaySession(fake_ray(exceptions=known), ("s", "1"), "a test")
    worker, *_ = split_environments(4, 2)
    for error, what, hint in (
        (MemoryError("10 MB"), "MemoryError: 10 MB", "object_store_memory"),
        (ValueError("odd"), "the weights cannot be stored: ValueError: odd", "logs"),
    ):
        with (
            pytest.raises(ExecutionError) as caught,
            turns._calling("the weights cannot be stored"),
        ):
            raise error
        assert what in caught.value.what and hint in caught.value.hint
    answer = {"node": "n1", "trace": "…\nOdd: strange", "warnings": []}
    missing = turns._error_of(
        worker, answer | {"error": {"missing": "game.core", "said": "No game"}}
    )
    assert isinstance(missing, MissingPartError)
    assert (
        missing.what == "the worker of environments 0 to 1 on n1 cannot import game.core (No game)."
    )
    assert "['game']" in missing.hint
    for error in ("Odd: strange", b"no pickle"):
        assert "Odd: strange" in str(turns._error_of(worker, answer | {"error": error}))
    differing = answer | {"value": {"Python": "3.9"}}
    with pytest.raises(ExecutionError, match=r"has Python 3\.9 instead of 3\.\d+"):
        turns._check_versions(worker, differing)
    assert ray_batches.versions().keys() == {"Python", "timerl-nb"}


def test_a_wait_lets_other_threads_call_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with a result, after its time, or when another thread shuts Ray down."""
    lock, asked, here = threading.RLock(), list[tuple[int, float]](), [True]
    monkeypatch.setattr(ray_session, "_shutdown_lock", lambda: lock)

    def wait(refs: list[str], num_returns: int, timeout: float) -> Any:
        asked.append((num_returns, timeout))
        other = threading.Thread(target=shut_down if len(asked) == 5 else lambda: None)
        other.start()
        return (refs[:num_returns], []) if len(asked) == 3 else ([], refs)

    def shut_down() -> None:
        with lock:
            here[0] = False

    session = RaySession(fake_ray(wait=wait), ("s", "1"), "a test")
    session.ray.is_initialized = lambda: here[0]
    assert session.wait(["a", "b"], 0) == [] and asked == [(1, 0.0)]
    assert session.wait(["a", "b"], 3600, 2) == ["a", "b"] and len(asked) == 3
    assert all(0 < seconds <= ray_session._SLICE for _, seconds in asked[1:])
    with pytest.raises(ExecutionError, match="Ray was shut down while a test used it"):
        session.wait(["a"], 3600)


def test_workers_that_open_their_environments_slowly_are_not_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a worker that Ray has not created is missing a CPU."""
    monkeypatch.setattr(ray_batches, "_PATIENCE", -1.0)
    turns: Any = RayTurns.__new__(RayTurns)
    turns._workers = [*split_environments(4, 2)]
    created = ["first"]
    turns._session = SimpleNamespace(
        wait=lambda refs, _: [one for one in refs if one in created], cpus=2, free_cpus=0
    )
    for worker, name in zip(turns._workers, ("first", "second"), strict=True):
        worker.opening, worker.placed = object(), name
    with pytest.raises(ExecutionError, match="1 of 2 workers did not start"):
        turns._check_starts()
    created.append("second")
    turns._check_starts()
