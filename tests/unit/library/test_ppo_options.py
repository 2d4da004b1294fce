"""Options of PPO: KL limit, value clipping, learning-rate annealing, bootstrapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.recorded_updates import recorded_updates
from tests.unit.checks import assert_same
from tests.unit.library.test_updates import check, head
from timerl_nb.compiler.ir.reference.evaluator import Reference

Values = Mapping[str, Any]


def minibatch_loss(p: Values, data: Values) -> Any:
    """Return the loss of clipped PPO without value clipping, and the approximate KL divergence."""
    log_p = jax.nn.log_softmax(head(p, "trunk", "actor", data["obs"]))
    action = data["action"][..., None].astype(int)
    log_ratio = jnp.take_along_axis(log_p, action, axis=-1)[..., 0] - data["old_log_prob"]
    ratio, normalized = jnp.exp(log_ratio), data["normalized"]
    surrogate = jnp.minimum(ratio * normalized, jnp.clip(ratio, 0.8, 1.2) * normalized)
    entropy = -(jnp.exp(log_p) * log_p).sum(-1)
    squared_error = (head(p, "critic.trunk", "critic", data["obs"])[..., 0] - data["target"]) ** 2
    return (0.25 * squared_error - surrogate - 0.01 * entropy).mean(), (
        ratio - 1 - log_ratio
    ).mean()


def test_updates_stop_at_the_target_kl(monkeypatch: pytest.MonkeyPatch) -> None:
    """All parameters equal those of a JAX loop without Adam's steps after the limit."""
    names = ("obs", "action", "old_log_prob", "normalized", "target")
    bounds, sizes = {"B": 2, "I": 2, "T": 6}, {"epochs": 2, "minibatches": 2}
    settings = {"lr": 0.2, "target_kl": 0.02, "value_clip": None, "anneal": False, **sizes}
    settings["hidden"] = (5,)
    options = trl.Options(executor="xla")
    found = recorded_updates("clipped_ppo", monkeypatch, bounds, names, options, **settings)
    params = [name.removeprefix("grad ") for name in found if name.startswith("grad ")]
    p = {name: jnp.asarray(found[name][0, 0, 0]) for name in params}
    m: dict[str, Any] = {name: jnp.zeros_like(x) for name, x in p.items()}
    v: dict[str, Any] = {**m}
    count, made = 0, list[bool]()
    loss = jax.jit(jax.value_and_grad(minibatch_loss, has_aux=True))
    for i in range(2):
        stopped = False
        for e, j in np.ndindex(2, 2):
            for name in params:
                np.testing.assert_allclose(found[name][i, e, j], p[name], rtol=2e-3, atol=2e-4)
            data = {n: jnp.asarray(found[n][i, e, j]) for n in names}
            (_, kl), g = loss(p, data)
            stopped = stopped or bool(kl > 1.5 * 0.02)
            made.append(not stopped)
            if stopped:
                continue
            count += 1
            norm = jnp.sqrt(sum((x**2).sum() for x in g.values()))
            g = {k: x * jnp.minimum(0.5 / norm, 1.0) for k, x in g.items()}
            m = {k: 0.9 * m[k] + 0.1 * x for k, x in g.items()}
            v = {k: 0.999 * v[k] + 0.001 * x**2 for k, x in g.items()}
            scale = {k: jnp.sqrt(v[k] / (1 - 0.999**count)) + 1e-5 for k in p}
            p = {k: x - 0.2 * m[k] / (1 - 0.9**count) / scale[k] for k, x in p.items()}
    assert found["updates"].tolist() == np.reshape(made, (2, 4)).sum(1).tolist()
    assert 0 < sum(made) < 8, "some updates are made and some are skipped"


def test_runs_with_a_target_kl_agree_with_the_reference() -> None:
    ctx = trl.algorithms.clipped_ppo(
        hidden=(), epochs=2, minibatches=2, lr=0.2, target_kl=1e-3, value_clip=None, anneal=False
    )
    program = ctx.compile({"B": 2, "I": 2, "T": 2}, trl.Options(executor="xla"))
    want = Reference(program.pdg, program.bounds).outputs()
    assert_same(want, program.execute(progress=False), "xla")


def test_ppo_continues_with_the_value_after_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes of at most five steps within seven, and iterations of four steps within an episode."""
    names = ("o", "a", "r", "next_value", "advantage")
    for limit, steps in ((5, 7), (9, 4)):
        env = trl.env.make("CartPole-v1", max_steps=limit)
        bounds = {"B": 3, "I": 2, "T": steps}
        settings = {"lr": 0.1, "anneal": True, "max_norm": 0.5, "bootstrap": True}
        settings["hidden"] = (5,)
        with monkeypatch.context() as patch:
            found = recorded_updates(
                "ppo_single_epoch", patch, bounds, names, trl.Options(), env=env, **settings
            )
        length = min(limit, steps)
        assert found["next_value"][..., length - 1].all(), "a limit does not end the return"

        def loss(p: Values, i: int, found: Any = found, length: int = length) -> Any:
            o, a, r, next_value, advantage = (jnp.asarray(found[n][:, i, :length]) for n in names)
            v = head(p, "trunk", "critic", o)[..., 0]
            baseline, advantage_after = jax.lax.stop_gradient(v), jnp.zeros(3)
            np.testing.assert_allclose(next_value[:, :-1], baseline[:, 1:], rtol=1e-4, atol=1e-5)
            for t in reversed(range(length)):
                advantage_after = (
                    r[:, t]
                    + 0.99 * next_value[:, t]
                    - baseline[:, t]
                    + 0.99 * 0.96 * advantage_after
                )
                np.testing.assert_allclose(advantage[:, t], advantage_after, rtol=1e-4, atol=1e-5)
            normalized = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            log_p = jax.nn.log_softmax(head(p, "trunk", "actor", o))
            chosen = jnp.take_along_axis(log_p, a[..., None].astype(int), axis=-1)[..., 0]
            entropy = -(jnp.exp(log_p) * log_p).sum(-1)
            value_loss = 0.5 * (v - (advantage + baseline)) ** 2
            step_loss = 0.5 * value_loss - chosen * normalized - 0.01 * entropy
            return step_loss.sum() / found["r"][:, i].size

        check(found, loss, range(2))


def test_the_learning_rate_decreases_if_asked() -> None:
    """Adam's second step has the size of the learning rate, which is then half of the first one."""
    last = {}
    for anneal in (False, True):
        ctx = trl.algorithms.ppo(hidden=(), anneal=anneal, lr=1e-3)
        with ctx:
            (p,) = (p for p in ctx.parameters.values() if p.name == "critic.bias")
            ctx.output("p", p)
        bounds = {"B": 2, "I": 2, "T": 3}
        result = ctx.compile(bounds, trl.Options(executor="xla")).execute(progress=False)
        last[anneal] = abs(result.parameters["critic.bias"] - result["p"][1])
    np.testing.assert_allclose(last[True], last[False] / 2, rtol=1e-3)


@pytest.mark.parametrize("given", [{"target_kl": -1.0}, {"value_clip": -0.1}], ids=str)
def test_limits_are_not_negative(given: Any) -> None:
    with pytest.raises(trl.errors.ShapeError, match="of at least 0"):
        trl.algorithms.clipped_ppo(**given)
