"""CartPole against Gymnasium's, transition by transition; episodes, truncation and autoreset."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import timerl_nb as trl


def gymnasium_transitions(count: int) -> dict[str, np.ndarray]:
    """Return transitions of Gymnasium's CartPole under random actions, from its states."""
    env: Any = gymnasium.make("CartPole-v1").unwrapped
    rng = np.random.default_rng(0)
    found: dict[str, list[Any]] = {"state": [], "action": [], "after": [], "done": [], "reward": []}
    env.reset(seed=0)
    for _ in range(count):
        # float32 states are exact in both systems; long episodes cover the state space
        env.state = np.asarray(env.state, np.float32).astype(np.float64)
        found["state"].append(np.asarray(env.state))
        action = int(rng.integers(2))
        after, reward, done, _, _ = env.step(action)
        found["action"].append(action)
        found["after"].append(after)
        found["done"].append(done)
        found["reward"].append(reward)
        if done:
            env.reset()
            env.state = rng.uniform(-1, 1, 4) * np.array([2.3, 3.0, 0.2, 3.0])
    return {name: np.asarray(values) for name, values in found.items()}


def test_ten_thousand_transitions_equal_gymnasiums() -> None:
    want = gymnasium_transitions(10_000)
    with trl.Context("b") as ctx:
        ((b, B),) = ctx.dims
        state = trl.data(want["state"].astype(np.float32), domain=(b,))
        action = trl.data(want["action"].astype(np.int32), domain=(b,))
        after, reward, ended = trl.env.make("CartPole-v1").transition(state, action)
        ctx.output("after", after)
        ctx.output("ended", ended)
        ctx.output("reward", reward)
    result = ctx.compile({B: 10_000}).execute()
    np.testing.assert_allclose(result["after"], want["after"], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(result["ended"], want["done"])
    assert want["done"].sum() > 200
    assert (want["reward"] == result["reward"]).all()


def episodes(bounds: dict[str, int], **options: Any) -> trl.Result:
    """Episodes under a fixed policy: push right, which fails after about ten steps."""
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        env = trl.env.make("CartPole-v1", **options)
        o = trl.like(env.obs_space, domain=(b, t))
        o[b, 0] = env.reset(domain=(b,))
        step = env.step((o.take(0) > -100.0).cast("i32"))
        o[b, t + 1], r, d = step
        for name, x in {
            "o": o,
            "r": r,
            "done": d,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "alive": step.alive,
            "final": step.final_obs,
        }.items():
            ctx.output(name, x)
    return ctx.compile(bounds).execute(seed=1)


def test_after_done_an_episode_stands_still() -> None:
    result = episodes({"B": 6, "T": 20})
    for n in range(6):
        (end,) = np.flatnonzero(result["done"][n])
        assert 7 <= end <= 12
        assert result["terminated"][n, end] and not result["truncated"][n].any()
        assert result["alive"][n].tolist() == [k <= end for k in range(20)]
        assert result["r"][n].tolist() == [float(k <= end) for k in range(20)]
        later = result["o"][n, end + 1 :]
        assert (later == later[0]).all() and not (later[0] == result["o"][n, end]).all()
    starts = result["o"][:, 0]
    assert (abs(starts) < 0.05).all() and len(np.unique(starts)) == 24, "drawn apart"


def test_truncation_is_told_apart() -> None:
    result = episodes({"B": 3, "T": 8}, max_steps=5)
    assert not result["terminated"].any()
    assert result["truncated"].sum(1).tolist() == [1, 1, 1]
    assert result["truncated"][:, 4].all() and result["done"][:, 4].all()
    assert result["r"].sum(1).tolist() == [5, 5, 5]


def test_autoreset_at_the_next_step() -> None:
    result = episodes({"B": 4, "T": 40}, autoreset="next_step")
    for n in range(4):
        ends = np.flatnonzero(result["done"][n])
        assert len(ends) >= 2
        for end in ends[:-1]:
            assert not result["alive"][n, end + 1] and result["r"][n, end + 1] == 0
            assert (abs(result["o"][n, end + 2]) < 0.05).all(), "a new episode"
            assert result["alive"][n, end + 2]
        assert (np.diff(ends) > 6).all()


@pytest.mark.parametrize("modes", [trl.env.AutoresetMode, gymnasium.vector.AutoresetMode])
def test_modes_have_gymnasiums_names(modes: Any) -> None:
    names = {"NEXT_STEP": "next_step", "SAME_STEP": "same_step", "DISABLED": None}
    for name, mode in names.items():
        env = trl.env.make("CartPole-v1", autoreset=modes[name])
        assert env.autoreset == mode
        assert trl.env.make("gym.CartPole-v1", autoreset=name.lower()).autoreset == mode


def test_autoreset_at_the_same_step() -> None:
    result = episodes({"B": 4, "T": 40}, autoreset="same_step")
    assert result["alive"].all()
    assert (result["r"] == 1).all()
    for n in range(4):
        for end in np.flatnonzero(result["done"][n])[:-1]:
            assert (abs(result["o"][n, end + 1]) < 0.05).all()
            assert abs(result["final"][n, end, 2]) > 0.2, "where the episode really ended"


def test_episodes_of_an_iteration_differ_from_those_of_another() -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        env = trl.env.make("CartPole-v1")
        ctx.output("o", env.reset(domain=(b, i)))
    first = ctx.compile({B: 2, I: 3, T: 1}).execute(seed=5)["o"]
    assert len(np.unique(first)) == first.size
    again = ctx.compile({B: 2, I: 3, T: 1}).execute(seed=5)["o"]
    np.testing.assert_array_equal(first, again)
    other = ctx.compile({B: 2, I: 3, T: 1}).execute(seed=6)["o"]
    assert not np.isin(first, other).any()
    more = ctx.compile({B: 9, I: 3, T: 1}).execute(seed=5)["o"]
    np.testing.assert_array_equal(first, more[:2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"autoreset": "never"}, "is not a mode"),
        ({"autoreset": ["next_step"]}, "is not a mode"),
        ({"max_steps": 0}, "at least 1"),
        ({"colour": "red"}, "unexpected keyword argument 'colour'"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(trl.errors.EnvError, match=message):
        trl.env.make("CartPole-v1", **options)


def test_an_environment_of_ones_own() -> None:
    class Counter(trl.env.Environment):
        """The action is added to the state; an episode ends beyond 3."""

        obs_space = trl.env.Box(0, 10)
        act_space = trl.env.Discrete(2)

        def first_state(self, domain: Any) -> Any:
            return trl.zeros(())

        def transition(self, state: Any, action: Any) -> Any:
            after = state + action
            return after, after * 10.0, after > 3.0

    trl.env.register("Counter", Counter)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        env = trl.env.make("Counter")
        o = trl.like(env.obs_space, domain=(t,))
        o[0] = env.reset(domain=())
        o[t + 1], r, d = env.step(trl.value(t) * 0 + 1)
        ctx.output("o", o)
        ctx.output("r", r)
    result = ctx.compile({T: 7}).execute()
    assert result["o"].tolist() == [0, 1, 2, 3, 4, 4, 4]
    assert result["r"].tolist() == [10, 20, 30, 40, 0, 0, 0]
