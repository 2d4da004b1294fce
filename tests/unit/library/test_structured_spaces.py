"""Structured spaces of Gymnasium's and of JAX environments, in programs and in collectors."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import timerl_nb as trl
from tests.structured import ACTIONS, OBSERVATIONS, Structured, number_of
from timerl_nb.env.gymnasium import distinct_seeds
from timerl_nb.env.plain_spaces import (
    PlainSpaces,
    plain_actions,
    plain_observations,
    plain_rows,
    stacked,
    structured_action,
)

NAME = "gym.tests.structured:Structured-v0"
SPACES = {
    "mixed": trl.env.MultiDiscrete((2, 3, 2, 2, 2, 3)),  # arms, hands, move
    "numbers": trl.env.Box((-1.0, -1.0, -2.0), (1.0, 1.0, 2.0), (3,)),
    "shifted": trl.env.Discrete(4),
    "binary": trl.env.MultiDiscrete((2, 2, 2)),
}


def flat(k: int) -> np.ndarray:
    return gymnasium.spaces.flatten(OBSERVATIONS, Structured.seen(k)).astype(np.float32)


@pytest.mark.parametrize("actions", ACTIONS)
def test_programs_see_vectors_and_actions_map_back(actions: str) -> None:
    env = trl.env.make(NAME, actions=actions, autoreset="same_step")
    assert env.act_space == SPACES[actions]
    assert env.obs_space.shape == (12,) and env.obs_space.dtype == "f32"
    with trl.Context("v", "t") as ctx:
        (v, V), (t, T) = ctx.dims
        dnn = trl.DNNBuilder().from_env(env, hidden=[3]).build()
        o = trl.like(env.obs_space, domain=(v, t))
        o[v, 0] = env.reset(domain=(v,))
        a = dnn.sample(o)
        if actions == "numbers":
            a = a.clip(-1.0, 1.0)
        step = env.step(a)
        o[v, t + 1] = step.obs
        for name, x in {"o": o, "a": a, "r": step.reward, "last": step.final_obs}.items():
            ctx.output(name, x)
    found = ctx.compile({V: 2, T: 4}, trl.Options(executor="interpret")).execute(
        seed=0, progress=False
    )
    for t in range(4):
        np.testing.assert_array_equal(found["o"][0, t], flat(t % 3))
        np.testing.assert_array_equal(found["last"][1, t], flat(t % 3 + 1))
        for k in range(2):
            action = structured_action(ACTIONS[actions], found["a"][k, t])
            assert action in ACTIONS[actions]
            np.testing.assert_allclose(found["r"][k, t], number_of(action), rtol=1e-5)


@pytest.mark.parametrize("actions", ACTIONS)
def test_each_action_has_one_plain_form(actions: str) -> None:
    space, plain = ACTIONS[actions], plain_actions(ACTIONS[actions])
    plain.seed(0)
    draws = [plain.sample() for _ in range(300)]
    back = [structured_action(space, x) for x in draws]
    assert all(one in space for one in back) or actions == "numbers"
    if actions != "numbers":
        count = int(np.prod(getattr(plain, "nvec", getattr(plain, "n", 0))))
        assert len({str(x) for x in back}) == len({str(x) for x in draws}) <= count


def test_collectors_see_the_same() -> None:
    with trl.collect(NAME, trl.policies.random, envs=2, steps=4, how="loop") as collector:
        batch = collector.next().numpy()
    assert batch.action.shape == (4, 2, 6) and batch.action.max() == 2
    for t in range(4):
        np.testing.assert_array_equal(batch.obs[t, 0], flat(t % 3))
    for action, reward in zip(batch.action[:, 1], batch.reward[:, 1], strict=True):
        made = number_of(structured_action(ACTIONS["mixed"], action))
        np.testing.assert_allclose(reward, made, rtol=1e-6)
    assert batch.terminated[2].all()


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("actions", ACTIONS)
def test_vector_environments_are_converted(actions: str, mode: AutoresetMode) -> None:
    env = SyncVectorEnv([lambda: Structured(actions)] * 2, autoreset_mode=mode)
    with trl.collect(env, trl.policies.random, steps=5) as collector:
        batch = collector.next()
        assert collector.next().obs.shape == (5, 2, 12)
    is_separate = mode is AutoresetMode.NEXT_STEP  # the reset takes a step
    assert batch.valid.all(1).tolist() == [True, True, True, not is_separate, True]
    counts = [0, 1, 2, 3, 0] if is_separate else [0, 1, 2, 0, 1]
    for t, count in enumerate(counts):
        np.testing.assert_array_equal(batch.obs[t, 0], flat(count))
    np.testing.assert_array_equal(batch.last_obs[1], flat(1 if is_separate else 2))
    np.testing.assert_array_equal(batch.final.obs, [flat(3)] * 2)
    for t, k in zip(*np.nonzero(batch.valid), strict=True):
        made = structured_action(ACTIONS[actions], batch.action[t, k])
        np.testing.assert_allclose(batch.reward[t, k], number_of(made), rtol=1e-5)


@pytest.mark.parametrize(
    "space",
    [
        OBSERVATIONS,
        Discrete(4, start=-2),
        MultiDiscrete([[2], [3]], start=[[1], [5]]),
        MultiBinary((2, 2)),
        Tuple([Box(0, 255, (2, 2), np.uint8), Dict({"a": Discrete(2), "b": MultiBinary(2)})]),
    ],
)
def test_rows_are_converted_as_single_values(space: Any) -> None:
    env: Any = PlainSpaces(Structured(observations=space))
    space.seed(0)
    values = [space.sample() for _ in range(20)]
    rows = plain_rows(space, stacked(space, values))
    assert rows.shape == (20, *plain_observations(space).shape)
    for row, value in zip(rows, values, strict=True):
        np.testing.assert_array_equal(row, env._plain(value))


@pytest.mark.filterwarnings("ignore")  # about the precision of the spaces' bounds
@pytest.mark.parametrize("name", ["MiniGrid-Empty-5x5-v0", "CheetahRun-v1"])
def test_envpool_is_converted(name: str) -> None:
    envpool = pytest.importorskip("envpool")
    with trl.collect(f"envpool.{name}", trl.policies.random, envs=3, steps=4) as collector:
        batch = collector.next()
    first = distinct_seeds(0, 1)[0] % (2**31 - 3)
    pool = envpool.make_gymnasium(name, num_envs=3, seed=first)
    pool.reset()  # the collector's first one creates the spaces
    space, (obs, _) = pool.observation_space, pool.reset()
    for t in range(4):
        np.testing.assert_allclose(batch.obs[t], plain_rows(space, obs).astype(np.float32))
        obs = pool.step(batch.action[t])[0]


def test_vector_environments_without_a_size_are_refused() -> None:
    env = SyncVectorEnv([lambda: Structured(observations=gymnasium.spaces.Text(3))])
    with pytest.raises(trl.errors.EnvError, match="a Text has no fixed size"):
        trl.collect(env, trl.policies.random)


def test_specifications_for_other_processes_contain_the_conversion() -> None:
    env: Any = gymnasium.make(trl.env.make(NAME, actions="shifted").spec)
    assert env.observation_space.shape == (12,) and env.action_space == gymnasium.spaces.Discrete(4)
    env.reset(seed=0)
    assert env.step(1)[1] == -1.0  # the second action of -2 to 1


def test_single_spaces_are_shifted_only() -> None:
    spaces = gymnasium.spaces
    assert plain_observations(spaces.Discrete(3, start=4)) == spaces.Discrete(3)
    assert plain_observations(spaces.MultiBinary(3)) == spaces.Box(0, 1, (3,), np.int8)
    assert plain_observations(spaces.MultiDiscrete([[2], [3]])) == spaces.MultiDiscrete([2, 3])
    env = trl.env.make("gym.CartPole-v1")
    assert not env.spec.additional_wrappers, "plain spaces need no wrapper"


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gymnasium.spaces.Text(3), "a Text has no fixed size"),
        (gymnasium.spaces.Dict({"x": gymnasium.spaces.Text(3)}), "a Text has no fixed size"),
    ],
)
def test_spaces_without_a_size_are_refused(space: Any, message: str) -> None:
    with pytest.raises(trl.errors.EnvError, match=message):
        trl.env.make(NAME, observations=space)


def test_actions_of_numbers_and_integers_are_refused() -> None:
    ACTIONS["both"] = gymnasium.spaces.Tuple([ACTIONS["numbers"], ACTIONS["shifted"]])
    try:
        with pytest.raises(trl.errors.EnvError, match="actions mix a Box with discrete spaces"):
            trl.env.make(NAME, actions="both")
    finally:
        del ACTIONS["both"]


class Tree(trl.env.JaxEnvironment):
    """Observations in a dictionary."""

    obs_space, act_space = trl.env.Box(-9.0, 9.0, (4,)), trl.env.MultiDiscrete((2, 3))

    def first(self, key: Any) -> Any:
        return jnp.int32(0), self.seen(jnp.int32(0))

    def after(self, key: Any, state: Any, action: Any) -> Any:
        return state + 1, self.seen(state + 1), action.sum(), state == 5

    def seen(self, count: Any) -> Any:
        return {"z": (count > 1, -count), "a": jnp.array([1.5, 2.5]) * count}


def test_trees_of_jax_environments_are_vectors() -> None:
    env = Tree()
    with trl.Context("v", "t") as ctx:
        (v, V), (t, T) = ctx.dims
        o = trl.like(env.obs_space, domain=(v, t))
        o[v, 0] = env.reset(domain=(v,))
        step = env.step(trl.DNNBuilder().from_env(env, hidden=[]).build().sample(o))
        o[v, t + 1] = step.obs
        ctx.output("o", o)
    found = ctx.compile({V: 2, T: 3}).execute(progress=False)["o"]
    assert found[1].tolist() == [[0, 0, 0, 0], [1.5, 2.5, 0, -1], [3, 5, 1, -2]]
