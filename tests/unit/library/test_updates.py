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
    names = ("o", "a", "r", "after", "done")
    env = trl.env.make("CartPole-v1", autoreset="same_step", max_steps=5)
    found = recorded_updates(
        "a2c", monkeypatch, {"B": 3, "I": 4, "T": 7}, names, OPTIONS, env=env, lam=0.8
    )
    ends = found["done"]
    assert ends.any() and found["after"][ends].any(), "a time limit does not end the return"

    def loss(p: Values, i: int) -> Any:
        o, a, r, after, done = (jnp.asarray(found[n][:, i]) for n in names)
        v = head(p, "critic.trunk", "critic", o)[..., 0]
        known, later, steps = jax.lax.stop_gradient(v), jnp.zeros(3), []
        for t in reversed(range(7)):
            later = jnp.where(done[:, t], 0.0, later)
            later = r[:, t] + 0.99 * after[:, t] - known[:, t] + 0.99 * 0.8 * later
            steps.append(later)
        advantage = jnp.stack(steps[::-1], axis=1)
        log_p = jax.nn.log_softmax(head(p, "trunk", "actor", o))
        chosen = jnp.take_along_axis(log_p, a[..., None].astype(int), axis=-1)[..., 0]
        entropy = -(jnp.exp(log_p) * log_p).sum(-1)
        regret = 0.5 * (v - (advantage + known)) ** 2
        return (0.5 * regret - chosen * advantage - 0.01 * entropy).mean()

    check(found, loss, range(4))


def streams(p: Values, x: Any, each: int, duel: bool) -> Any:
    """Return the outputs of a Q-network of two actions: [..., 2, each]."""
    if not duel:
        return mlp(p, "q", x).reshape(*x.shape[:-1], 2, each)
    x = jnp.tanh(x @ p["q.shared.0.weight"] + p["q.shared.0.bias"])
    value, gain = (mlp(p, f"q.{name}", x, 2) for name in ("value", "advantage"))
    gain = gain.reshape(*x.shape[:-1], 2, each)
    return value[..., None, :] + gain - gain.mean(-2, keepdims=True)


def project(p: np.ndarray, gain: float, worth: float, low: float, high: float) -> np.ndarray:
    """Divide each probability between the atoms below and above, as Bellemare et al. 2017 do."""
    found, gap = np.zeros(len(p)), (high - low) / (len(p) - 1)
    for k, share in enumerate(p):
        at = (min(max(gain + worth * (low + k * gap), low), high) - low) / gap
        below, above = int(np.floor(at)), int(np.ceil(at))
        if below == above:
            found[below] += share
        else:
            found[below] += share * (above - at)
            found[above] += share * (at - below)
    return found


@pytest.mark.parametrize(("duel", "atoms"), [(True, None), (False, 4)])
def test_dqn(monkeypatch: pytest.MonkeyPatch, duel: bool, atoms: int | None) -> None:
    names = ("seen", "did", "goal", "gain", "worth", "later", "error")
    how: dict[str, Any] = {"dueling": duel, "atoms": atoms, "support": (-1.0, 3.0), "alpha": 0.6}
    sizes: dict[str, Any] = {"length": 6, "batch": 3, "steps": 2, "beta": 0.0, "after": 0}
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

    def picked(y: Any, did: Any) -> Any:
        return jnp.take_along_axis(y, did[..., None, None].astype(int), axis=-2)[..., 0, :]

    def errors(p: Values, t: int) -> Any:
        seen, did, goal = (jnp.asarray(found[n][:, t]) for n in names[:3])
        now = picked(streams(p, seen, each, duel), did)
        return -(goal * jax.nn.log_softmax(now)).sum(-1) if atoms else goal - now[..., 0]

    def loss(p: Values, t: int) -> Any:
        error = errors(p, t)
        size = jnp.abs(error)
        huber = jnp.where(size < 1.0, 0.5 * error**2, size - 0.5)
        return (error if atoms else huber).mean()

    check(found, loss, range(1, 7))  # the first transition ends at the second step
    params = [n for n in found if n.startswith("q.")]
    for t in range(7):
        own, late = ({n: found[n][k] for n in params} for k in (t, t // 3 * 3))
        later, gain, worth = (found[n][:, t] for n in ("later", "gain", "worth"))
        best = mean(streams(own, later, each, duel)).argmax(-1)
        then = picked(streams(late, later, each, duel), best)
        if atoms:
            then = np.asarray(jax.nn.softmax(then))
            goal = [
                [project(*x, -1.0, 3.0) for x in zip(*row, strict=True)]
                for row in zip(then, gain, worth, strict=True)
            ]
        else:
            goal = gain + worth * then[..., 0]
        np.testing.assert_allclose(found["goal"][:, t], goal, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["error"][:, t], errors(own, t), rtol=1e-4, atol=1e-5)
    assert (found["worth"] == 0).any() and len(np.unique(found["worth"])) > 1


def remembered(p: Values, h: Any, o: Any) -> Any:
    """Return the state of a GRU after an observation, as PyTorch defines it."""
    x = jnp.tanh(mlp(p, "q.layers", o, 2))
    given, own = (
        jnp.split(y @ p[f"q.gru.{of}.weight"] + p[f"q.gru.{of}.bias"], 3, axis=-1)
        for of, y in (("input", x), ("state", h))
    )
    r, z = (jax.nn.sigmoid(given[k] + own[k]) for k in range(2))
    return (1 - z) * jnp.tanh(given[2] + r * own[2]) + z * h


def test_r2d2(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("seen", "did", "reward", "done", "ended", "final", "stored", "error")
    names += ("seen_before", "done_before", "h")
    T, burn = 4, 2
    env = trl.env.make("TMaze", length=1, max_steps=3, autoreset="same_step")
    sizes: dict[str, Any] = {"state": 3, "length": 3, "batch": 2, "burn_in": burn, "steps": 3}
    found = recorded_updates(
        "r2d2",
        monkeypatch,
        {"B": 2, "I": 5, "T": T},
        names,
        trl.Options(executor="interpret"),
        env=env,
        after=1,
        target_every=2,
        lr=0.1,
        **sizes,
    )

    def unroll(p: Values, h: Any, o: Any, done: Any, steps: range) -> tuple[Any, Any]:
        seen = []
        for t in steps:
            seen.append(remembered(p, h, o[:, t]))
            h = jnp.where(done[:, t, :, None], 0.0, seen[-1])
        return jnp.stack(seen, axis=1), h

    def states(p: Values, x: Values) -> Any:
        _, h = unroll(p, x["stored"], x["seen_before"], x["done_before"], range(T - burn, T))
        return unroll(p, jax.lax.stop_gradient(h), x["seen"], x["done"], range(T))[0]

    def head(p: Values, h: Any) -> Any:
        return h @ p["q.head.weight"] + p["q.head.bias"]

    params = [n for n in found if n.startswith("q.")]

    def errors(p: Values, i: int) -> Any:
        x = {n: jnp.asarray(found[n][:, i]) for n in names if n in found}
        late = {n: jnp.asarray(found[n][i // 2 * 2]) for n in params}
        h = states(p, x)
        best = head(p, remembered(p, h, x["final"])).argmax(-1)
        values = head(late, remembered(late, states(late, x), x["final"]))
        worth = jnp.take_along_axis(values, best[..., None], axis=-1)[..., 0]
        one = x["reward"] + jnp.where(x["ended"], 0.0, 0.99 * worth)
        goals = []
        for t in range(T):
            last = min(t + 2, T - 1)
            goal = one[:, last]
            for k in reversed(range(t, last)):
                later = x["reward"][:, k] + 0.99 * goal
                goal = jnp.where(x["done"][:, k], one[:, k], later)
            goals.append(goal)
        chosen = jnp.take_along_axis(head(p, h), x["did"][..., None].astype(int), axis=-1)[..., 0]
        return jax.lax.stop_gradient(jnp.stack(goals, axis=1)) - chosen

    def loss(p: Values, i: int) -> Any:
        size = jnp.abs(errors(p, i))
        return jnp.where(size < 1.0, 0.5 * size**2, size - 0.5).mean()

    check(found, loss, range(5))
    for i in range(5):
        own = {n: found[n][i] for n in params}
        np.testing.assert_allclose(found["error"][:, i], errors(own, i), rtol=1e-4, atol=1e-5)
    states_before = found["h"][:, :, T - burn]  # over b, i
    for i in range(1, 5):
        for b in range(2):
            for stored in found["stored"][b, i]:
                gaps = abs(states_before[b, max(i - 3, 0) : i] - stored).max(axis=-1)
                assert gaps.min() < 1e-6, "the state is one before a sequence in the window"
    assert found["done_before"].any() and found["ended"].any()
    assert (found["done"] != found["ended"]).any(), "a time limit ends an episode"


def critic_loss(p: Values, seen: Any, did: Any, goal: Any) -> Any:
    both = jnp.concatenate([seen, did], axis=-1)
    errors = [goal - mlp(p, f"critic{k}", both)[..., 0] for k in range(2)]
    return (errors[0] ** 2 + errors[1] ** 2).mean()


def test_td3(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("seen", "did", "goal", "gain", "discount", "first", "second", "then", "changes")
    found = recorded_updates(
        "td3", monkeypatch, {"B": 2, "T": 9}, names, OPTIONS, length=6, batch=4, after=3
    )
    least = np.minimum(found["first"], found["second"])
    np.testing.assert_allclose(found["goal"], found["gain"] + found["discount"] * least, rtol=1e-6)
    assert (np.abs(found["then"]) <= 1).all()
    assert found["changes"].tolist() == [t >= 3 and t % 2 == 0 for t in range(9)]

    def loss(p: Values, t: int) -> Any:
        seen, did, goal = (jnp.asarray(found[n][:, t]) for n in names[:3])
        fixed = jax.lax.stop_gradient(p)
        acts = jnp.tanh(mlp(p, "actor", seen))
        better = mlp(fixed, "critic0", jnp.concatenate([seen, acts], axis=-1))
        return critic_loss(p, seen, did, goal) - better.mean()

    check(found, loss, range(9))
    for name in (n for n in found if n.startswith("actor")):
        changed = [bool((found[name][t + 1] != found[name][t]).any()) for t in range(8)]
        assert changed == found["changes"][:8].tolist(), name


def test_sac(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("seen", "did", "goal", "acts", "gain", "discount", "first", "second", "likely")
    found = recorded_updates(
        "sac", monkeypatch, {"B": 2, "T": 8}, names, OPTIONS, length=6, batch=4, after=2
    )
    temperature = found["temperature"][None, :, None]
    soft = np.minimum(found["first"], found["second"]) - temperature * found["likely"]
    np.testing.assert_allclose(found["goal"], found["gain"] + found["discount"] * soft, rtol=1e-5)

    def loss(p: Values, t: int) -> Any:
        seen, did, goal, acts = (jnp.asarray(found[n][:, t]) for n in names[:4])
        fixed = jax.lax.stop_gradient(p)

        def policy(p: Values) -> Any:
            mean, log_std = jnp.split(mlp(p, "actor", seen), 2, axis=-1)
            return mean, jnp.clip(log_std, -20.0, 2.0)

        mean, log_std = policy(fixed)
        noise = (jnp.arctanh(acts.astype(jnp.float32)) - mean) / jnp.exp(log_std)
        mean, log_std = policy(p)
        x = mean + jnp.exp(log_std) * noise
        slope = 2.0 * (jnp.log(2.0) - x - jax.nn.softplus(-2.0 * x))
        normal = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
        log_prob = (normal - slope).sum(-1)
        both = jnp.concatenate([seen, jnp.tanh(x)], axis=-1)
        values = [mlp(fixed, f"critic{k}", both)[..., 0] for k in range(2)]
        actor = jnp.exp(fixed["log_temperature"]) * log_prob - jnp.minimum(*values)
        short = jax.lax.stop_gradient(log_prob).mean() - 1.0  # minus the number of actions
        return critic_loss(p, seen, did, goal) + actor.mean() - p["log_temperature"] * short

    check(found, loss, range(8))
