"""Masks of actions that environments on the host report: `info["action_mask"]`."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import timerl_nb as trl
from tests.masking import NAME, Masking, permitted

ENVS, STEPS = 3, 7
MODES = [mode.value for mode in AutoresetMode]


def masks_of(obs: Any) -> np.ndarray[Any, Any]:
    """Return the masks of observations, [..., actions]."""
    rows = np.asarray(obs).astype(int).reshape(-1, 3)
    return np.array([permitted(*row) for row in rows]).reshape((*np.shape(obs)[:-1], -1))


def collector_of(strategy: str, policy: Any, params: Any = None, **options: Any) -> Any:
    if strategy in MODES:
        makes = [lambda k=k: Masking(offset=k, **options) for k in range(ENVS)]
        env = SyncVectorEnv(makes, autoreset_mode=AutoresetMode(strategy))
        return trl.collect(env, policy, steps=STEPS, params=params)
    env = trl.env.make(f"gym.{NAME}", **options)
    return trl.collect(env, policy, envs=ENVS, steps=STEPS, how=strategy, params=params)


def last_permitted(obs: Any, action_mask: Any) -> Any:
    """Return the permitted action with the greatest number, and the mask."""
    return action_mask.shape[1] - 1 - action_mask[:, ::-1].argmax(1), {"seen": action_mask}


@pytest.mark.parametrize("strategy", ["loop", "processes", *MODES])
@pytest.mark.parametrize("as_list", [False, True])
def test_policies_and_batches_get_the_masks(strategy: str, as_list: bool) -> None:
    if strategy == "processes" and as_list:
        pytest.skip("processes are slow to start")
    with collector_of(strategy, last_permitted, as_list=as_list) as collector:
        batches = [collector.next() for _ in range(3)]
    ends = 0
    for batch in batches:
        assert batch.action_mask.dtype == bool and batch.action_mask.shape == (STEPS, ENVS, 5)
        np.testing.assert_array_equal(batch.action_mask, masks_of(batch.obs))
        np.testing.assert_array_equal(batch.action_mask, batch.seen)
        np.testing.assert_array_equal(batch.last_action_mask, masks_of(batch.last_obs))
        np.testing.assert_array_equal(batch.final.action_mask, masks_of(batch.final.obs))
        assert (batch.reward[batch.valid] == 1).all()
        ends += len(batch.final)
    assert ends > 3
    assert len({tuple(row) for row in batches[0].action_mask.reshape(-1, 5)}) > 4


def test_jax_functions_and_random_actions_are_permitted() -> None:
    def act(params: Any, obs: Any, key: Any, action_mask: Any) -> Any:
        logits = jnp.where(action_mask, 0.0, -jnp.inf)
        return jax.random.categorical(key, logits)

    def recurrent(params: Any, obs: Any, state: Any, key: Any, *, action_mask: Any) -> Any:
        return act(params, obs, key, action_mask), {"state_": state}, state + 1

    env = trl.env.make(f"gym.{NAME}")
    for policy, options in (
        (act, {}),
        (trl.policies.random, {}),
        (recurrent, {"initial_state": jnp.float32(0)}),
    ):
        with trl.collect(env, policy, envs=ENVS, steps=40, how="loop", **options) as collector:
            batch = collector.next()
        assert (batch.reward == 1).all()
        assert {*batch.action.ravel().tolist()} == {0, 1, 2, 3, 4}


def test_torch_modules_get_tensors() -> None:
    torch = pytest.importorskip("torch")

    class Actor(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(3, 5)

        def forward(self, obs: Any, action_mask: Any = None) -> Any:
            assert action_mask.dtype == torch.bool
            return self.body(obs).masked_fill(~action_mask, -torch.inf).argmax(1)

    with collector_of("loop", Actor()) as collector:
        batch = collector.next().torch()
    assert (batch.reward == 1).all() and batch.action_mask.dtype == torch.bool


def test_policies_of_programs_read_the_attribute_of_the_same_name() -> None:
    class Shown(trl.env.Environment):
        obs_space, act_space = trl.env.Box(0.0, 99.0, (3,)), trl.env.Discrete(5)
        max_steps = 3

        def first_state(self, domain: Any) -> Any:
            return trl.random.uniform((3,), 0.0, 1.0, domain=domain)

        def observe(self, state: Any) -> Any:
            self.action_mask = trl.arange(5) > state.sum(axis=0)
            return state

        def transition(self, state: Any, action: Any) -> Any:
            return state, state.sum(axis=0), trl.constant(False)

    env = Shown()
    with trl.Context("v", "t") as ctx:
        (v, V), (t, T) = ctx.dims
        dnn = trl.DNNBuilder().from_env(env, hidden=[4]).build()
        o = trl.like(env.obs_space, domain=(v, t))
        mask = trl.tensor((5,), "bool", domain=(v, t))
        o[v, 0] = env.reset(domain=(v,))
        mask[v, 0] = env.action_mask
        step = env.step(dnn.sample(o, mask=mask))
        o[v, t + 1], mask[v, t + 1] = step.obs, env.action_mask
        ctx.output("r", step.reward)
    policy = ctx.compile({V: 2, T: 2}).execute(progress=False).policy()
    with collector_of("loop", policy) as collector:
        batch = collector.next()
    assert (batch.reward == 1).all()


def test_policies_without_the_argument_are_unaffected() -> None:
    def act(obs: Any) -> Any:
        return np.zeros(len(obs), int)

    for where in ((), ("reset",), ("step",)):  # an incomplete report is no error for them
        with collector_of("loop", act, where=where) as collector:
            batch = collector.next()
        if where == ("reset",):
            assert batch.action_mask[0].tolist() == masks_of(batch.obs[0]).tolist()
            assert batch.action_mask[1].all(), "unreported masks permit all actions"
        else:
            assert batch.action_mask is batch.last_action_mask is None
            assert batch.final.action_mask is None


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (("reset",), "environment 0 reports no action_mask after step 0 of the batch"),
        (("step",), "report an action_mask after step 0 of the batch, but not in the infos"),
    ],
)
def test_incomplete_reports_are_errors_for_policies_with_masks(where: Any, message: str) -> None:
    def act(obs: Any, action_mask: Any = None) -> Any:
        return np.zeros(len(obs), int)

    collector = collector_of("loop", act, where=where)
    with pytest.raises(trl.errors.EnvError, match=message):
        collector.next()
    with collector_of("loop", act, where=()) as collector:
        assert collector.next().action_mask is None
    collector = collector_of("loop", last_permitted, where=())
    with pytest.raises(trl.errors.OptionError, match="environments report none"):
        collector.next()


def test_functions_with_masks_are_for_environments_on_the_host() -> None:
    def act(params: Any, obs: Any, key: Any, action_mask: Any) -> Any:
        return jnp.int32(0)

    with pytest.raises(
        trl.errors.OptionError, match="takes an action_mask, which only environments on"
    ):
        trl.collect("CartPole-v1", act, how="scan")


def test_batches_of_episodes_and_copies_have_masks() -> None:
    env = trl.env.make(f"gym.{NAME}")
    with trl.collect(
        env, last_permitted, envs=2, steps=4, how="loop", episodes=5, ahead=1
    ) as collector:
        batch = collector.next()
    valid = batch.valid
    np.testing.assert_array_equal(batch.action_mask[valid], masks_of(batch.obs[valid]))
    assert not batch.action_mask[~valid].any() and valid.all()  # episodes are equally long
    np.testing.assert_array_equal(batch.last_action_mask, masks_of(batch.last_obs))
    np.testing.assert_array_equal(batch.final.action_mask, masks_of(batch.final.obs))
    copied = pickle.loads(pickle.dumps(batch.jax().numpy()))
    np.testing.assert_array_equal(copied.action_mask, batch.action_mask)
    np.testing.assert_array_equal(copied.final.action_mask, batch.final.action_mask)
    mapped = jax.tree.map(lambda x: x[:1], batch)
    assert mapped.action_mask.shape == (1, 5, 5) and mapped.last_action_mask.shape == (1, 5)


def test_taxi() -> None:
    """The environment of Gymnasium that introduced the convention."""
    name = max(name for name in gymnasium.registry if name.startswith("Taxi-v"))
    with trl.collect(f"gym.{name}", last_permitted, envs=2, steps=5, how="loop") as collector:
        batch = collector.next()
    env: Any = gymnasium.make(name).unwrapped
    for obs, mask in zip(batch.obs.ravel(), batch.action_mask.reshape(-1, 6), strict=True):
        assert mask.tolist() == (env.action_mask(int(obs)) != 0).tolist()
