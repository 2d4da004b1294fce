"""DDPG, TD3 and SAC for `train`: one update against hand-written equations, parts of batches, and resumed runs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.replay import Ddpg, Proportional, Replay, Sac, Td3, Training
from timerl_nb.replay.training.algorithm import parts, whole, with_positions

SMALL: dict[str, Any] = {"hidden": (5,), "gamma": 0.9, "tau": 0.1, "activation": "tanh"}
DDPG = Ddpg(lr=(1e-2, 2e-2), **SMALL)
TD3 = Td3(lr=(1e-2, 2e-2), target_noise=(0.3, 0.2), delay=2, **SMALL)
SAC = Sac(lr=(1e-2, 2e-2, 3e-2), target_entropy=-0.5, **SMALL)
EACH = pytest.mark.parametrize("of", [DDPG, TD3, SAC], ids=["ddpg", "td3", "sac"])


def rows(count: int, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "obs": random.normal(size=(count, 3)).astype("f4"),
        "action": random.uniform(-2, 2, (count, 1)).astype("f4"),
        "reward": random.normal(size=count).astype("f4"),
        "next_obs": random.normal(size=(count, 3)).astype("f4"),
        "terminated": random.random(count) < 0.3,
        "discount": random.uniform(0.5, 1, count).astype("f4"),
    }


# --- the twin ------------------------------------------------------------------------------------


def net(layers: Any, x: Any) -> Any:
    """Apply layers of tanh to rows [count, n]."""
    for layer in layers[:-1]:
        x = jnp.tanh(x @ layer["weight"] + layer["bias"])
    return x @ layers[-1]["weight"] + layers[-1]["bias"]


def q(critic: Any, obs: Any, action: Any) -> Any:
    return net(critic, jnp.concatenate([obs, action], 1))[:, 0]


def noises(state: Any, count: int) -> tuple[Any, Any]:
    """Return the standard normal noise of the target's and of the actor's actions, [count, 1] each."""
    key = jax.random.wrap_key_data(state["key"], impl="threefry2x32")
    key = jax.random.fold_in(key, state["count"])
    both = [jax.random.split(jax.random.fold_in(key, k)) for k in range(count)]
    first, second = (jnp.stack([jax.random.normal(b[j], (1,)) for b in both]) for j in range(2))
    return first, second


def gaussian(actor: Any, obs: Any, noise: Any) -> tuple[Any, Any]:
    """Return actions tanh(x) of x ~ N(mean, std) and their log-densities by the change of variables."""
    mean, log_std = net(actor, obs)[:, :1], net(actor, obs)[:, 1:]
    std = jnp.exp(log_std)
    x = mean + std * noise
    density = jnp.exp(-(((x - mean) / std) ** 2) / 2) / (std * np.sqrt(2 * np.pi))
    a = jnp.tanh(x)
    return a, jnp.log(density / (1 - a**2))[:, 0]


def losses(of: Any, state: Any, batch: Any, weight: Any) -> tuple[Any, Any]:
    """Return a function of the trained arrays, the weighted sum of all losses, and the rows' mean errors."""
    for_target, for_actor = noises(state, len(weight))
    obs, later, did = batch["obs"], batch["next_obs"], batch["action"] / 2.0
    old = state["target"]
    alpha = jnp.exp(state["log_temperature"]) if of is SAC else 0.0
    if of is SAC:
        then, density = gaussian(state["actor"], later, for_target)
        value = jnp.minimum(*(q(c, later, then) for c in old["critics"])) - alpha * density
    else:
        then = jnp.tanh(net(old["actor"], later))
        if of is TD3:
            then = jnp.clip(then + jnp.clip(0.3 * for_target, -0.2, 0.2), -1, 1)
        value = jnp.min(jnp.stack([q(c, later, then) for c in old["critics"]]), 0)
    goal = batch["reward"] + batch["discount"] * (1 - batch["terminated"]) * value

    def total(trained: Any) -> Any:
        errors = jnp.stack([goal - q(c, obs, did) for c in trained["critics"]])
        by_critics = (weight * errors**2).sum()
        if of is SAC:
            a, density = gaussian(trained["actor"], obs, for_actor)
            worth = jnp.minimum(*(q(c, obs, a) for c in state["critics"]))
            short = jax.lax.stop_gradient(density) - 0.5
            by_temperature = -(weight * trained["log_temperature"] * short).sum()
            by_actor = (weight * (alpha * density - worth)).sum() + by_temperature
        else:
            by_actor = -(
                weight * q(state["critics"][0], obs, jnp.tanh(net(trained["actor"], obs)))
            ).sum()
        return by_critics + by_actor, (by_critics, jnp.abs(errors).mean(0))

    return total, goal


def trained_part(state: Any) -> Any:
    return {n: state[n] for n in ("actor", "critics", "log_temperature") if n in state}


@EACH
def test_updates_equal_the_equations(of: Any) -> None:
    """Three steps; those of TD3's actor are the second only."""
    state = of.begin(3)
    rates = dict(zip(("actor", "critics", "log_temperature"), of.lr, strict=False))
    mean, square = (jax.tree.map(jnp.zeros_like, trained_part(state)) for _ in range(2))
    taken = dict.fromkeys(rates, 0)
    for t in (1, 2, 3):
        batch, weight = rows(6, t), np.linspace(0.5, 1.5, 6).astype("f4")
        total, _ = losses(of, state, batch, weight)
        before = trained_part(state)
        wanted, (loss, errors) = jax.grad(total, has_aux=True)(before)
        found = of.gradient(state, batch, weight)
        np.testing.assert_allclose(found[1], errors, rtol=1e-4, atol=1e-5)
        assert float(found[2]) == pytest.approx(float(loss), rel=1e-4)
        is_due = of is not TD3 or t == 2
        if not is_due:
            wanted["actor"] = jax.tree.map(jnp.zeros_like, wanted["actor"])
        for a, b in zip(jax.tree.leaves(found[0]), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
        after = of.step(state, found[0], 6)
        old = state["target"]
        for name in before:
            if name == "actor" and not is_due:
                assert alike(after[name], before[name])
                continue
            taken[name] += 1
            g = jax.tree.map(lambda x: x / 6, found[0][name])
            mean[name] = jax.tree.map(lambda m, x: 0.9 * m + 0.1 * x, mean[name], g)
            square[name] = jax.tree.map(lambda v, x: 0.999 * v + 0.001 * x**2, square[name], g)
            k, lr = taken[name], rates[name]

            def adam(w: Any, m: Any, v: Any, k: int = k, lr: float = lr) -> Any:
                return w - lr * (m / (1 - 0.9**k)) / (jnp.sqrt(v / (1 - 0.999**k)) + 1e-8)

            near(after[name], jax.tree.map(adam, before[name], mean[name], square[name]))
        tau = 0.1 if is_due else 0.0
        for name in old:
            kept, new = (jax.tree.leaves(x[name]) for x in (old, after))
            moved = [(1 - tau) * y + tau * x for y, x in zip(kept, new, strict=True)]
            near(after["target"][name], moved)
        assert "actor" not in old if of is SAC else set(old) == {"actor", "critics"}
        state = after


def near(found: Any, wanted: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def alike(first: Any, second: Any) -> bool:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@EACH
def test_gradients_of_parts_add_up(of: Any) -> None:
    """Noise depends on the position in the batch, so it is the same in every division."""
    state = {**of.begin(1), "count": jnp.int32(1)}  # the actor is due
    batch, weight = with_positions(rows(7), 7, 0), np.linspace(0, 1, 7).astype("f4")
    want = of.gradient(state, batch, weight)
    halves = [{n: x[s] for n, x in rows(7).items()} for s in (slice(3), slice(3, 7))]
    chunks = [
        (with_positions(halves[0], 3, 0), weight[:3]),
        (with_positions(halves[1], 4, 3), weight[3:]),
    ]
    for given, counts in ((parts(batch, weight, [4, 2, 1]), [4, 2, 1]), (chunks, [3, 4])):
        gradient, errors, loss = whole([of.gradient(state, *one) for one in given], counts)
        near(gradient, want[0])
        near(errors, want[1])
        assert loss == pytest.approx(float(want[2]), rel=1e-5)


# --- acting --------------------------------------------------------------------------------------


@EACH
def test_actions_are_uniform_first_and_in_the_box(of: Any) -> None:
    state = of.begin(0)
    keys = jax.random.split(jax.random.key(1), 2000)
    obs = np.array([0.3, -0.2, 5.0], "f4")

    def actions(state: Any, act: Any = of.act) -> Any:
        return np.asarray(jax.vmap(lambda k: act(of.acting(state), obs, k))(keys))

    first = actions(state)
    assert first.shape == (2000, 1) and first.dtype == np.float32
    assert np.abs(first).max() <= 2 and abs(first.std() - 4 / 12**0.5) < 0.05
    learnt = actions({**state, "count": jnp.int32(1)})
    greedy = actions(state, of.act_greedily)
    assert np.ptp(greedy) == 0 and abs(greedy[0, 0]) < 0.2
    spread = (
        2 * of.noise
        if of is not SAC
        else 2 * np.tanh(np.random.default_rng(0).normal(size=9999)).std()
    )
    assert learnt.std() == pytest.approx(spread, rel=0.1) and np.abs(learnt).max() <= 2


class Bounded(trl.env.Environment):
    """Rewards and bounds of actions are those of the class."""

    obs_space, act_space = trl.env.Box(-1.0, 1.0, (2,)), trl.env.Box(-1.0, [1.0, 5.0], (2,))
    max_steps, reward = 3, 1.0

    def first_state(self, domain: Any) -> Any:
        return trl.random.uniform((2,), -1.0, 1.0, domain=domain)

    def transition(self, state: Any, action: Any) -> Any:
        return state, self.reward + 0.0 * action.sum(), trl.constant(False)


def test_each_element_of_an_action_has_its_bounds() -> None:
    of = Td3(Bounded(), hidden=(3,))
    for x, want in ((-1.0, [-1.0, -1.0]), (0.0, [0.0, 2.0]), (1.0, [1.0, 5.0])):
        action = of._in_box(np.full(2, x, np.float32))
        np.testing.assert_array_equal(action, want)
        np.testing.assert_array_equal(of._from_box(action), [x, x])


def test_lists_are_accepted() -> None:
    of = Td3(hidden=[3], lr=[1e-3, 1e-3], target_noise=[0.2, 0.5])  # type: ignore[arg-type]
    assert of == Td3(hidden=(3,)) and hash(of) == hash(Td3(hidden=(3,)))
    assert of != Td3(hidden=(4,)) and of != Ddpg(hidden=(3,))
    assert of.acting(of.begin(0))["is_uniform"]
    learns = trl.replay.Dqn(hidden=[3], epsilon=[1.0, 0.1, 10])  # type: ignore[arg-type]
    assert learns.acting(learns.begin(0))


def test_a_name_that_is_registered_again_is_another_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("timerl_nb.env.environment._FACTORIES", {})
    found = []
    for reward, high in ((1.0, 1.0), (7.0, 9.0)):
        box = trl.env.Box(-1.0, high, (2,))
        kind = type("Other", (Bounded,), {"act_space": box, "reward": reward})
        trl.env.register("Mine", kind)
        of = Ddpg("Mine", hidden=(3,))
        buffer = Replay(100, of.fields)
        trained(of, buffer=buffer, turns=3).result()
        sample = buffer.sample(50)
        found.append((np.unique(sample["reward"]).tolist(), sample["action"].max() > 1, of))
    assert found[0][:2] == ([1.0], False) and found[1][:2] == ([7.0], True)
    assert found[0][2] != found[1][2], "compiled functions are not shared"
    assert pickle.loads(pickle.dumps(of)) == of


# --- runs ----------------------------------------------------------------------------------------


def trained(of: Any, **given: Any) -> Training:
    small = {"mode": "exact", "batch": 8, "envs": 2, "steps": 2, "groups": 2, "learning_starts": 8}
    return trl.replay.train(of, **{**small, "turns": 12, "how": "scan", "seed": 3, **given})


def bits(run: Training) -> dict[str, bytes]:
    result = run.result()
    found = {n: x.tobytes() for n, x in result.items()}
    return found | {f"weights {n}": x.tobytes() for n, x in result.parameters.items()}


@EACH
def test_a_stopped_run_continues_to_the_same_bits(of: Any, tmp_path: Path) -> None:
    def buffer() -> Replay:
        return Replay(40, of.fields, priority=Proportional(), n_step=3, gamma=0.9)

    given: dict[str, Any] = {"every": 6}
    want = bits(trained(of, **given, buffer=buffer(), folder=tmp_path / "whole"))
    half = trained(of, **given, buffer=buffer(), folder=tmp_path / "half", paused=True)
    half.step(8)
    half.wait(60)
    half.stop()
    half.wait(60)
    assert bits(trained(of, **given, buffer=buffer(), folder=tmp_path / "half", actors=2)) == want
    assert np.isfinite(np.frombuffer(want["loss"], "f8")).all()


def test_priorities_are_the_critics_errors() -> None:
    buffer = Replay(64, TD3.fields, priority=Proportional(alpha=1.0, eps=0.0))
    run = trained(TD3, buffer=buffer, turns=6, learning_starts=4, groups=1)
    run.result()
    assert len(np.unique(buffer.tree.priorities)) > 1


@pytest.mark.parametrize(
    ("given", "error", "what"),
    [
        ({"env": "CartPole-v1"}, "EnvError", "needs actions between two bounds"),
        ({"activation": "sine"}, "OptionError", "activation='sine' is not supported"),
        ({"lr": (1e-3,)}, "ShapeError", "lr must be 2 numbers"),
        ({"tau": 2}, "ShapeError", "tau must be a number from 0 to 1"),
        ({"delay": 0}, "ShapeError", "delay must be an integer of at least 1"),
        ({"noise": -1.0}, "ShapeError", "noise"),
        ({"target_noise": 0.2}, "ShapeError", "target_noise must be 2 numbers"),
        ({"hidden": (0,)}, "ShapeError", "hidden"),
    ],
)
def test_unsuitable_arguments_are_refused(given: dict[str, Any], error: str, what: str) -> None:
    with pytest.raises(getattr(trl.errors, error), match=what):
        Td3(**given)


def test_the_position_in_the_batch_is_no_field() -> None:
    with pytest.raises(trl.errors.OptionError, match="'batch_position' is reserved"):
        Replay(4, {"batch_position": ((), "i32")})
