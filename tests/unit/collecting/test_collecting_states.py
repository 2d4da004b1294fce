"""States of recurrent policies in batches, against twins in NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.counting import NAME, CountingVector
from timerl_nb.base.errors import OptionError, ShapeError
from timerl_nb.collecting import Batch

FIRST = {"sum": jnp.array([1.0, -1.0]), "count": jnp.int32(3)}
PARAMS = {"decay": np.float32(0.5)}


def recurrent(params: Any, obs: Any, state: Any, key: Any) -> Any:
    after = {"sum": params["decay"] * state["sum"] + obs[:2], "count": state["count"] + 1}
    action = (after["sum"].sum() + after["count"] > 4).astype(jnp.int32)
    return action, {"total": after["sum"].sum()}, after


def check_by_twin(b: Batch, before: dict[str, Any] | None, *, every: bool) -> dict[str, Any]:
    """Compare the states and actions of a batch with NumPy; return the state after it."""
    envs = b.envs
    first = {
        "sum": np.broadcast_to(np.float32([1, -1]), (envs, 2)),
        "count": np.full(envs, 3),
    }
    state = first if before is None else before
    obs, over = np.asarray(b.obs), np.asarray(b.terminated) | np.asarray(b.truncated)
    valid = np.asarray(b.valid)
    assert b.states["sum"].shape == (b.steps if every else 1, envs, 2)
    for t in range(b.steps):
        if every or t == 0:
            np.testing.assert_allclose(b.states["sum"][t], state["sum"], rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(b.states["count"][t], state["count"])
        after = {"sum": np.float32(0.5) * state["sum"] + obs[t, :, :2], "count": state["count"] + 1}
        action = after["sum"].sum(1) + after["count"] > 4
        np.testing.assert_array_equal(np.asarray(b.action)[t], action)
        np.testing.assert_allclose(b.total[t], after["sum"].sum(1), rtol=1e-5, atol=1e-5)
        begins = ~valid[t] | over[t] if valid.all() else ~valid[t]
        state = {
            "sum": np.where(begins[:, None], first["sum"], after["sum"]),
            "count": np.where(begins, first["count"], after["count"]),
        }
    np.testing.assert_array_equal(b.state["count"], b.states["count"][0])
    return state


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("how", ["scan", "step", "loop", "vector"])
def test_the_state_of_a_function_is_that_of_a_twin(how: str, every: bool) -> None:
    env: Any = "CartPole-v1"
    if how == "vector":  # a reset takes a separate step
        env, how = CountingVector(3), "native"
    elif how == "loop":
        env = f"gym.{NAME}"
    given = {"params": PARAMS, "initial_state": FIRST, "states": "all" if every else "first"}
    with trl.collect(env, recurrent, envs=3, steps=14, seed=2, how=how, **given) as c:
        state, ended = None, 0
        for _ in range(3):
            b = c.next()
            state = check_by_twin(b, state, every=every)
            ended += len(b.final)
        assert ended > 3
        assert jax.tree_util.tree_structure(b.states) == jax.tree_util.tree_structure(FIRST)
        assert isinstance(b.jax().states["count"], jax.Array)
        assert isinstance(b.numpy().state["sum"], np.ndarray)


def test_episodes_begin_with_the_first_state() -> None:
    for states in ("first", "all"):
        with trl.collect(
            f"gym.{NAME}", recurrent, envs=2, steps=9, how="loop", params=PARAMS, episodes=3, ahead=1,
            initial_state=FIRST, states=states,
        ) as c:  # fmt: skip
            c.next()
            b = c.next()
        np.testing.assert_array_equal(b.state["sum"], np.float32([[1, -1]] * 3))
        assert b.states["count"].shape == (b.steps if states == "all" else 1, 3)
        if states == "all":
            count = np.asarray(b.states["count"])[np.asarray(b.valid)]
            want = 3 + np.nonzero(np.asarray(b.valid))[0]
            np.testing.assert_array_equal(count, want)


def exported() -> Any:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        env = trl.env.make("CartPole-v1")
        cell = trl.nn.GRUCell(4, 3, domain=(i,))
        head = trl.nn.Linear(3, 2, domain=(i,))
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        h = trl.tensor((3,), domain=(b, i, t)).named("h")
        after = cell(h, o)
        h[b, i, 0] = trl.full((3,), 0.25)
        h[b, i, t + 1] = after
        dist = trl.distributions.Categorical(head(after))
        a = dist.sample()
        step = env.step(a)
        o[b, i, t + 1] = step.obs
        loss = -dist.log_prob(a) * step.reward[b, i, t:T].discounted_sum(0.9)
        step.masked(loss).mean(over=(b, t)).backward()
        trl.optim.Adam([*cell.params, *head.params], lr=1e-2).step()
        ctx.output("return", step.reward.sum(over=t).mean(over=b))
    return ctx.compile({"B": 2, "I": 1, "T": 3}).execute(seed=0, progress=False).policy()


def test_the_state_of_an_exported_policy_is_that_of_its_calls() -> None:
    policy = exported()
    for env, how in (("CartPole-v1", "scan"), ("gym.CartPole-v1", "loop")):
        with trl.collect(env, policy, envs=2, steps=25, seed=1, how=how, states="all") as c:
            c.next()
            whole = c.next()
        (name,) = whole.states
        if how == "loop":
            with trl.collect(env, policy, envs=2, steps=25, seed=1, how=how) as c:
                c.next()
                b = c.next()
            assert b.states[name].shape == (1, 2, 3)
            np.testing.assert_array_equal(whole.state[name], b.state[name])
        # from the stored state, the policy's own calls reach the next one
        state = {name: np.asarray(whole.state[name])}
        over = np.asarray(whole.terminated | whole.truncated)
        assert over.any()
        for t in range(whole.steps - 1):
            _, state = policy(np.asarray(whole.obs)[t], state, seed=0)
            begun = np.where(over[t][:, None], np.float32(0.25), np.asarray(state[name]))
            np.testing.assert_allclose(whole.states[name][t + 1], begun, rtol=1e-5, atol=1e-6)
            state = {name: begun}


def test_a_memoryless_policy_has_no_state() -> None:
    with trl.collect("CartPole-v1", trl.policies.random, steps=2, how="step", states="all") as c:
        assert c.next().states == c.next().state == {}


def test_refused_states() -> None:
    with pytest.raises(OptionError, match="has no first state"):
        trl.collect("CartPole-v1", recurrent, how="scan")
    with pytest.raises(OptionError, match="the policy is no such function"):
        trl.collect("CartPole-v1", lambda obs: obs, initial_state=FIRST)
    with pytest.raises(OptionError, match="states='each' does not exist"):
        trl.collect("CartPole-v1", trl.policies.random, states="each")  # type: ignore[arg-type]

    def wider(params: Any, obs: Any, state: Any, key: Any) -> Any:
        return jnp.int32(0), jnp.zeros(3)

    with (
        trl.collect("CartPole-v1", wider, how="step", initial_state=jnp.zeros(2)) as c,
        pytest.raises(ShapeError, match="returns the state .*but initial_state is"),
    ):
        c.next()
    forgets = lambda params, obs, state, key: jnp.int32(0)  # noqa: E731
    with (
        trl.collect("CartPole-v1", forgets, how="step", initial_state=jnp.zeros(2)) as c,
        pytest.raises(ShapeError, match="returns no next state"),
    ):
        c.next()
