"""Predefined algorithms learn, and their losses and gradients equal those of JAX versions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from benchmarks.training.peers import jitted
from benchmarks.training.peers.parts import adam, adam_state, of_ours
from benchmarks.works import Work
from tests.probe import probe, probed
from tests.unit.checks import assert_same
from timerl_nb.compiler.ir.reference.evaluator import Reference

WORKS = {
    "ppo": Work("ppo", 6, 11, layers=3, width=8),
    "reinforce": Work("reinforce", 6, 11, width=8),
    "3-step reinforce": Work("reinforce", 6, 11, width=8, obs_shape=(3, 5, 5), window=3),
}


def assert_close(have: Any, want: Any, what: str) -> None:
    """Compare with a tolerance for sums over hundreds of points in another order."""
    scale = float(np.abs(want).max()) or 1.0
    np.testing.assert_allclose(have, want, rtol=2e-4, atol=2e-5 * scale, err_msg=what)


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("options", [{}, {"vectorize": ("b",)}], ids=str)
@pytest.mark.parametrize("name", WORKS)
def test_learning_is_that_of_jax(name: str, options: dict[str, Any]) -> None:
    """Given the same parameters, observations, actions and rewards."""
    work = WORKS[name]
    ours = probe(work, seed=3, options=trl.Options(**options))
    params, made = of_ours(ours.before), of_ours(ours.grads)
    o, a, r = (jnp.asarray(x) for x in ours.tensors)
    v = jitted.value_of(params, jitted.features(params, o, work)) if work.algorithm == "ppo" else 0
    loss, grads = jitted.learn(work, params, (o, a, r, v))
    assert_close(ours.loss, loss, "loss")
    assert set(grads) == set(made)
    for k, g in grads.items():
        assert_close(made[k], g, k)
    updated = of_ours(ours.after)
    for k, p in adam(params, adam_state(params), made)[0].items():
        assert_close(updated[k], p, f"{k} after the update")


@pytest.mark.parametrize("name", WORKS)
def test_runs_agree_with_the_reference(name: str) -> None:
    work = Work(WORKS[name].algorithm, 2, 4, width=3, obs_shape=(2,), window=WORKS[name].window)
    program = work.compile(2)
    want = Reference(program.pdg, program.bounds).outputs()
    assert_same(want, program.execute(progress=False), name)


@pytest.mark.parametrize("algorithm", ["ppo", "reinforce"])
def test_it_learns_the_synthetic_environment(algorithm: str) -> None:
    env = trl.env.make("synthetic", obs_shape=(2, 2))
    options = {"baseline": True} if algorithm == "reinforce" else {}
    write = getattr(trl.algorithms, algorithm)
    program = write(env, hidden=[16], lr=1e-2, **options).compile({"B": 64, "I": 40, "T": 40})
    returns = program.execute(progress=False)["return"]
    assert returns[-5:].mean() > returns[:5].mean() + 3, returns


def test_ppo_learns_cartpole() -> None:
    ctx = trl.algorithms.ppo(hidden=[32], critic=0.005, entropy=0.0, lam=1.0, lr=1e-2)
    returns = ctx.compile({"B": 64, "I": 40, "T": 200}).execute(progress=False)["return"]
    assert returns[-5:].mean() > 110 > 40 > returns[0], returns


def test_ppo_of_episodes_that_end() -> None:
    """On CartPole, with advantages computed episode by episode."""
    ctx = trl.algorithms.ppo(hidden=[8])
    found = probed(ctx, ("o", "a", "r", "alive"), {"B": 5, "I": 1, "T": 40}, seed=1)
    o, a, r, alive = (np.swapaxes(x, 0, 1) for x in found.tensors)

    def heads(params: Any) -> tuple[Any, Any]:
        h = jnp.tanh(o @ params["trunk.0.weight"] + params["trunk.0.bias"])
        logits = h @ params["actor.weight"] + params["actor.bias"]
        v = h @ params["critic.weight"] + params["critic.bias"]
        return jax.nn.log_softmax(logits), v[..., 0]

    v = np.asarray(heads(found.before)[1])
    advantage = np.zeros_like(v)
    lengths = alive.sum(1)
    for n, length in enumerate(lengths):
        for t in reversed(range(length)):
            last = t == length - 1
            after, later = (0, 0) if last else (v[n, t + 1], advantage[n, t + 1])
            advantage[n, t] = r[n, t] + 0.99 * after - v[n, t] + 0.99 * 0.96 * later
    assert 10 < lengths.min() < lengths.max() < 40
    scaled = (advantage - advantage[alive].mean()) / (advantage[alive].std() + 1e-8)
    target = advantage + v

    def loss_of(params: Any) -> Any:
        logs, v = heads(params)
        chosen = jnp.take_along_axis(logs, a[..., None], -1)[..., 0]
        entropy = -(jnp.exp(logs) * logs).sum(-1)
        lost = 0.25 * (v - target) ** 2 - chosen * scaled - 0.01 * entropy
        return (lost * alive).mean()

    loss, grads = jax.value_and_grad(loss_of)(found.before)
    assert_close(found.loss, loss, "loss")
    for k, g in grads.items():
        assert_close(found.grads[k], g, k)


def test_synthetic_environment() -> None:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        env = trl.env.make("synthetic", obs_shape=[2, 3])
        o = trl.like(env.obs_space, domain=(b, t))
        o[b, 0] = env.reset(domain=(b,))
        step = env.step(trl.random.normal((1,), std=2.0, domain=(b, t)))
        o[b, t + 1], r, d = step
        ctx.output("o", o)
        ctx.output("r", r)
        ctx.output("ended", d[b, t])
        ctx.output("alive", step.alive.sum(over=t))
    result = ctx.compile({B: 50, T: 30}).execute(progress=False)
    state = result["o"][..., 0, 0]
    assert (result["o"] == state[..., None, None]).all() and (abs(state) <= 1).all()
    moves = np.diff(state)
    assert abs(moves).max() == pytest.approx(0.05, rel=1e-3) and (abs(moves) < 0.049).any()
    np.testing.assert_allclose(result["r"][:, :-1], -abs(state[:, 1:]))
    assert state[:, 0].std() == pytest.approx(3**-0.5, rel=0.3)
    assert not result["ended"].any() and (result["alive"] == 30).all()


@pytest.mark.parametrize("shape", ["wide", (3, 0), (2.0,), 7])
def test_observations_of_impossible_shapes(shape: Any) -> None:
    with pytest.raises(trl.errors.EnvError, match="is not a shape"):
        trl.env.make("synthetic", obs_shape=shape)


def test_synthetic_episodes_can_be_cut() -> None:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        env = trl.env.make("synthetic", max_steps=4)
        o = trl.like(env.obs_space, domain=(b, t))
        o[b, 0] = env.reset(domain=(b,))
        step = env.step(trl.random.normal((1,), domain=(b, t)))
        o[b, t + 1], r, d = step
        ctx.output("alive", step.alive)
        ctx.output("truncated", step.truncated)
    result = ctx.compile({B: 2, T: 6}).execute(progress=False)
    assert result["alive"].tolist() == [[True] * 4 + [False] * 2] * 2
    assert result["truncated"].tolist() == [[False] * 3 + [True] + [False] * 2] * 2


def test_unknown_environments_and_networks() -> None:
    with pytest.raises(trl.errors.EnvError, match="there is no environment 'Walk'"):
        trl.algorithms.ppo("Walk")
    with pytest.raises(trl.errors.ShapeError, match="hidden must be a list"):
        trl.algorithms.reinforce(hidden=64)  # type: ignore[arg-type]
    env = trl.env.make("CartPole-v1")
    trl.algorithms.ppo(env)
    with pytest.raises(trl.errors.EnvError, match="reset already"):
        trl.algorithms.ppo(env)


@pytest.mark.parametrize("name", trl.algorithms.__all__)
def test_an_unknown_option_is_reported_with_the_nearest_one(name: str) -> None:
    with pytest.raises(
        trl.errors.CallError, match=rf"did you mean 'hidden'\? the signature is {name}\("
    ):
        getattr(trl.algorithms, name)(hiden=(4,))


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"batch_size": 4}, "use batch=; the signature"),
        ({"learning_rate": 1e-3}, "use lr=; the signature"),
        (
            {"no_such_option": 1},
            "What to do: the signature is dqn\\(env='CartPole-v1', .*learning_starts=500",
        ),
        ({"size": 1}, "What to do: the signature"),  # `shape` is no argument of this function
    ],
    ids=str,
)
def test_options_of_other_libraries_are_translated(given: Any, hint: str) -> None:
    with pytest.raises(trl.errors.CallError, match=hint):
        trl.algorithms.dqn(**given)
