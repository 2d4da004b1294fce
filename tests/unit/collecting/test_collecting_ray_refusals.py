"""Arguments of `trl.collect` for Ray that are refused. These tests need no Ray."""

from __future__ import annotations

import importlib.metadata
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base import ray_session
from timerl_nb.base.errors import ExecutionError, MissingPartError, OptionError, ShapeError
from timerl_nb.base.ray_session import OLDEST, RaySession, import_ray, why_no_ray
from timerl_nb.collecting.ray_actors import ray_batches
from timerl_nb.collecting.ray_actors.ray_batches import RayTurns, _split

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
    workers = [*_split(envs, count)]
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
    one, other = _split(4, 2)
    into = dict[str, Any]()
    turns._copy_rows(into, "value", np.ones((3, 2), np.float32), one, axis=1)
    with pytest.raises(ShapeError, match="the policy's value is int64"):
        turns._copy_rows(into, "value", np.ones((3, 2), np.int64), other, axis=1)
    turns._copy_rows(into, "value", np.zeros((3, 2), np.float32), other, axis=1)
    np.testing.assert_array_equal(into["value"], [[1, 1, 0, 0]] * 3)


def test_errors_of_actors_are_explained() -> None:
    turns: Any = RayTurns.__new__(RayTurns)
    known = SimpleNamespace(ObjectStoreFullError=MemoryError, OutOfDiskError=BlockingIOError)
    turns._session = RaySession(fake_ray(exceptions=known), ("s", "1"), "a test")
    worker, *_ = _split(4, 2)
    full = turns._explained(MemoryError("10 MB"), "the weights cannot be stored")
    assert "object_store_memory" in full.hint and "MemoryError: 10 MB" in full.what
    assert "logs" in turns._explained(ValueError("odd"), "it failed").hint
    answer = {"node": "n1", "trace": "…\nOdd: strange", "warnings": []}
    missing = turns._error_of(
        worker, answer | {"error": {"missing": "game.core", "said": "No game"}}
    )
    assert isinstance(missing, MissingPartError)
    assert (
        missing.what == "the worker of environments 0 to 1 on n1 cannot import game.core: No game."
    )
    assert "['game']" in missing.hint
    for error in ("Odd: strange", b"no pickle"):
        assert "Odd: strange" in str(turns._error_of(worker, answer | {"error": error}))
    differing = answer | {"value": {"Python": "3.9"}}
    with pytest.raises(ExecutionError, match=r"has Python 3\.9 instead of 3\.\d+"):
        turns._check_versions(worker, differing)
    assert ray_batches.versions().keys() == {"Python", "timerl-nb"}
