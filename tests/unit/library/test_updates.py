"""Gradients of A2C, DQN, R2D2, TD3 and SAC at every update, against losses written by hand in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.recorded_updates import recorded_updates

Values = Mapping[str, Any]
OPTIONS = trl.Options()


def mlp(p: Values, prefix: str, x: Any, layers: int = 3) -> Any:
    for k in range(layers):
        x = x @ p[f"{prefix}.{k}.weight"] + p[f"{prefix}.{k}.bias"]
        x = jnp.tanh(x) if k < layers - 1 else x
    return x


def check(found: trl.Result, loss: Callable[[Values, int], Any], updates: range) -> None:
    """Compare the gradients of all parameters at each update."""
    params = [name.removeprefix("grad ") for name in found if name.startswith("grad ")]
    for k in updates:
        own = {name: jnp.asarray(found[name][k]) for name in params}
        want = jax.grad(lambda p, k=k: loss(p, k))(own)
        for name in params:
            most = max(float(jnp.abs(want[name]).max()), 1e-3)
            given = found[f"grad {name}"][k]
            np.testing.assert_allclose(given, want[name], rtol=3e-4, atol=3e-5 * most, err_msg=name)


def head(p: Values, trunk: str, name: str, x: Any) -> Any:
    k = 0
    while f"{trunk}.{k}.weight" in p:
        x = jnp.tanh(x @ p[f"{trunk}.{k}.weight"] + p[f"{trunk}.{k}.bias"])
        k += 1
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def test_a2c(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("o", "a", "r", "next_value", "done")
    env = trl.env.make("CartPole-v1", autoreset="same_step", max_steps=5)
    found = recorded_updates(
        "a2c", monkeypatch, {"B": 3, "I": 4, "T": 7}, names, OPTIONS, env=env, lam=0.8
    )
    ends = found["done"]
    assert ends.any() and found["next_value"][ends].any(), "a time limit does not end the return"

    def loss(p: Values, i: int) -> Any:
        o, a, r, next_value, done = (jnp.asarray(found[n][:, i]) for n in names)
        v = head(p, "critic.trunk", "critic", o)[..., 0]
        baseline, advantage_after, steps = jax.lax.stop_gradient(v), jnp.zeros(3), []
        for t in reversed(range(7)):
            advantage_after = jnp.where(done[:, t], 0.0, advantage_after)
            advantage_after = (
                r[:, t] + 0.99 * next_value[:, t] - baseline[:, t] + 0.99 * 0.8 * advantage_after
            )
            steps.append(advantage_after)
        advantage = jnp.stack(steps[::-1], axis=1)
        log_p = jax.nn.log_softmax(head(p, "trunk", "actor", o))
        chosen = jnp.take_along_axis(log_p, a[..., None].astype(int), axis=-1)[..., 0]
        entropy = -(jnp.exp(log_p) * log_p).sum(-1)
        value_loss = 0.5 * (v - (advantage + baseline)) ** 2
        return (0.5 * value_loss - chosen * advantage - 0.01 * entropy).mean()

    check(found, loss, range(4))


def streams(p: Values, x: Any, each: int, duel: bool) -> Any:
    """Return the outputs of a Q-network of two actions: [..., 2, each]."""
    if not duel:
        return mlp(p, "q", x).reshape(*x.shape[:-1], 2, each)
    x = jnp.tanh(x @ p["q.shared.0.weight"] + p["q.shared.0.bias"])
    value, advantage = (mlp(p, f"q.{name}", x, 2) for name in ("value", "advantage"))
    advantage = advantage.reshape(*x.shape[:-1], 2, each)
    return value[..., None, :] + advantage - advantage.mean(-2, keepdims=True)


def project(p: np.ndarray, reward: float, discount: float, low: float, high: float) -> np.ndarray:
    """Divide each probability between the atoms below and above, as Bellemare et al. 2017 do."""
    found, gap = np.zeros(len(p)), (high - low) / (len(p) - 1)
    for k, probability in enumerate(p):
        at = (min(max(reward + discount * (low + k * gap), low), high) - low) / gap
        below, above = int(np.floor(at)), int(np.ceil(at))
        if below == above:
            found[below] += probability
        else:
            found[below] += probability * (above - at)
            found[above] += probability * (at - below)
    return found


@pytest.mark.parametrize(("duel", "atoms"), [(True, None), (False, 4)])
def test_dqn(monkeypatch: pytest.MonkeyPatch, duel: bool, atoms: int | None) -> None:
    names = ("obs", "action", "target", "reward", "discount", "next_obs", "td_error")
    how: dict[str, Any] = {"dueling": duel, "atoms": atoms, "support": (-1.0, 3.0), "alpha": 0.6}
    sizes: dict[str, Any] = {
        "buffer_size": 6,
        "batch": 3,
        "steps": 2,
        "beta": 0.0,
        "learning_starts": 0,
    }
    env = trl.env.make("CartPole-v1", autoreset="same_step", max_steps=5)
    found = recorded_updates(
        "dqn",
        monkeypatch,
        {"B": 2, "T": 7},
        names,
        OPTIONS,
        env=env,
        target_every=3,
        **sizes,
        **how,
    )
    each, z = atoms or 1, np.linspace(-1.0, 3.0, atoms or 1)

    def mean(y: Any) -> Any:
        return (jax.nn.softmax(y) * z).sum(-1) if atoms else y[..., 0]

    def picked(y: Any, action: Any) -> Any:
        return jnp.take_along_axis(y, action[..., None, None].astype(int), axis=-2)[..., 0, :]

    def errors(p: Values, t: int) -> Any:
        obs, action, target = (jnp.asarray(found[n][:, t]) for n in names[:3])
        prediction = picked(streams(p, obs, each, duel), action)
        return (
            -(target * jax.nn.log_softmax(prediction)).sum(-1)
            if atoms
            else target - prediction[..., 0]
        )

    def loss(p: Values, t: int) -> Any:
        error = errors(p, t)
        size = jnp.abs(error)
        huber = jnp.where(size < 1.0, 0.5 * error**2, size - 0.5)
        return (error if atoms else huber).mean()

    check(found, loss, range(1, 7))  # the first transition ends at the second step
    params = [n for n in found if n.startswith("q.")]
    for t in range(7):
        own, late = ({n: found[n][k] for n in params} for k in (t, t // 3 * 3))
        next_obs, reward, discount = (found[n][:, t] for n in ("next_obs", "reward", "discount"))
        best = mean(streams(own, next_obs, each, duel)).argmax(-1)
        next_value = picked(streams(late, next_obs, each, duel), best)
        if atoms:
            next_value = np.asarray(jax.nn.softmax(next_value))
            target = [
                [project(*x, -1.0, 3.0) for x in zip(*row, strict=True)]
                for row in zip(next_value, reward, discount, strict=True)
            ]
        else:
            target = reward + discount * next_value[..., 0]
        np.testing.assert_allclose(found["target"][:, t], target, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["td_error"][:, t], errors(own, t), rtol=1e-4, atol=1e-5)
    assert (found["discount"] == 0).any() and len(np.unique(found["discount"])) > 1


def next_state(p: Values, h: Any, o: Any) -> Any:
    """Return the state of a GRU after an observation, as PyTorch defines it."""
    x = jnp.tanh(mlp(p, "q.layers", o, 2))
    given, own = (
        jnp.split(y @ p[f"q.gru.{of}.weight"] + p[f"q.gru.{of}.bias"], 3, axis=-1)
        for of, y in (("input", x), ("state", h))
    )
    r, z = (jax.nn.sigmoid(given[k] + own[k]) for k in range(2))
    return (1 - z) * jnp.tanh(given[2] + r * own[2]) + z * h


def test_r2d2(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "obs",
        "action",
        "reward",
        "done",
        "terminated",
        "final_obs",
        "stored_state",
        "td_error",
    )
    names += ("burn_in_obs", "burn_in_done", "h")
    T, burn = 4, 2
    env = trl.env.make("TMaze", length=1, max_steps=3, autoreset="same_step")
    sizes: dict[str, Any] = {
        "state_size": 3,
        "buffer_size": 3,
        "batch": 2,
        "burn_in": burn,
        "steps": 3,
    }
    found = recorded_updates(
        "r2d2",
        monkeypatch,
        {"B": 2, "I": 5, "T": T},
        names,
        trl.Options(executor="interpret"),
        env=env,
        learning_starts=1,
        target_every=2,
        lr=0.1,
        **sizes,
    )

    def unroll(p: Values, h: Any, o: Any, done: Any, steps: range) -> tuple[Any, Any]:
        states = []
        for t in steps:
            states.append(next_state(p, h, o[:, t]))
            h = jnp.where(done[:, t, :, None], 0.0, states[-1])
        return jnp.stack(states, axis=1), h

    def states(p: Values, x: Values) -> Any:
        _, h = unroll(p, x["stored_state"], x["burn_in_obs"], x["burn_in_done"], range(T - burn, T))
        return unroll(p, jax.lax.stop_gradient(h), x["obs"], x["done"], range(T))[0]

    def head(p: Values, h: Any) -> Any:
        return h @ p["q.head.weight"] + p["q.head.bias"]

    params = [n for n in found if n.startswith("q.")]

    def errors(p: Values, i: int) -> Any:
        x = {n: jnp.asarray(found[n][:, i]) for n in names if n in found}
        late = {n: jnp.asarray(found[n][i // 2 * 2]) for n in params}
        h = states(p, x)
        best = head(p, next_state(p, h, x["final_obs"])).argmax(-1)
        values = head(late, next_state(late, states(late, x), x["final_obs"]))
        next_value = jnp.take_along_axis(values, best[..., None], axis=-1)[..., 0]
        one = x["reward"] + jnp.where(x["terminated"], 0.0, 0.99 * next_value)
        targets = []
        for t in range(T):
            last = min(t + 2, T - 1)
            target = one[:, last]
            for k in reversed(range(t, last)):
                later = x["reward"][:, k] + 0.99 * target
                target = jnp.where(x["done"][:, k], one[:, k], later)
            targets.append(target)
        chosen = jnp.take_along_axis(head(p, h), x["action"][..., None].astype(int), axis=-1)[
            ..., 0
        ]
        return jax.lax.stop_gradient(jnp.stack(targets, axis=1)) - chosen

    def loss(p: Values, i: int) -> Any:
        size = jnp.abs(errors(p, i))
        return jnp.where(size < 1.0, 0.5 * size**2, size - 0.5).mean()

    check(found, loss, range(5))
    for i in range(5):
        own = {n: found[n][i] for n in params}
        np.testing.assert_allclose(found["td_error"][:, i], errors(own, i), rtol=1e-4, atol=1e-5)
    states_before = found["h"][:, :, T - burn]  # over b, i
    for i in range(1, 5):
        for b in range(2):
            for stored_state in found["stored_state"][b, i]:
                gaps = abs(states_before[b, max(i - 3, 0) : i] - stored_state).max(axis=-1)
                assert gaps.min() < 1e-6, "the state is one before a sequence in the window"
    assert found["burn_in_done"].any() and found["terminated"].any()
    assert (found["done"] != found["terminated"]).any(), "a time limit ends an episode"


def critic_loss(p: Values, obs: Any, action: Any, target: Any) -> Any:
    both = jnp.concatenate([obs, action], axis=-1)
    errors = [target - mlp(p, f"critic{k}", both)[..., 0] for k in range(2)]
    return (errors[0] ** 2 + errors[1] ** 2).mean()


def test_td3(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "obs",
        "action",
        "target",
        "reward",
        "discount",
        "next_q1",
        "next_q2",
        "next_action",
        "updates_actor",
    )
    found = recorded_updates(
        "td3",
        monkeypatch,
        {"B": 2, "T": 9},
        names,
        OPTIONS,
        buffer_size=6,
        batch=4,
        learning_starts=3,
    )
    least = np.minimum(found["next_q1"], found["next_q2"])
    np.testing.assert_allclose(
        found["target"], found["reward"] + found["discount"] * least, rtol=1e-6
    )
    assert (np.abs(found["next_action"]) <= 1).all()
    assert found["updates_actor"].tolist() == [t >= 3 and t % 2 == 0 for t in range(9)]

    def loss(p: Values, t: int) -> Any:
        obs, action, target = (jnp.asarray(found[n][:, t]) for n in names[:3])
        fixed = jax.lax.stop_gradient(p)
        new_action = jnp.tanh(mlp(p, "actor", obs))
        policy_value = mlp(fixed, "critic0", jnp.concatenate([obs, new_action], axis=-1))
        return critic_loss(p, obs, action, target) - policy_value.mean()

    check(found, loss, range(9))
    for name in (n for n in found if n.startswith("actor")):
        changed = [bool((found[name][t + 1] != found[name][t]).any()) for t in range(8)]
        assert changed == found["updates_actor"][:8].tolist(), name


def test_sac(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "obs",
        "action",
        "target",
        "new_action",
        "reward",
        "discount",
        "next_q1",
        "next_q2",
        "next_log_prob",
    )
    found = recorded_updates(
        "sac",
        monkeypatch,
        {"B": 2, "T": 8},
        names,
        OPTIONS,
        buffer_size=6,
        batch=4,
        learning_starts=2,
    )
    temperature = found["temperature"][None, :, None]
    next_value = (
        np.minimum(found["next_q1"], found["next_q2"]) - temperature * found["next_log_prob"]
    )
    np.testing.assert_allclose(
        found["target"], found["reward"] + found["discount"] * next_value, rtol=1e-5
    )

    def loss(p: Values, t: int) -> Any:
        obs, action, target, new_action = (jnp.asarray(found[n][:, t]) for n in names[:4])
        fixed = jax.lax.stop_gradient(p)

        def policy(p: Values) -> Any:
            mean, log_std = jnp.split(mlp(p, "actor", obs), 2, axis=-1)
            return mean, jnp.clip(log_std, -20.0, 2.0)

        mean, log_std = policy(fixed)
        noise = (jnp.arctanh(new_action.astype(jnp.float32)) - mean) / jnp.exp(log_std)
        mean, log_std = policy(p)
        x = mean + jnp.exp(log_std) * noise
        slope = 2.0 * (jnp.log(2.0) - x - jax.nn.softplus(-2.0 * x))
        normal = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
        log_prob = (normal - slope).sum(-1)
        both = jnp.concatenate([obs, jnp.tanh(x)], axis=-1)
        values = [mlp(fixed, f"critic{k}", both)[..., 0] for k in range(2)]
        actor = jnp.exp(fixed["log_temperature"]) * log_prob - jnp.minimum(*values)
        entropy_error = jax.lax.stop_gradient(log_prob).mean() - 1.0  # minus the number of actions
        return (
            critic_loss(p, obs, action, target)
            + actor.mean()
            - p["log_temperature"] * entropy_error
        )

    check(found, loss, range(8))
