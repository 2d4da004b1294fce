"""Ownership of collected arrays, names of extras, batches as values, and invalid actions."""

from __future__ import annotations

import copy
import ctypes
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import timerl_nb as trl
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.collecting import Batch, Collector

ARRAYS = ("obs", "action", "reward", "terminated", "truncated", "valid", "last_obs")
NAME = "KeepsItsArrays-v0"
STEPS = 6


class Keeps(gymnasium.Env[Any, Any]):
    """Returns one array forever, writes into actions, and is rewarded by the previous action."""

    def __init__(self, continuous: bool = True) -> None:
        self.observation_space = spaces.Box(-99, 99, (2,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,)) if continuous else spaces.Discrete(2)
        self.seen, self.before = np.zeros(2, np.float32), np.zeros(1, np.float32)
        self.episode = self.life = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.life = self.episode + 1, 0
        self.before = np.zeros(1, np.float32)
        self.seen[:] = self.episode, 0
        return self.seen, {}

    def step(self, action: Any) -> Any:
        self.life += 1
        self.seen[1] = self.life
        reward = float(np.sum(self.before))
        self.before = np.asarray(action, np.float32)
        if self.before.ndim and self.before.flags.writeable:
            self.before *= 2
        return self.seen, reward, self.life == 4, False, {}


gymnasium.register(NAME, entry_point=Keeps, disable_env_checker=True)


def on_host(obs: Any) -> Any:
    obs /= np.float32(10)  # in place, like a normalising policy
    return obs[:, 1:] / 2, {"value": obs[:, 1].astype(np.float32)}


def in_jax(params: Any, obs: Any, key: Any) -> Any:
    action = (obs[2] + params["w"] * jax.random.normal(key) > 0).astype(jnp.int32)
    return action, {"value": obs[0] * params["w"]}


MADE: dict[str, Callable[..., Collector]] = {
    **{
        how: lambda how=how: trl.collect(
            "CartPole-v1", in_jax, params={"w": np.float32(0.1)}, envs=3, steps=STEPS, how=how
        )
        for how in ("scan", "step")
    },
    **{
        how: lambda how=how: trl.collect(f"gym.{NAME}", on_host, envs=3, steps=STEPS, how=how)
        for how in ("loop", "processes")
    },
    **{
        mode.value: lambda mode=mode: trl.collect(
            SyncVectorEnv([lambda: Keeps()] * 3, autoreset_mode=mode), on_host, steps=STEPS
        )
        for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)
    },
}


def handed_out(batch: Batch, c: Collector) -> Iterator[Any]:
    for name in ARRAYS:
        yield getattr(batch, name)
    yield from batch.extras.values()
    yield from (batch.final.step, batch.final.env, batch.final.obs)
    yield from vars(batch.episodes).values()
    yield from c.weights.values()


def overwrite(x: Any) -> None:
    """Write into an array's memory even if it is read-only, as PyTorch does."""
    if isinstance(x, jax.Array):
        at = jax.block_until_ready(x).unsafe_buffer_pointer()
    else:
        x = np.asarray(x)
        at = x.ctypes.data
        assert x.flags.c_contiguous
    ctypes.memset(at, 1, x.nbytes)


def as_arrays(b: Batch) -> list[Any]:
    found = [getattr(b, name) for name in ARRAYS] + [*b.extras.values(), b.count]
    found += [b.final.step, b.final.env, b.final.obs, *vars(b.episodes).values()]
    return [np.array(x) for x in found]


@pytest.mark.parametrize(
    ("strategy", "form"),
    [
        (strategy, form)
        for strategy in MADE
        for form in ("numpy", "jax")
        if (strategy, form) != ("processes", "jax")
    ],
)
def test_what_is_written_into_a_batch_changes_no_later_one(strategy: str, form: str) -> None:
    with MADE["loop" if strategy == "processes" else strategy]() as d:
        expected = [as_arrays(d.next()) for _ in range(10)]
    with MADE[strategy]() as c:
        for k, wants in enumerate(expected):
            b = c.next()
            for have, want in zip(as_arrays(b), wants, strict=True):
                np.testing.assert_array_equal(have, want, err_msg=f"batch {k}")
            b.__dict__.pop("final")  # and again in the other form
            b.__dict__.pop("episodes")
            for x in handed_out(getattr(b, form)(), c):
                overwrite(x)


@pytest.mark.parametrize("strategy", list(MADE)[:3])
def test_episodes_are_those_of_the_environments_whenever_they_are_read(strategy: str) -> None:
    with MADE[strategy]() as c, MADE[strategy]() as d:
        for _ in range(5):
            b, want = c.next(), d.next()
            for name in ARRAYS:
                overwrite(getattr(b, name))
            np.testing.assert_array_equal(b.episodes.returns, want.episodes.returns)
            np.testing.assert_array_equal(b.episodes.lengths, want.episodes.lengths)
            np.testing.assert_array_equal(b.final.obs, want.final.obs)
            assert b.count == want.count


def test_final_observations_are_of_the_episode_that_ended() -> None:
    with trl.collect(f"gym.{NAME}", on_host, envs=2, steps=9, how="loop") as c:
        b = c.next()
    np.testing.assert_array_equal(b.final.obs, [[1, 4], [1, 4], [2, 4], [2, 4]])
    np.testing.assert_array_equal(b.obs[:, 0, 1], [0, 1, 2, 3, 0, 1, 2, 3, 0])
    np.testing.assert_allclose(b.action[:4, 0, 0], [0, 0.05, 0.1, 0.15])  # not doubled
    np.testing.assert_allclose(b.reward[:4, 0], [0, 0, 0.1, 0.2])


# --- names -----------------------------------------------------------------------------------------

RESERVED = (*ARRAYS, "final", "episodes", "count", "steps", "envs", "extras", "numpy", "_ended")
FREE = ("after", "returns", "lengths", "t", "b", "params", "policy_after", "done")


@pytest.mark.parametrize("name", RESERVED)
def test_a_batchs_own_names_are_refused(name: str) -> None:
    text = f"extras with invalid or reserved names: '{name}'"
    for how in ("scan", "native"):
        with pytest.raises(OptionError, match=text):
            trl.collect(
                "CartPole-v1", lambda p, o, k: (jnp.int32(0), {name: o[0]}), envs=2, how=how
            )
    asked = []

    def policy(obs: Any) -> Any:
        asked.append(obs)
        return np.zeros((len(obs), 1)), {name: obs[:, 0]}

    for how, env in (("loop", f"gym.{NAME}"), ("native", SyncVectorEnv([lambda: Keeps()] * 2))):
        with pytest.raises(OptionError, match=text):
            trl.collect(env, policy, envs=2, how=how).next()
    assert {len(obs) for obs in asked} == {2}


def test_names_that_batches_do_not_have_are_free_in_every_way() -> None:
    for how in ("scan", "native"):
        with trl.collect(
            "CartPole-v1",
            lambda p, o, k: (jnp.int32(1), {name: o[2] + n for n, name in enumerate(FREE)}),
            envs=2,
            steps=4,
            how=how,
        ) as c:
            b = c.next()
        for n, name in enumerate(FREE):
            np.testing.assert_allclose(getattr(b, name), b.obs[..., 2] + n, rtol=1e-6)
        assert sorted(b.extras) == sorted(FREE)


# --- batches as values -----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["scan", "loop"])
def test_a_batch_is_a_tree_of_jax(strategy: str) -> None:
    with MADE[strategy]() as c:
        one, other = c.next(), c.next()
    leaves, kind = jax.tree.flatten(one)
    assert len(leaves) == 8 and kind == jax.tree.structure(other)
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_flatten_with_path(one)[0]]
    assert paths == [*(f".{name}" for name in ARRAYS), ".extras['value']"]
    same = jax.tree.unflatten(kind, leaves)
    for have, want in zip(as_arrays(same), as_arrays(one), strict=True):
        np.testing.assert_array_equal(have, want)

    traced = []

    @jax.jit
    def loss(batch: Batch) -> Any:
        traced.append(batch)
        return {"sum": (batch.reward * batch.value).sum(), "batch": batch}

    for b in (one, other, one):
        made = loss(b)
        np.testing.assert_allclose(made["sum"], (np.asarray(b.reward) * b.value).sum(), rtol=1e-5)
        assert isinstance(made["batch"], Batch)
        np.testing.assert_array_equal(made["batch"].obs, b.obs)
    assert len(traced) == 1  # compiled once for all batches
    mapped = jax.tree.map(lambda x: x[:, :1] if x.ndim > 2 else x, other)
    assert mapped.obs.shape[1] == 1 and mapped.reward.shape == other.reward.shape
    with pytest.raises(ExecutionError, match="comes from a JAX transformation"):
        _ = mapped.episodes


@pytest.mark.parametrize("strategy", list(MADE)[:3])
def test_a_batch_is_copied_and_pickled_with_its_episodes(strategy: str) -> None:
    with MADE[strategy]() as c:
        c.next()
        b = c.next()
        copies: list[Callable[[Batch], Batch]] = [
            lambda b: pickle.loads(pickle.dumps(b)),
            lambda b: cloudpickle.loads(cloudpickle.dumps(b)),
            copy.deepcopy,
            copy.copy,
            lambda b: pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(b)))),
        ]
        for form in ("numpy", "jax"):
            one = getattr(b, form)()
            for copied in copies:
                made = copied(one)
                for have, want in zip(as_arrays(made), as_arrays(one), strict=True):
                    np.testing.assert_array_equal(have, want)
                assert type(made.obs) is type(one.obs) and type(made.final.obs) is type(one.obs)
        with pytest.raises(ExecutionError, match="cannot be copied or pickled"):
            copy.deepcopy(c)


# --- actions ---------------------------------------------------------------------------------------


def always(value: int) -> tuple[Any, Any]:
    """Return a constant action, as functions of JAX and of NumPy."""
    return lambda p, obs, key: jnp.int32(value), lambda obs: np.full(len(obs), value)


@pytest.mark.parametrize("value", [7, 2, -1])
def test_actions_outside_their_space_are_refused_in_every_way(value: int) -> None:
    text = rf"the policy's action is {value} at step \d of the batch, in environment \d; the environment accepts 0 to 1"
    in_jax, host = always(value)
    discrete = SyncVectorEnv([lambda: Keeps(continuous=False)] * 2)
    rows = [("CartPole-v1", in_jax, how) for how in ("scan", "step", "native", "loop")]
    rows += [("gym.CartPole-v1", host, how) for how in ("native", "loop")]
    for env, policy, how in (*rows, (discrete, host, "native")):
        if value != -1 and how == "scan":
            continue  # each compiles
        c = trl.collect(env, policy, envs=2, steps=8, how=how)
        with pytest.raises(ExecutionError, match=text):
            c.next()
        with pytest.raises(ExecutionError, match="the collector is closed"):
            c.next()
    in_jax, host = always(1)  # the maximum
    for env, policy, how in (*rows[:1], *rows[4:5]):
        right = in_jax if policy is rows[0][1] else host
        with trl.collect(env, right, envs=2, steps=8, how=how) as c:
            assert (np.asarray(c.next().action) == 1).all()


def test_several_integers_and_others_than_of_32_bits() -> None:
    sizes = spaces.MultiDiscrete([3, 4])
    env = SyncVectorEnv([lambda: Keeps()] * 2)
    env.single_action_space = sizes
    env.action_space = spaces.MultiDiscrete([[3, 4]] * 2)
    for kind, wrong in ((np.int64, 2**32), (np.int8, -1), (np.uint8, 4), (np.int64, 4)):
        acts = np.array([[2, 3], [0, 0]], kind)
        acts[1, 1] = wrong
        c = trl.collect(env, lambda obs, acts=acts: acts, steps=2)
        with pytest.raises(
            ExecutionError, match=rf"is {wrong} .* environment 1, element 1; .* 0 to 3"
        ):
            c.next()


def test_numbers_beyond_a_box_are_passed_on() -> None:
    with trl.collect(
        f"gym.{NAME}", lambda obs: np.full((len(obs), 1), 5.0), envs=2, steps=3, how="loop"
    ) as c:
        b = c.next()
    assert (b.action == 5).all() and b.reward[1:].tolist() == [[10, 10]] * 2
