"""`trl.collect(…, how="ray")` in a Ray instance of this machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import timerl_nb as trl
from tests.dangerous import SEED, Dangerous, calm, dangerous
from timerl_nb.base.errors import (
    EnvError,
    ExecutionError,
    MissingPartError,
    OptionError,
    TimeRLWarning,
)
from timerl_nb.collecting import Batch, Collector
from timerl_nb.collecting.ray_actors import ray_batches
from timerl_nb.env.gymnasium import distinct_seeds

ray: Any = pytest.importorskip("ray", reason="Ray is not installed: make peers-env")

# the forked processes of Ray execute another program
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

ENVS, STEPS = 5, 20
FIELDS = ("obs", "action", "reward", "terminated", "truncated", "valid", "last_obs", "log_prob")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Start a Ray instance of the user, with more CPUs than the machine may have."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        root = str(Path(__file__).parents[3])
        ray.init(
            "local",
            num_cpus=3,
            include_dashboard=False,
            _system_config={"worker_niceness": 0},  # the machine has other programs
            log_to_driver=False,
            configure_logging=False,
            runtime_env={"env_vars": {"PYTHONPATH": root}},
        )
    yield
    ray.shutdown()


def network() -> Any:
    return trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), hidden=[8])


def collector(how: str, **more: Any) -> Collector:
    named = {"envs": ENVS, "steps": STEPS, "seed": SEED, "how": how, **more}
    return trl.collect("gym.CartPole-v1", network(), **named)


def assert_equal(one: Batch, other: Batch) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_array_equal(one.episodes.returns, other.episodes.returns)
    np.testing.assert_array_equal(one.episodes.lengths, other.episodes.lengths)
    for name in ("step", "env", "obs"):
        np.testing.assert_array_equal(getattr(one.final, name), getattr(other.final, name))
    assert (one.count, one.policy_version) == (other.count, other.policy_version)


def test_batches_equal_those_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after new weights, which are stored once per version."""
    stored, copied = list[Any](), list[str]()
    put, copy = ray.put, ray_batches.RayTurns._copy_rows

    def count(self: Any, into: Any, name: str, *others: Any, **more: Any) -> None:
        copied.append(name)
        copy(self, into, name, *others, **more)

    monkeypatch.setattr(ray, "put", lambda x: stored.append(x) or put(x))
    monkeypatch.setattr(ray_batches.RayTurns, "_copy_rows", count)
    with collector("processes") as one, collector("ray", workers=2) as other:
        batches = list[tuple[Batch, Batch]]()
        new = {n: np.asarray(x) + 1 for n, x in one.weights.items()}
        for params in (None, None, new, None):
            batches.append((one.next(params), other.next(params)))
        assert other.counts.copies == 2 * len(FIELDS) and other.counts.calls == 2
        assert len(other.strategies) == len(one.strategies) + 2
    for pair in batches:
        assert_equal(*pair)
    assert [b.policy_version for _, b in batches] == [0, 0, 1, 1]
    assert len(stored) == 1 + 2  # the policy and environment, and two versions
    assert len(copied) == 4 * 2 * len(FIELDS)  # each array once per worker
    assert ray.is_initialized()
    # the memory is the caller's: writable, separate, and unchanged by later batches
    first, last = batches[0][1], batches[3][1]
    for name in FIELDS:
        x = getattr(first, name)
        assert x.flags.writeable and not np.shares_memory(x, getattr(last, name))
        x[:] = 0
    assert not first.restarts


def recurrent(params: Any, obs: Any, state: Any, key: Any) -> Any:
    state = state + obs.sum() * params["w"]
    return jax.random.bernoulli(key).astype(int), {"log_prob": state}, state


def test_recurrent_policies_and_episodes_equal_those_of_processes() -> None:
    more: dict[str, Any] = {"envs": ENVS, "steps": STEPS, "seed": SEED, "episodes": 7}
    more |= {"initial_state": np.float32(0), "params": {"w": np.float32(0.5)}}
    made = list[Batch]()
    for options in ({"how": "loop"}, {"how": "ray", "workers": 3, "ahead": 1}):
        with trl.collect("gym.CartPole-v1", recurrent, **more, **options) as c:
            c.next()
            made.append(c.next())
    assert_equal(*made)
    np.testing.assert_array_equal(made[0].state, made[1].state)


def test_modules_of_pytorch_act_in_workers() -> None:
    """Also with new weights, which are copied, and with a state besides them."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scale = torch.nn.Linear(4, 2), 1.0

        def get_extra_state(self) -> Any:
            return {"scale": self.scale}

        def set_extra_state(self, state: Any) -> None:
            self.scale = state["scale"]

        def forward(self, obs: Any) -> Any:
            logits = self.layer(obs)
            return logits.argmax(-1), {"value": self.scale + logits[:, 0] * 0}

    torch.manual_seed(1)
    module, made = Scaled(), list[list[Batch]]()
    before = {n: getattr(x, "clone", lambda x=x: x)() for n, x in module.state_dict().items()}
    for options in ({"how": "loop"}, {"how": "ray", "workers": 2, "ahead": 1}):
        module.load_state_dict(before)
        with trl.collect("gym.CartPole-v1", module, envs=ENVS, steps=3, seed=SEED, **options) as c:
            new = {n: -x if hasattr(x, "dtype") else {"scale": 2.0} for n, x in before.items()}
            batches = [c.next()]
            for count in range(3):
                if count == options.get("ahead", 0):  # from the next requested batch on
                    c.load(new)
                    for x in new.values():  # they have been copied
                        if hasattr(x, "zero_"):
                            x.zero_()
                batches.append(c.next())
            made.append(batches)
    plain, other = made
    assert [b.policy_version for b in plain] == [0, 1, 1, 1]
    assert [b.policy_version for b in other] == [0, 0, 0, 1]
    assert {float(x) for x in plain[0].value.ravel()} == {1.0}
    for one, found in ((plain[0], other[0]), (plain[1], other[3])):
        assert one.value.max() == found.value.max()
    np.testing.assert_array_equal(plain[0].obs, other[0].obs)
    np.testing.assert_array_equal(plain[0].action, other[0].action)


def test_threads_of_envpool_in_workers() -> None:
    pytest.importorskip("envpool", reason="EnvPool is not installed: make peers-env")
    more: dict[str, Any] = {"envs": ENVS, "steps": STEPS, "seed": SEED}
    made = list[Batch]()
    for options in ({"how": "threads"}, {"how": "ray-threads", "workers": 2}):
        with trl.collect("envpool.CartPole-v1", network(), **more, **options) as c:
            c.next()
            made.append(c.next())
    assert_equal(*made)


def test_a_killed_worker_is_replaced_and_its_environments_begin_again() -> None:
    with dangerous(calm) as c, dangerous(calm, how="loop", workers=None) as undisturbed:
        first = c.next()
        seeds = distinct_seeds(SEED, 4)
        assert [int(s) for s in first.obs[0, :, 1]] == [s % 2**20 for s in seeds]
        pid = int(first.obs[0, 3, 2])
        os.kill(pid, signal.SIGKILL)
        with pytest.warns(TimeRLWarning, match="environments 2 to 3 died and is replaced"):
            second = c.next()
        third = c.next()
        expected = [undisturbed.next() for _ in range(3)]
    (restart,) = second.restarts
    assert restart.envs == range(2, 4) and restart.lost_steps == 2 * 4 and restart.reason
    assert not first.restarts and not third.restarts
    # the other group continues, with unchanged trajectories
    for batch, other in zip((first, second, third), expected, strict=True):
        np.testing.assert_array_equal(batch.obs[:, :2, :2], other.obs[:, :2, :2])
    # the new environments have other seeds and begin at their first step
    assert list(second.obs[0, :, 0]) == [4, 4, 0, 0] and list(third.obs[0, :, 0]) == [1, 1, 4, 4]
    assert not {*second.obs[0, 2:, 1]} & {*first.obs[0, :, 1]}
    assert pid not in second.obs[:, :, 2] and len({*second.obs[0, :, 2]}) == 2
    assert second.valid.all() and second.count == 16


def test_episodes_cut_by_the_death_of_a_worker_are_left_out() -> None:
    with dangerous(calm, episodes=4, steps=3) as c:
        first = c.next()
        os.kill(int(first.obs[0, 0, 2]), signal.SIGKILL)
        with pytest.warns(TimeRLWarning, match="environments 0 to 1 died"):
            second = c.next()
    assert [one.envs for one in second.restarts] == [range(0, 2)]
    for batch in (first, second):
        assert batch.valid.sum(0).tolist() == [7] * 4
        np.testing.assert_array_equal(batch.obs[:, :, 0], np.arange(7)[:, None].repeat(4, 1))


def test_a_worker_that_dies_again_and_again_is_an_error() -> None:
    with (
        dangerous(lambda obs: np.full(len(obs), 2), envs=2) as c,
        pytest.warns(TimeRLWarning, match="died and is replaced"),
        pytest.raises(EnvError, match=r"worker of environment \d died 3 times in a row") as caught,
    ):
        c.next()
    assert "how='loop'" in caught.value.hint


def test_an_environment_that_fails_is_named() -> None:
    def act(obs: Any) -> Any:
        return np.where(obs[:, 1] == distinct_seeds(SEED, 4)[3] % 2**20, obs[:, 0] == 2, 0).astype(
            int
        )

    with dangerous(act) as c, pytest.raises(EnvError) as caught:
        c.next()
    seed = distinct_seeds(SEED, 4)[3]
    assert f"environment 3 (seed {seed}) failed at step 2" in caught.value.what
    assert "one is too much" in caught.value.what
    assert "test_collecting_ray.py" in str(caught.value.origin)
    assert any("In the Ray worker of environments 2 to 3 on" in n for n in caught.value.__notes__)
    with pytest.raises(ExecutionError, match="the collector is closed: a batch failed"):
        c.next()


def test_a_policy_that_fails_raises_its_own_error() -> None:
    def act(obs: Any) -> Any:
        raise ZeroDivisionError("none of it")

    with dangerous(act) as c, pytest.raises(ZeroDivisionError, match="none of it") as caught:
        c.next()
    assert any("in act" in note for note in caught.value.__notes__)


def test_a_package_that_only_the_driver_has_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text(
        "import gymnasium\nclass Env(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(0, 1)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    gymnasium.register("timerl/OnlyHere-v0", "only_here:Env")
    with (
        trl.collect("gym.timerl/OnlyHere-v0", calm, envs=1, how="ray") as c,
        pytest.raises(MissingPartError) as caught,
    ):
        c.next()
    assert f"on {os.uname().nodename} cannot import only_here" in caught.value.what
    assert "runtime_env={'pip': ['only_here']}" in caught.value.hint


def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ray_batches.versions()
    monkeypatch.setattr(ray_batches, "versions", lambda: here | {"timerl-nb": "9.9"})
    with dangerous(calm) as c, pytest.raises(ExecutionError) as caught:
        c.next()
    assert f"has timerl-nb {here['timerl-nb']} instead of 9.9" in caught.value.what


def test_what_cannot_be_pickled_is_named() -> None:
    """It is part of the policy's or of the environment's closure."""
    lock = threading.Lock()

    def act(obs: Any) -> Any:
        return (np.zeros(len(obs), int), lock)[0]

    def make() -> Any:
        return (Dangerous(), lock)[0]

    gymnasium.register("timerl/Locked-v0", make)
    for what, env, policy in (
        ("policy", "gym.timerl/Dangerous-v0", act),
        ("environment", "gym.timerl/Locked-v0", calm),
    ):
        with (
            trl.collect(env, policy, how="ray") as c,
            pytest.raises(
                OptionError, match=f"the {what} cannot be sent to workers of Ray"
            ) as caught,
        ):
            c.next()
        assert "lock (lock) cannot be pickled" in caught.value.evidence


def test_more_workers_than_cpus_are_refused() -> None:
    with dangerous(calm, workers=4) as c, pytest.raises(OptionError) as caught:
        c.next()
    assert caught.value.what.startswith("workers=4, but the Ray cluster has 3 CPUs")
    with dangerous(calm, workers=None, envs=2) as c:
        assert c.next().envs == 2 and c.counts.calls == 2


def test_workers_without_a_free_cpu_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_batches, "_PATIENCE", 0.5)
    monkeypatch.setattr(ray_batches, "_POLL", 0.1)

    @ray.remote(num_cpus=3)
    class Busy:
        def is_here(self) -> bool:
            return True

    busy = Busy.remote()
    assert ray.get(busy.is_here.remote())
    with dangerous(calm) as c, pytest.raises(ExecutionError) as caught:
        c.next()
    assert caught.value.what.startswith("2 of 2 workers did not start within 0 s")
    assert "3 CPUs, 0 of them free" in caught.value.what
    ray.kill(busy)


def test_a_full_object_store_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with dangerous(calm) as c:
        c.next()

        def full(_: object) -> None:
            raise ray.exceptions.ObjectStoreFullError("full")

        monkeypatch.setattr(ray, "put", full)
        with (
            collector("ray", workers=1) as other,
            pytest.raises(ExecutionError, match="cannot be stored: ObjectStoreFullError") as caught,
        ):
            other.next()
        monkeypatch.undo()
        assert "object_store_memory" in caught.value.hint
        assert c.next().count == 16  # others continue


def test_a_slow_learner_bounds_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, request = list[int](), ray_batches.RayTurns._request

    def count(self: Any, worker: Any, part: Any) -> None:
        asked.append(part.number)
        assert sum(ref is not None for ref in part.requests.values()) <= 2
        request(self, worker, part)

    monkeypatch.setattr(ray_batches.RayTurns, "_request", count)
    with dangerous(calm, ahead=2) as c:
        for _ in range(3):
            c.next()
        assert c.counts.calls == 2  # the background has made all requested batches
    assert sorted(asked) == [k for k in range(5) for _ in range(2)]


def test_an_interrupt_during_a_batch_loses_no_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate, wait = tmp_path / "gate", ray.wait
    waiting = [lambda: gate.touch()]

    def interrupted(refs: Any, **more: Any) -> Any:
        if waiting:
            waiting.pop()()
            raise KeyboardInterrupt
        return wait(refs, **more)

    with dangerous(lambda obs: np.full(len(obs), 3), gate=str(gate)) as c:
        c._open()  # starts the workers
        monkeypatch.setattr(ray, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            c.next()
        assert not hasattr(caught.value, "__notes__")
        first, second = c.next(), c.next()
    np.testing.assert_array_equal(first.obs[:, 0, 0], range(4))
    np.testing.assert_array_equal(second.obs[:, 0, 0], [4, 5, 6, 0])
    assert not first.restarts and not second.restarts


def test_a_collector_is_closed_although_an_environment_hangs(tmp_path: Path) -> None:
    gate, waiting = tmp_path / "gate", tmp_path / "gate.waiting"
    c = dangerous(lambda obs: np.where(obs[:, 0] >= 4, 3, 0), gate=str(gate), ahead=1)
    c.next()  # the second batch waits in all environments
    release = threading.Timer(120, gate.touch)  # ends a test that fails
    release.start()
    while not waiting.exists() and not gate.exists():
        time.sleep(0.01)
    c.close()
    assert not gate.exists()
    release.cancel()
    with pytest.raises(ExecutionError, match="the collector is closed"):
        c.next()


def test_auto_considers_ray_only_on_request() -> None:
    more: dict[str, Any] = {"envs": 2, "steps": 4}
    with trl.collect("gym.CartPole-v1", network(), **more) as c:
        assert not [row.name for row in c.strategies if row.name.startswith("ray")]
    with trl.collect("gym.CartPole-v1", network(), cluster="ray", workers=1, **more) as c:
        row = c.strategies["ray"]
        assert row.speed is not None and row.speed.median > 0 and row.why_not is None
        assert (
            "EnvPool" in str(c.strategies["ray-threads"].why_not)
            or c.strategies["ray-threads"].speed is None
        )
        assert c.next().count == 8
