"""MountainCar and Pendulum: equal to Gymnasium's step by step, and to their published equations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import timerl_nb as trl

COUNT = 4000


def _discrete_car(x: Any, v: Any, a: Any) -> Any:
    """Sutton and Barto (2018), example 10.1: v' = v + 0.001 a - 0.0025 cos 3x, x' = x + v', both bounded."""
    v = np.clip(v + 0.001 * (a - 1) - 0.0025 * np.cos(3 * x), -0.07, 0.07)
    x = np.clip(x + v, -1.2, 0.6)
    v = np.where((x == -1.2) & (v < 0), 0, v)
    return np.stack([x, v], 1), np.full(len(x), -1.0), (x >= 0.5) & (v >= 0)


def _continuous_car(x: Any, v: Any, a: Any) -> Any:
    v = np.clip(v + 0.0015 * np.clip(a[:, 0], -1, 1) - 0.0025 * np.cos(3 * x), -0.07, 0.07)
    x = np.clip(x + v, -1.2, 0.6)
    v = np.where((x == -1.2) & (v < 0), 0, v)
    reached = (x >= 0.45) & (v >= 0)
    return np.stack([x, v], 1), 100 * reached - 0.1 * a[:, 0] ** 2, reached


def _pendulum(angle: Any, spin: Any, a: Any) -> Any:
    """Rod of mass m and length l, rotating about an end: θ'' = 3 g sin θ / 2 l + 3 u / m l²."""
    u = np.clip(a[:, 0], -2, 2)
    near = np.arctan2(np.sin(angle), np.cos(angle))
    cost = near**2 + 0.1 * spin**2 + 0.001 * u**2
    spin = np.clip(spin + 0.05 * (15 * np.sin(angle) + 3 * u), -8, 8)
    return np.stack([angle + 0.05 * spin, spin], 1), -cost, np.zeros(len(u), bool)


def _starts(low: tuple[float, float], high: tuple[float, float]) -> np.ndarray:
    return np.random.default_rng(0).uniform(low, high, (COUNT, 2)).astype(np.float32)


ENVIRONMENTS: dict[str, tuple[Any, np.ndarray, Any]] = {
    "MountainCar-v0": (_discrete_car, _starts((-1.2, -0.07), (0.6, 0.07)), 3),
    "MountainCarContinuous-v0": (_continuous_car, _starts((-1.2, -0.07), (0.6, 0.07)), 1.5),
    "Pendulum-v1": (_pendulum, _starts((-9.0, -8.0), (9.0, 8.0)), 2.5),
}


def actions(kind: Any) -> np.ndarray:
    """Discrete actions, or real ones, some of them out of bounds."""
    rng = np.random.default_rng(1)
    if isinstance(kind, int):
        return rng.integers(0, kind, COUNT).astype(np.int32)
    return rng.uniform(-kind, kind, (COUNT, 1)).astype(np.float32)


def ours(name: str, state: np.ndarray, action: np.ndarray) -> dict[str, np.ndarray]:
    with trl.Context("b") as ctx:
        ((b, _),) = ctx.dims
        env: Any = trl.env.make(name)
        given = trl.data(state, domain=(b,)), trl.data(action, domain=(b,))
        after, reward, ended = env.transition(*given)
        ctx.output("after", after)
        ctx.output("seen", env.observe(after))
        ctx.output("reward", reward * trl.ones(()) + trl.value(b).floating() * 0.0)
        ctx.output("ended", ended & (trl.value(b) >= 0))
    return dict(ctx.compile({"B": len(state)}).execute())


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_transitions_are_those_of_the_equations(name: str) -> None:
    equations, state, kind = ENVIRONMENTS[name]
    action = actions(kind)
    found = ours(name, state, action)
    after, reward, ended = equations(*state.astype(np.float64).T, action)
    # near a threshold rounding decides
    sure = ~np.isclose(after[:, 0], 0.5, atol=1e-6) & ~np.isclose(after[:, 0], 0.45, atol=1e-6)
    np.testing.assert_allclose(found["after"], after, rtol=0, atol=4e-6)
    np.testing.assert_allclose(found["reward"][sure], reward[sure], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found["ended"][sure], ended[sure])
    assert name == "Pendulum-v1" or 50 < ended.sum() < COUNT // 2


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_transitions_are_gymnasiums(name: str) -> None:
    _, state, kind = ENVIRONMENTS[name]
    action = actions(kind)
    found = ours(name, state[:500], action[:500])
    theirs: Any = gymnasium.make(name).unwrapped
    theirs.reset(seed=0)
    for k in range(500):
        theirs.state = np.asarray(state[k], np.float64)
        seen, reward, ended, _, _ = theirs.step(action[k])
        np.testing.assert_allclose(found["seen"][k], seen, rtol=0, atol=4e-6)
        assert found["ended"][k] == ended
        assert found["reward"][k] == pytest.approx(reward, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_spaces_and_lengths_are_gymnasiums(name: str) -> None:
    env, theirs = trl.env.make(name), gymnasium.make(name)
    assert theirs.spec is not None and env.max_steps == theirs.spec.max_episode_steps
    space: Any = theirs.action_space
    if isinstance(env.act_space, trl.env.Discrete):
        assert env.act_space.n == space.n
    else:
        assert env.act_space.shape == space.shape
        assert (env.act_space.low, env.act_space.high) == (space.low[0], space.high[0])
    assert env.obs_space.shape == theirs.observation_space.shape


def test_episodes_begin_where_gymnasiums_do() -> None:
    with trl.Context("b") as ctx:
        ((b, _),) = ctx.dims
        for name in ENVIRONMENTS:
            ctx.output(name, trl.env.make(name).reset(domain=(b,)))
    found = ctx.compile({"B": 2000}).execute(seed=2)
    for name in ("MountainCar-v0", "MountainCarContinuous-v0"):
        x, v = found[name].T
        assert -0.6 <= x.min() < -0.599 and -0.401 < x.max() <= -0.4 and not v.any()
    cos, sin, spin = found["Pendulum-v1"].T
    np.testing.assert_allclose(cos**2 + sin**2, 1, atol=1e-5)
    assert cos.min() < -0.99 and cos.max() > 0.99 and abs(sin.mean()) < 0.1
    assert -1 <= spin.min() < -0.99 and 0.99 < spin.max() <= 1
