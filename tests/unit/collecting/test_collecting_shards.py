"""Groups of environments act as among all environments. These tests need no Ray."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import cloudpickle
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import EnvError, ExecutionError, warn
from timerl_nb.collecting.batch import Batch, Restart
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.episode_batches import EpisodeBatches
from timerl_nb.collecting.policies.collecting_policy import Shard
from timerl_nb.collecting.policies.policy_conversion import acting_of
from timerl_nb.collecting.ray_actors import actor_process
from timerl_nb.collecting.ray_actors.actor_environments import Group, open_group
from timerl_nb.collecting.ray_actors.random_generators import load_in_worker, pickle_for_workers
from timerl_nb.collecting.strategies.gymnasium_loop import Loop
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend

ENVS, STEPS, SEED = 7, 12, 5
SPLITS = ((0, 1), (1, 4), (4, 7))


class Box(gymnasium.Env[Any, Any]):
    """Random observations, and actions of a chosen space."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))

    def __init__(self, action: str = "Discrete") -> None:
        spaces = {
            "Discrete": gymnasium.spaces.Discrete(5),
            "MultiDiscrete": gymnasium.spaces.MultiDiscrete([2, 3]),
            "Box": gymnasium.spaces.Box(-2, 2, (2,)),
            "unbounded": gymnasium.spaces.Box(-np.inf, np.inf, (2,)),
        }
        self.action_space = spaces[action]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        if np.any(np.asarray(action) == 77):
            raise RuntimeError("77 is too much")
        seen = self._seen()
        return seen, float(np.sum(action)), bool(seen[0] > 0.8), bool(seen[1] > 0.8), {}

    def _seen(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


gymnasium.register("timerl/Shards-v0", Box)


def drawn(params: Any, obs: Any, key: Any) -> Any:
    action = jax.random.randint(key, (), 0, 5)
    return action, {"value": obs @ params["w"]}


def recurrent(params: Any, obs: Any, state: Any, key: Any) -> Any:
    state = jnp.tanh(state + obs @ params["w"])
    return jax.random.categorical(key, jnp.tile(state, 5)), {"value": state}, state


PARAMS = {"w": np.array([0.5, -1.0, 0.25], np.float32)}
POLICIES: Mapping[str, tuple[str, Callable[[Any], Any], dict[str, Any]]] = {
    "random": ("Discrete", lambda env: trl.policies.random, {}),
    "random MultiDiscrete": ("MultiDiscrete", lambda env: trl.policies.random, {}),
    "random Box": ("Box", lambda env: trl.policies.random, {}),
    "random unbounded": ("unbounded", lambda env: trl.policies.random, {}),
    "network": ("Discrete", lambda env: trl.DNNBuilder().from_env(env, hidden=[4]), {}),
    "continuous network": ("Box", lambda env: trl.DNNBuilder().from_env(env, hidden=[4]), {}),
    "JAX function": ("Discrete", lambda env: drawn, {"params": PARAMS}),
    "recurrent": ("Discrete", lambda env: recurrent, {"params": PARAMS, "state": np.zeros(())}),
    "NumPy function": ("Discrete", lambda env: lambda obs: (obs[:, 0] > 0).astype(int), {}),
}


def task_of(name: str) -> Task:
    action, policy, more = POLICIES[name]
    env = trl.env.make("gym.timerl/Shards-v0", action=action)
    spaces = env.obs_space, env.act_space
    acting = acting_of(policy(env), spaces, SEED, state=more.get("state"))
    if "params" in more:
        acting = acting.with_weights(more["params"])
    return Task(env.made_as, env, None, acting, ENVS, STEPS, SEED, stores_states=True)


def group_of(task: Task, first: int, last: int, seed: int = SEED) -> Group:
    plain: Any = replace(task, acting=None)  # type: ignore[arg-type]
    dumps = pickle_for_workers if find_spec("ray") else cloudpickle.dumps
    payload = {
        "policy": dumps(task.acting.for_worker()),
        "environment": cloudpickle.dumps((Loop(), plain)),
    }
    return open_group(backend.jax_settings(), payload, Shard(first, ENVS), last - first, seed)


def collected(group: Group, number: int, weights: Mapping[str, Any], key: str = "w") -> Any:
    sent = {n: x if hasattr(x, "cpu") else np.asarray(x) for n, x in weights.items()}
    return group.collect(number, key, 0, lambda _: sent)


@pytest.mark.parametrize("name", POLICIES)
def test_groups_return_the_rows_of_all_environments(name: str) -> None:
    task = task_of(name)
    whole = Loop().prepared(task)(SEED)
    groups = [group_of(task, first, last) for first, last in SPLITS]
    for number in range(3):
        batch = whole.next(task.acting.weights)
        whole.confirm_received()
        pieces = [collected(group, number, task.acting.weights) for group in groups]
        for (first, last), piece in zip(SPLITS, pieces, strict=True):
            for field, x in piece["arrays"].items():
                expected = getattr(batch, field)
                expected = expected[first:last] if field == "last_obs" else expected[:, first:last]
                np.testing.assert_array_equal(x, expected, err_msg=field)
            for field, x in piece["extras"].items():
                np.testing.assert_array_equal(x, batch.extras[field][:, first:last])
            if name == "recurrent":
                np.testing.assert_array_equal(piece["states"][""], batch.states[:, first:last])
        assert sum(piece["count"] for piece in pieces) == batch.count
        assert sum(len(piece["final"]["step"]) for piece in pieces) == len(batch.final)
    for one in (whole, *groups):
        one.close()


def test_a_repeated_request_takes_no_further_steps() -> None:
    task = task_of("random")
    group = group_of(task, 1, 4)
    first = collected(group, 0, {})
    again = collected(group, 0, {})
    following = collected(group, 1, {})
    np.testing.assert_array_equal(first["arrays"]["obs"], again["arrays"]["obs"])
    np.testing.assert_array_equal(first["arrays"]["last_obs"], following["arrays"]["obs"][0])
    group.close()


def test_weights_are_fetched_once_per_reference() -> None:
    task, fetched = task_of("JAX function"), list[str]()
    group = group_of(task, 0, 2)

    def fetch(key: str) -> Any:
        fetched.append(key)
        return {n: np.asarray(x) * len(fetched) for n, x in task.acting.weights.items()}

    values = [group.collect(k, key, 0, fetch)["extras"]["value"] for k, key in enumerate("aabbb")]
    assert fetched == ["a", "b"]
    assert all(np.any(x) for x in values)
    group.close()


def test_errors_name_the_environment_among_all() -> None:
    task = task_of("NumPy function")
    wrong = task.acting
    group = group_of(replace(task, acting=replace(wrong, function=lambda obs: [0, 9, 0])), 4, 7)
    with pytest.raises(
        ExecutionError, match="action is 9 at step 0 of the batch, in environment 5"
    ):
        collected(group, 0, {})
    group.close()
    failing = task_of("random unbounded")
    acting = replace(wrong, function=lambda obs: np.full((len(obs), 2), 77.0, np.float32))
    group = group_of(replace(failing, acting=acting), 4, 7)
    with pytest.raises(EnvError, match=r"environment 4 \(seed \d+\) failed at step 0") as caught:
        collected(group, 0, {})
    assert "77 is too much" in str(caught.value)
    group.close()


def test_an_actor_returns_errors_and_warnings_as_values() -> None:
    def fails() -> None:
        raise EnvError("it broke.", hint="mend it.")

    def misses() -> None:
        raise ModuleNotFoundError("No module named 'game'", name="game")

    def local() -> None:
        class Odd(Exception):
            def __reduce__(self) -> Any:
                raise TypeError("no")

        raise Odd("strange")

    def warns() -> int:
        warn("careful")
        return 3

    pytest.importorskip("ray", reason="Ray is not installed: make peers-env")
    answer = actor_process.answer_of(fails)
    assert isinstance(answer["error"], bytes) and "it broke" in answer["trace"]
    assert actor_process.answer_of(misses)["error"]["missing"] == "game"
    assert actor_process.answer_of(local)["error"] == "Odd: strange"
    assert actor_process.answer_of(warns)["value"] == 3
    assert actor_process.answer_of(warns)["warnings"] == ["careful"]


class Scripted:
    """Source of given batches."""

    is_lost = False

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def next(self, weights: Any, version: int = 0) -> Batch:
        return self._batches[0]

    def confirm_received(self) -> None:
        self._batches.pop(0)


def test_batches_of_episodes_leave_out_an_episode_that_a_dead_worker_cut() -> None:
    """Environment 1 begins again in the second part, within its episode."""

    def part(first: int, ends: list[tuple[int, int]], restarts: tuple[Restart, ...] = ()) -> Batch:
        from timerl_nb.collecting.batch import Ended, Final

        obs = np.arange(first, first + 3, dtype=np.float32)[:, None].repeat(2, 1)
        ended = np.zeros((3, 2), bool)
        for at in ends:
            ended[at] = True
        step, env = np.nonzero(ended)
        known = Ended.from_results(
            final=Final(step, env, 100 + obs[step, env]), count=6, episodes=None, restarts=restarts
        )
        arrays = {"obs": obs, "action": obs, "reward": obs, "terminated": ended}
        arrays |= {"truncated": np.zeros((3, 2), bool), "valid": np.ones((3, 2), bool)}
        return Batch(**arrays, last_obs=obs[-1] + 1, extras={}, _ended=known)

    restart = Restart(range(1, 2), 3, "killed")
    parts = [part(0, [(1, 0)]), part(10, [(2, 1)], (restart,)), part(20, [(1, 0), (0, 1)])]
    source: Any = Scripted(parts)
    batch = EpisodeBatches(source, 2, 4).next({})
    # environment 0: 0 1 | 2 10 11 12 20 21; environment 1: (0 1 2 cut) 10 11 12 | 20
    columns = [list(batch.obs[:, k][batch.valid[:, k]]) for k in range(4)]
    assert columns == [[0, 1], [2, 10, 11, 12, 20, 21], [10, 11, 12], [20]]
    assert batch.restarts == [restart]


def drawing(kind: str) -> Callable[[Any], Any]:
    """Return a policy that draws actions from a random generator."""
    one, other, third = np.random.default_rng(0), np.random.RandomState(0), random.Random(0)

    def act(obs: Any) -> Any:
        if kind == "Generator":
            return one.integers(5, size=len(obs))
        if kind == "RandomState":
            return other.randint(5, size=len(obs))
        if kind == "Random":
            return np.array([third.randrange(5) for _ in obs])
        if kind == "global Random":
            return np.array([random.randrange(5) for _ in obs])
        return np.random.randint(5, size=len(obs))

    return act


@pytest.mark.parametrize(
    "kind", ["Generator", "RandomState", "Random", "global Random", "global RandomState"]
)
def test_random_generators_of_groups_draw_different_numbers(kind: str) -> None:
    """All workers receive a copy of a captured generator."""
    pytest.importorskip("ray", reason="Ray is not installed: make peers-env")
    task = task_of("NumPy function")

    def actions(first: int, last: int, seed: int = SEED) -> list[Any]:
        given: Any = replace(task, acting=replace(task.acting, function=drawing(kind)))
        group = group_of(given, first, last, seed)
        found = [collected(group, k, {})["arrays"]["action"] for k in range(2)]
        group.close()
        return found

    with restored_generators():
        one, other, later = actions(0, 3), actions(3, 6), actions(0, 3, SEED + 1)
        again, whole = actions(3, 6), actions(0, ENVS)
    assert not np.array_equal(one, other) and not np.array_equal(one, later)
    np.testing.assert_array_equal(other, again)
    if not kind.startswith("global"):
        source = Loop().prepared(replace(task, acting=replace(task.acting, function=drawing(kind))))
        turns = source(SEED)
        np.testing.assert_array_equal(whole[0], turns.next({}).action)
        turns.close()


def test_modules_of_pytorch_draw_other_numbers_in_other_groups() -> None:
    """All processes would otherwise begin with PyTorch's default seed."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch-env")

    class Drawing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(5))

        def forward(self, obs: Any) -> Any:
            logits = self.bias.expand(len(obs), 5)
            return torch.distributions.Categorical(logits=logits).sample()

    task = task_of("NumPy function")
    spaces = task.spaces
    task = replace(task, acting=acting_of(Drawing(), spaces, SEED).in_background())
    found = list[Any]()
    with restored_generators():
        for first, last in ((0, 3), (3, 6), (3, 6)):
            group = group_of(task, first, last)
            draws = collected(group, 0, task.acting.weights)["arrays"]["action"]
            only = torch.tensor([-99.0, -99.0, -99.0, -99.0, 99.0])
            chosen = collected(group, 1, {"bias": only}, "new")
            assert (chosen["arrays"]["action"] == 4).all()
            found.append(draws)
            group.close()
    assert not np.array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[1], found[2])


@contextmanager
def restored_generators() -> Iterator[None]:
    """Restore the states of the global generators after the block."""
    before, ours = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(ours)


def test_one_captured_generator_stays_one() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: make peers-env")
    one = np.random.default_rng(0)
    first, second = load_in_worker(pickle_for_workers([one, one]), (1, 2))
    assert first is second
    same, _ = load_in_worker(pickle_for_workers([one, one]), None)
    np.testing.assert_array_equal(same.integers(99, size=9), one.integers(99, size=9))


def test_settings_of_jax_reach_the_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    told = dict[str, Any]()
    monkeypatch.setattr(backend.jax, "config", SimpleNamespace(update=told.__setitem__))
    backend.set_jax_settings({"jax_enable_x64": True})
    assert told == {"jax_enable_x64": True}
