"""IMPALA, recurrent PPO and evolution strategies: updates against twins written by hand, and reference runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.algorithm_pages import assert_page_shows_loops
from tests.recorded_updates import recorded_updates
from tests.unit.checks import assert_same
from tests.unit.library.test_updates import check, head
from timerl_nb.compiler.ir.reference.evaluator import Reference

Values = Mapping[str, Any]
XLA = trl.Options(executor="xla")


def cartpole(steps: int) -> Any:
    return trl.env.make("CartPole-v1", autoreset="same_step", max_steps=steps)


def tiny(name: str) -> tuple[trl.Context, dict[str, int]]:
    """Return an algorithm with its smallest network, and bounds."""
    if name == "impala":
        return trl.algorithms.impala(cartpole(3), lag=1, hidden=()), {"B": 2, "I": 3, "T": 4}
    if name == "recurrent_ppo":
        maze = trl.env.make("TMaze", length=1, autoreset="same_step")
        sizes = {"state_size": 2, "segment": 2, "epochs": 1, "minibatches": 2}
        return trl.algorithms.recurrent_ppo(maze, **sizes), {"B": 2, "I": 2, "T": 4}
    return trl.algorithms.evolution_strategies(hidden=()), {"N": 2, "I": 3, "T": 12}


@pytest.mark.parametrize("name", ["impala", "evolution_strategies", "recurrent_ppo"])
def test_runs_agree_with_the_reference(name: str) -> None:
    ctx, bounds = tiny(name)
    program = ctx.compile(bounds, XLA)
    assert_page_shows_loops(name, program)
    want = Reference(program.pdg, program.bounds).outputs()
    for executor in ("interpret", "xla"):
        result = program.with_options(executor=executor).execute(progress=False)
        assert_same(want, result, executor)


@pytest.mark.parametrize("name", ["a2c", "clipped_ppo", "ppo", "reinforce"])
def test_pages_show_the_loops(name: str) -> None:
    options = {"epochs": 2, "minibatches": 2} if name == "clipped_ppo" else {}
    ctx = getattr(trl.algorithms, name)(hidden=(), **options)
    assert_page_shows_loops(name, ctx.compile({"B": 2, "I": 2, "T": 6}, XLA))


# --- IMPALA --------------------------------------------------------------------------------------


def log_probs(p: Values, o: Any, a: Any) -> tuple[Any, Any]:
    """Return the log-probabilities of actions, and the entropy."""
    log_p = jax.nn.log_softmax(head(p, "trunk", "actor", o))
    chosen = jnp.take_along_axis(log_p, a[..., None].astype(int), axis=-1)[..., 0]
    return chosen, -(jnp.exp(log_p) * log_p).sum(-1)


def v_trace(ratio: Any, td_error: Any, done: Any, rho: float, c: float) -> Any:
    """Return the V-trace targets minus the values, by the sum of the paper's equation 1."""
    made = np.zeros_like(td_error)
    for b, t in np.ndindex(td_error.shape):
        weight = 1.0
        for s in range(t, td_error.shape[1]):
            made[b, t] += weight * min(ratio[b, s], rho) * td_error[b, s]
            if done[b, s]:
                break
            weight *= 0.99 * min(ratio[b, s], c)
    return made


def test_impala(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("o", "a", "r", "ratio", "next_value", "done", "correction", "advantage")
    bounds = {"B": 3, "I": 5, "T": 7}
    settings = {"hidden": (5,), "lag": 2, "rho": 1.1, "c": 0.9, "lr": 0.1}
    found = recorded_updates("impala", monkeypatch, bounds, names, XLA, env=cartpole(5), **settings)
    params = [name.removeprefix("grad ") for name in found if name.startswith("grad ")]
    assert found["next_value"][found["done"]].any(), "a time limit does not end the return"
    for i in range(5):
        o, a, r, ratio, next_value, done, correction, advantage = (
            np.array(found[n][:, i]) for n in names
        )
        new, old = ({n: jnp.asarray(found[n][k]) for n in params} for k in (i, max(i - 2, 0)))
        want = np.exp(log_probs(new, o, a)[0] - log_probs(old, o, a)[0])
        np.testing.assert_allclose(ratio, want, rtol=1e-3)
        td_error = (
            r + 0.99 * next_value - np.asarray(head(new, "critic.trunk", "critic", o)[..., 0])
        )
        np.testing.assert_allclose(
            correction, v_trace(ratio, td_error, done, 1.1, 0.9), rtol=1e-3, atol=1e-4
        )
        next_correction = np.where(done, 0.0, np.pad(correction[:, 1:], ((0, 0), (0, 1))))
        want_advantage = np.minimum(ratio, 1.1) * (td_error + 0.99 * next_correction)
        np.testing.assert_allclose(advantage, want_advantage, rtol=1e-3, atol=1e-4)
    assert (found["ratio"] > 1.1).any() and (found["ratio"] < 0.9).any(), "some ratios are clipped"

    def loss(p: Values, i: int) -> Any:
        o, a, _, _, _, _, correction, advantage = (jnp.asarray(found[n][:, i]) for n in names)
        v, (chosen, entropy) = head(p, "critic.trunk", "critic", o)[..., 0], log_probs(p, o, a)
        value_loss = 0.5 * (v - (correction + jax.lax.stop_gradient(v))) ** 2
        return (0.5 * value_loss - chosen * advantage - 0.01 * entropy).mean()

    check(found, loss, range(5))


def test_impala_without_a_lag_has_the_returns_of_an_actor_critic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All ratios are 1, and the target is the n-step return with the critic's value after it."""
    names = ("r", "ratio", "next_value", "done", "correction", "baseline", "advantage")
    bounds = {"B": 2, "I": 2, "T": 6}
    settings = {"env": cartpole(4), "lag": 0, "hidden": (5,)}
    found = recorded_updates("impala", monkeypatch, bounds, names, XLA, **settings)
    np.testing.assert_allclose(found["ratio"], 1.0, rtol=1e-5)
    g = np.zeros((2, 2))
    for t in reversed(range(6)):
        ends = found["done"][..., t] if t < 5 else np.ones((2, 2), bool)
        g = found["r"][..., t] + 0.99 * np.where(ends, found["next_value"][..., t], g)
        np.testing.assert_allclose(
            found["correction"][..., t] + found["baseline"][..., t], g, rtol=1e-4
        )
    np.testing.assert_allclose(found["advantage"], found["correction"], rtol=1e-4, atol=1e-5)


# --- evolution strategies ------------------------------------------------------------------------


def test_evolution_strategies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are sums of perturbations weighted by ranks; fitness is that of perturbed policies."""
    names = ("o", "a", "r", "fitness", "noise", "rank")
    bounds = {"N": 3, "I": 2, "T": 30}
    settings = {"hidden": (5,), "sigma": 0.5, "decay": 0.01}
    found = recorded_updates("evolution_strategies", monkeypatch, bounds, names, XLA, **settings)
    params = [name.removeprefix("grad ") for name in found if name.startswith("grad ")]
    fitness, rank = found["fitness"], found["rank"]
    np.testing.assert_array_equal(fitness, found["r"].sum(-1))
    for i in range(2):
        order = fitness[..., i].ravel()
        places = [(np.sum(x > order) - np.sum(x < order)) / 2 / 5 for x in order]
        np.testing.assert_allclose(rank[..., i].ravel(), places, rtol=1e-6)
        assert rank[..., i].max() <= 0.5 and len(set(places)) > 1
        eps = {name: found[f"noise {name}"][:, i] for name in params}
        everything = np.concatenate([x.ravel() for x in eps.values()])
        assert abs(everything.mean()) < 0.3 and 0.7 < everything.std() < 1.3
        signed = (rank[..., i] * np.array([[-1], [1]])).sum(0)
        for name in params:
            moved = np.tensordot(signed, eps[name], 1) / 6 / 0.5
            want = 0.02 * found[name][i] - moved
            have = found[f"grad {name}"][i]
            np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-5, err_msg=name)
        for s, n in np.ndindex(2, 3):
            p = {name: found[name][i] + 0.5 * (2 * s - 1) * eps[name][n] for name in params}
            logits = np.asarray(head(p, "trunk", "actor", found["o"][s, n, i]))
            clear, a = abs(logits[:, 0] - logits[:, 1]) > 1e-4, found["a"][s, n, i]
            np.testing.assert_array_equal(a[clear], logits.argmax(-1)[clear])


def test_a_policy_without_its_statistics_is_refused() -> None:
    """The exported policy would read other observations than the policy that acts."""
    env = trl.env.NormalizeObservation(trl.env.make("CartPole-v1"))
    program = trl.algorithms.evolution_strategies(env, hidden=()).compile({"N": 1, "I": 1, "T": 2})
    result = program.execute(progress=False)
    with pytest.raises(trl.errors.OptionError, match="does not contain their statistics"):
        result.policy()


# --- recurrent PPO -------------------------------------------------------------------------------


def gru(p: Values, h: Any, x: Any) -> Any:
    a, b = (
        q @ p[f"cell.{n}.weight"] + p[f"cell.{n}.bias"] for q, n in ((x, "input"), (h, "state"))
    )
    (r, z, n), (of_r, of_z, of_n) = jnp.split(a, 3, -1), jnp.split(b, 3, -1)
    z = jax.nn.sigmoid(z + of_z)
    return (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + of_r) * of_n) + z * h


def test_recurrent_ppo(monkeypatch: pytest.MonkeyPatch) -> None:
    """States reset at the end of an episode, segments begin with the acting state, and gradients reach that step."""
    maze = trl.env.make("TMaze", length=1, max_steps=3, autoreset="same_step")
    acting = ("o", "h", "state", "done", "index")
    learning = (
        "obs",
        "action",
        "old_log_prob",
        "old_value",
        "normalized",
        "target",
        "is_end",
        "initial_h",
    )
    bounds, sizes = {"B": 2, "I": 2, "T": 6}, {"state_size": 3, "segment": 3, "epochs": 2}
    found = recorded_updates(
        "recurrent_ppo",
        monkeypatch,
        bounds,
        (*acting, *learning),
        XLA,
        env=maze,
        minibatches=2,
        lr=0.1,
        hidden=(5,),
        **sizes,
    )
    o, h, state, done = (found[n] for n in acting[:4])
    params = [name.removeprefix("grad ") for name in found if name.startswith("grad ")]
    assert done.any() and not done.all()
    for i in range(2):
        p = {n: jnp.asarray(found[n][i, 0, 0]) for n in params}
        np.testing.assert_allclose(state[:, i], gru(p, h[:, i], o[:, i]), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(
            h[:, i, 1:], np.where(done, 0, 1)[:, i, :-1, None] * state[:, i, :-1]
        )
    np.testing.assert_allclose(h[:, 1, 0], np.where(done[:, 0, -1:], 0.0, state[:, 0, -1]))
    b_index, part = np.divmod(found["index"], 2)
    for at in np.ndindex(2, 2, 2, 2):  # i, e, j, m
        b, t = b_index[at], 3 * part[at]
        np.testing.assert_array_equal(found["initial_h"][at], h[b, at[0], t])
        np.testing.assert_array_equal(found["obs"][at], o[b, at[0], t : t + 3])
        np.testing.assert_array_equal(found["is_end"][at], done[b, at[0], t : t + 3])

    def loss(p: Values, i: int, e: int, j: int) -> Any:
        obs, action, old_log_prob, old_value, normalized, target, is_end, state = (
            jnp.asarray(found[n][i, e, j]) for n in learning
        )
        steps = []
        for k in range(3):
            state = gru(p, state, obs[:, k])
            steps.append(state)
            state = jnp.where(is_end[:, k, None], 0.0, state)
        x = jnp.stack(steps, 1)
        log_p = jax.nn.log_softmax(head(p, "trunk", "actor", x))
        new = head(p, "critic.trunk", "critic", x)[..., 0]
        chosen = jnp.take_along_axis(log_p, action[..., None].astype(int), axis=-1)[..., 0]
        ratio = jnp.exp(chosen - old_log_prob)
        surrogate = jnp.minimum(ratio * normalized, jnp.clip(ratio, 0.8, 1.2) * normalized)
        entropy = -(jnp.exp(log_p) * log_p).sum(-1)
        return (0.25 * (new - target) ** 2 - surrogate - 0.01 * entropy).mean()

    slope = jax.jit(jax.grad(loss), static_argnums=(1, 2, 3))
    for at in ((0, 0, 0), (0, 1, 1), (1, 1, 0)):
        want = slope({n: jnp.asarray(found[n][at]) for n in params}, *at)
        for name in params:
            most = max(float(jnp.abs(want[name]).max()), 1e-3)
            have = found[f"grad {name}"][at]
            np.testing.assert_allclose(have, want[name], rtol=1e-3, atol=1e-4 * most, err_msg=name)


@pytest.mark.parametrize(
    ("bounds", "settings"),
    [({"B": 2, "I": 1, "T": 6}, {"segment": 4}), ({"B": 1, "I": 1, "T": 6}, {"segment": 2})],
    ids=str,
)
def test_steps_divide_into_segments_and_minibatches(bounds: Any, settings: Any) -> None:
    ctx = trl.algorithms.recurrent_ppo(minibatches=2, state_size=2, **settings)
    with pytest.raises(trl.errors.BoundsError, match="do not divide into segments"):
        ctx.compile(bounds)


@pytest.mark.parametrize("name", ["impala", "recurrent_ppo"])
def test_episodes_must_restart_in_the_same_step(name: str) -> None:
    with pytest.raises(trl.errors.EnvError, match="resets itself in the same step"):
        getattr(trl.algorithms, name)(trl.env.make("CartPole-v1"))
