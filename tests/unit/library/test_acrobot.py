"""Acrobot: equal to Gymnasium's, step by step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.library.test_classic_environments import ours

COUNT = 400
LIMITS = np.array([np.pi, np.pi, 4 * np.pi, 9 * np.pi])


def test_transitions_are_gymnasiums() -> None:
    rng = np.random.default_rng(0)
    state = (rng.uniform(-1, 1, (COUNT, 4)) * LIMITS * [1, 1, 0.3, 0.3]).astype(np.float32)
    action = rng.integers(0, 3, COUNT).astype(np.int32)
    found = ours("Acrobot-v1", state, action)
    theirs: Any = gymnasium.make("Acrobot-v1").unwrapped
    theirs.reset(seed=0)
    ends = 0
    for k in range(COUNT):
        theirs.state = np.asarray(state[k], np.float64)
        seen, reward, ended, _, _ = theirs.step(action[k])
        np.testing.assert_allclose(found["seen"][k], seen, rtol=0, atol=2e-4)
        height = -np.cos(theirs.state[0]) - np.cos(theirs.state[0] + theirs.state[1])
        if abs(height - 1.0) > 1e-4:  # near the threshold rounding decides
            assert found["ended"][k] == ended and found["reward"][k] == reward
        ends += ended
    assert 40 < ends < COUNT // 2


def test_fast_states_are_bounded_and_angles_are_wrapped() -> None:
    state = (np.random.default_rng(1).uniform(-1, 1, (COUNT, 4)) * LIMITS).astype(np.float32)
    after = ours("Acrobot-v1", state, np.ones(COUNT, np.int32))["after"]
    assert (abs(after) <= LIMITS.astype(np.float32)).all()
    assert (abs(after[:, 2:]) == LIMITS[2:].astype(np.float32)).any(0).all()


def test_spaces_starts_and_lengths_are_gymnasiums() -> None:
    theirs: Any = gymnasium.make("Acrobot-v1")
    env = trl.env.make("Acrobot-v1")
    assert (env.act_space.n, env.max_steps) == (3, theirs.spec.max_episode_steps)
    assert env.obs_space.shape == theirs.observation_space.shape
    assert env.obs_space.high == pytest.approx(theirs.observation_space.high.max())
    with trl.Context("v") as ctx:
        ((v, _),) = ctx.dims
        ctx.output("o", env.reset(domain=v))
    cos, sin, *_ = ctx.compile({"V": 500}).execute(seed=0)["o"].T
    np.testing.assert_allclose(cos**2 + sin**2, 1, atol=1e-6)
    assert sin.min() < -0.095 and sin.max() > 0.095 and abs(sin).max() <= np.sin(0.1) + 1e-6
