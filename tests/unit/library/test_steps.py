"""Environment steps: flags for each environment, and means over the running ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import timerl_nb as trl

MODES: dict[str, dict[str, Any]] = {
    "endless": {},
    "masked": {"max_steps": 3},
    "next step": {"max_steps": 3, "autoreset": "next_step"},
    "same step": {"max_steps": 3, "autoreset": "same_step"},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["Pendulum-v1", "CartPole-v1", "MountainCar-v0"])
def test_flags_are_there_for_each_environment_and_step(name: str, mode: str) -> None:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        env = trl.env.make(name, **MODES[mode])
        env.reset(domain=(b,))
        space = env.act_space
        made = trl.zeros(space.shape, space.dtype) + (trl.value(b + t) * 0).cast(space.dtype)
        step = env.step(made)
        flags = {"terminated": step.terminated, "truncated": step.truncated, "alive": step.alive}
        for flag, x in flags.items():
            assert x.domain == ("b", "t"), flag
            ctx.output(flag, x)
        ctx.output("reward", step.reward)
    result = ctx.compile({B: 2, T: 4}).execute(progress=False)
    for flag in (*flags, "reward"):
        assert result[flag].shape == (2, 4), flag
    assert not result["terminated"].any()
    if mode != "endless":
        assert result["truncated"][:, 2].all() and not result["truncated"][:, :2].any()


def test_a_mean_over_no_living_environment_is_zero() -> None:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        env = trl.env.make("CartPole-v1", max_steps=2)
        env.reset(domain=(b,))
        step = env.step((trl.value(b + t) * 0).cast("i32"))
        x = (trl.value(b + t)).cast("f32")
        ctx.output("mean", step.mean(x, over=b))
        ctx.output("all", step.mean(x, over=(b, t)))
    result = ctx.compile({B: 2, T: 4}).execute(progress=False)
    np.testing.assert_array_equal(result["mean"], [0.5, 1.5, 0.0, 0.0])
    assert result["all"] == 1.0


def test_arithmetic_on_booleans_says_what_to_write() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.value(t) > 1
        with pytest.raises(trl.errors.ShapeError) as caught:
            _ = x + x
    assert "no arithmetic on booleans" in caught.value.what
    assert "a | b" in caught.value.hint and 'cast("i32")' in caught.value.hint
