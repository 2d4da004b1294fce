"""`trl.collect` on the host: counting environments, policies of all kinds, and failures."""

from __future__ import annotations

import multiprocessing
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import timerl_nb as trl
from tests.counting import ACTIONS, NAME, Counting, ends, length
from timerl_nb.base.errors import EnvError, ExecutionError, OptionError, ShapeError
from timerl_nb.base.machine_model import cores
from timerl_nb.collecting import Collector
from timerl_nb.env.gymnasium import distinct_seeds

ENVS, STEPS = 5, 7


def test_a_step_takes_two_calls_of_ours_beside_the_environments_and_the_policy() -> None:
    """Independent of the number of steps: the strategy's and the policy's."""
    ours, found = Path(trl.__file__).parent, list[int]()
    for steps in (10, 30):
        names = list[str]()

        def called(frame: Any, event: str, _: object, names: list[str] = names) -> None:
            if event == "call":
                names.append(frame.f_code.co_filename)

        env = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * ENVS)
        with trl.collect(env, lambda obs: (obs[:, 2] > 0).astype(int), steps=steps) as c:
            c.next()
            sys.setprofile(called)
            try:
                c.next()
            finally:
                sys.setprofile(None)
        found.append(sum(Path(name).is_relative_to(ours) for name in names))
        env.close()
    assert found[1] - found[0] == 2 * (30 - 10)


def given(mode: AutoresetMode, **options: Any) -> Any:
    return SyncVectorEnv([lambda: Counting(**options)] * ENVS, autoreset_mode=mode)


def named(how: str, **options: Any) -> Collector:
    env = trl.env.make(f"gym.{NAME}", **options)
    return trl.collect(env, act, how=how, envs=ENVS, steps=STEPS, seed=11)


STRATEGIES: Mapping[str, Callable[..., Collector]] = (
    {
        how: lambda how=how, **options: named(how, **options)
        for how in ("loop", "native", "processes")
    }
    | {
        mode.value: lambda mode=mode, **options: trl.collect(
            given(mode, **options), act, how="native", steps=STEPS, seed=11
        )
        for mode in AutoresetMode
    }
    | {"processes": lambda **options: named("processes", **options)}
)


def act(obs: Any) -> tuple[Any, dict[str, Any]]:
    """Return the observed step as the action, with an extra output."""
    last = np.asarray(obs).reshape(len(obs), -1)[:, -1]
    return last.astype(np.int64), {"seen": np.asarray(obs)[:, ..., 1] * 2, "value": last / 4}


def expected(offset: int, once: bool = False) -> Iterator[tuple[Any, ...]]:
    """Return the expected steps of an environment, and last observations of ended episodes."""
    episode = 0
    while True:
        n = 1 if once else length(offset, episode)
        for step in range(n):
            ended = ends(episode) if step + 1 == n else (False, False)
            last = (offset, episode, step + 1) if any(ended) else None
            yield (offset, episode, step), 10 * episode + step, ended, last
        episode += 1


@pytest.mark.parametrize(
    ("strategy", "once"),
    [(strategy, once) for strategy in STRATEGIES for once in (False, True)][:-1],
)
def test_every_way_brings_what_environments_count(strategy: str, once: bool) -> None:
    with STRATEGIES[strategy](once=once) as c:
        batches = [c.next() for _ in range(6)]
    obs = np.concatenate([b.obs for b in batches])
    offsets = obs[0, :, 0].astype(int)
    assert len(set(offsets)) > 1
    plans = [expected(k, once) for k in offsets]
    following = [next(p) for p in plans]
    ongoing, invalid = np.zeros((ENVS, 2)), 0
    over: dict[int, Any] = {}
    for k, b in enumerate(batches):
        assert b.obs.dtype == b.reward.dtype == np.float32 and b.action.dtype == np.int32
        after = {(t, n): o for t, n, o in zip(b.final.step, b.final.env, b.final.obs, strict=True)}
        returns, lengths = list(b.episodes.returns), list(b.episodes.lengths)
        for t in range(STEPS):
            for n in range(ENVS):
                if not b.valid[t, n]:  # the last observation is repeated
                    assert tuple(b.obs[t, n]) == over[n]
                    assert not b.terminated[t, n] and not b.truncated[t, n] and not b.reward[t, n]
                    invalid += 1
                    continue
                seen, reward, ended, last = following[n]
                following[n] = next(plans[n])
                assert tuple(b.obs[t, n]) == seen and b.action[t, n] == seen[2]
                assert b.reward[t, n] == reward
                assert (b.terminated[t, n], b.truncated[t, n]) == (
                    ended[0],
                    ended[1] and not ended[0],
                )
                assert (b.seen[t, n], b.value[t, n]) == (2 * seen[1], seen[2] / 4)
                ongoing[n] += reward, 1
                if last is not None:
                    assert tuple(after.pop((t, n))) == last
                    assert (returns.pop(0), lengths.pop(0)) == tuple(ongoing[n])
                    ongoing[n] = 0
                    over[n] = last
        assert not after and not returns and not lengths
        assert b.count == np.asarray(b.valid).sum()
        if k + 1 < len(batches):
            np.testing.assert_array_equal(b.last_obs, batches[k + 1].obs[0])
    assert (invalid > 0) == (strategy in ("native", "NextStep"))


def test_the_loop_is_gymnasiums() -> None:
    env = trl.env.make("CartPole-v1", max_steps=9)
    with trl.collect(
        env, lambda obs: np.ones(len(obs), int), envs=3, steps=40, how="loop", seed=5
    ) as c:
        b = c.next()
    assert b.truncated.any() and b.terminated.any()
    for n, seed in enumerate(distinct_seeds(5, 3)):
        plain = gymnasium.make("CartPole-v1", max_episode_steps=9)
        obs, _ = plain.reset(seed=seed)
        for t in range(40):
            np.testing.assert_array_equal(b.obs[t, n], obs)
            obs, reward, ended, cut, _ = plain.step(int(b.action[t, n]))
            assert (reward, ended, cut and not ended) == (
                b.reward[t, n],
                b.terminated[t, n],
                b.truncated[t, n],
            )
            if ended or cut:
                obs, _ = plain.reset()


def test_names_that_are_gymnasiums_alone_and_of_modules() -> None:
    for name in (NAME, f"tests.counting:{NAME}", "MountainCar-v0", "gym.MountainCar-v0"):
        with trl.collect(name, trl.policies.random, envs=2, steps=3, how="loop") as c:
            assert c.next().count == 6


@pytest.mark.parametrize("kind", list(ACTIONS))
def test_actions_of_every_kind(kind: str) -> None:
    space = ACTIONS[kind]
    env = trl.env.make(f"gym.{NAME}", act=kind)
    with trl.collect(env, trl.policies.random, envs=4, steps=50, how="loop") as c:
        b = c.next()
        c.next()
    assert b.action.shape == (50, 4, *(space.shape or ()))
    drawn = b.action.reshape(200, *(space.shape or ()))
    assert all(space.contains(a.astype(space.dtype)) for a in drawn)
    assert len(np.unique(drawn, axis=0)) >= 7
    np.testing.assert_allclose(
        b.reward, 10 * b.obs[..., 1] + b.action.reshape(50, 4, -1).sum(-1), rtol=1e-5
    )


def test_drawn_actions_lie_in_their_own_bounds() -> None:
    low, high = np.array([0, -5], np.float32), np.array([1, -4], np.float32)
    env = given(AutoresetMode.SAME_STEP)
    env.single_action_space = gymnasium.spaces.Box(low, high)
    acting = trl.collect(env, trl.policies.random, how="native")._task.acting
    made = acting.on_host(0, env.single_action_space)({}, np.zeros((200, 3)), None)["action"]
    assert (made >= low).all() and (made <= high).all() and (made.std(0) > 0.2).all()


@pytest.mark.parametrize("image", [0, 24])
def test_a_batch_is_written_once_and_stays(image: int) -> None:
    with named("loop", image=image) as c:
        first = c.next()
        copies = {
            n: np.array(x)
            for n, x in {**vars(first), **first.extras}.items()
            if hasattr(x, "shape")
        }
        assert len(copies) == 9
        for _ in range(4):
            c.next()
    for name, want in copies.items():
        x = getattr(first, name)
        np.testing.assert_array_equal(x, want)
        assert getattr(first.numpy(), name) is x
        if name != "last_obs":  # after the others, wherever that is
            assert getattr(first.jax(), name).unsafe_buffer_pointer() == x.ctypes.data
    behind = first.last_obs.ctypes.data - first.obs.ctypes.data
    assert behind == first.obs.nbytes  # both share memory
    assert first.obs.dtype == (np.uint8 if image else np.float32)


def test_a_network_acts_on_the_host_as_in_a_program() -> None:
    env = trl.env.make("CartPole-v1")
    policy = trl.DNNBuilder().from_env(env, hidden=[8], critic=True)
    with trl.collect("gym.CartPole-v1", policy, envs=6, steps=20, how="native", seed=3) as c:
        w = {n: np.asarray(x) for n, x in c.weights.items()}
        b = c.next()
        h = np.tanh(b.obs @ w["trunk.0.weight"] + w["trunk.0.bias"])
        logits = h @ w["actor.weight"] + w["actor.bias"]
        logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        want = np.take_along_axis(logp, b.action[..., None], -1)[..., 0]
        np.testing.assert_allclose(b.log_prob, want, atol=1e-5)
        np.testing.assert_allclose(
            b.value, (h @ w["critic.weight"] + w["critic.bias"])[..., 0], atol=1e-5
        )
        assert 0.2 < b.action.mean() < 0.8 and not np.array_equal(b.action, c.next().action)
        right = {**w, "actor.bias": np.array([-100, 100], np.float32)}
        assert (c.next(params=right).action == 1).all()


class Net:
    """A module in flax's style: called with its parameters."""

    def apply(self, params: Any, obs: Any) -> Any:
        return params["act"](obs @ params["layers"][0]["w"]) @ params["layers"][1]["w"]


def drawn(params: Any, obs: Any, key: Any) -> Any:
    assert obs.shape == (4,)  # of one environment
    logits = Net().apply(params, obs)
    action = jax.random.categorical(key, logits)
    return action, {"log_prob": jax.nn.log_softmax(logits)[action]}


def tree(seed: int) -> Any:
    draw = np.random.default_rng(seed)
    a, b = (draw.normal(size=s).astype(np.float32) for s in ((4, 8), (8, 2)))
    return {"layers": [{"w": a}, {"w": jnp.asarray(b)}], "act": jnp.tanh}


def test_functions_of_jax() -> None:
    options = {"envs": 64, "steps": 10, "seed": 2, "how": "native"}
    with trl.collect("gym.CartPole-v1", drawn, params=tree(0), **options) as c:
        assert sorted(c.weights) == ["layers.0.w", "layers.1.w"]
        b, other = c.next(), c.next(params=tree(1))
        with pytest.raises(ShapeError, match="layers.1.w is float32"):
            c.load({"layers": [tree(0)["layers"][0], {"w": np.zeros((8, 3), np.float32)}]})
        assert c.next().action.shape == (10, 64)  # it continues
    for batch, params in ((b, tree(0)), (other, tree(1))):
        logits = np.asarray(Net().apply(params, batch.obs))
        logp = np.asarray(jax.nn.log_softmax(logits))
        want = np.take_along_axis(logp, batch.action[..., None], -1)[..., 0]
        np.testing.assert_allclose(batch.log_prob, want, atol=1e-5)
        share = np.exp(logp)[..., 1].mean()
        assert abs(batch.action.mean() - share) < 0.08  # 640 draws of that
    with trl.collect("gym.CartPole-v1", drawn, **options) as d:
        again = d.next(params=tree(0))  # the first weights may arrive with the first batch
    np.testing.assert_array_equal(again.action, b.action)


def test_functions_of_jax_without_parameters() -> None:
    def least(params: Any, obs: Any, key: Any) -> Any:
        return (obs[2] > 0).astype(jnp.int32)

    with trl.collect("gym.CartPole-v1", least, envs=3, how="loop") as c:
        b = c.next()
        np.testing.assert_array_equal(b.action, b.obs[..., 2] > 0)
        with pytest.raises(ShapeError, match="w is unknown"):
            c.load({"w": np.zeros(3)})


def test_processes_make_what_the_loop_makes() -> None:
    assert multiprocessing.active_children() == []
    options = {"envs": 5, "steps": 20, "seed": 4}
    with trl.collect("gym.CartPole-v1", trl.policies.random, how="loop", **options) as c:
        want = [c.next(), c.next()]
    with trl.collect("gym.CartPole-v1", trl.policies.random, how="processes", **options) as c:
        have = [c.next(), c.next()]
        workers = multiprocessing.active_children()
        assert 1 <= len(workers) <= cores()
        assert all(isinstance(w, SpawnProcess) for w in workers)
    assert multiprocessing.active_children() == []
    for a, b in zip(want, have, strict=True):
        for name in ("obs", "action", "reward", "terminated", "truncated", "valid", "last_obs"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        np.testing.assert_array_equal(a.final.obs, b.final.obs)


@pytest.mark.parametrize("fault", ["raises", "dies"])
def test_a_worker_that_fails_is_named_and_the_others_end(fault: str) -> None:
    c = named("processes", **{fault: 10})
    before = c.next()
    kept = np.array(before.obs)
    seeds = distinct_seeds(11, ENVS)
    said = "ValueError: a wheel came off" if fault == "raises" else "process ended with exit code 7"
    with pytest.raises(EnvError, match=said) as caught:
        c.next()
    odd = [k for k, seed in enumerate(seeds) if seed % 2]
    names = [f"environment {k} (seed {seeds[k]}) failed at step 2 of the batch" for k in odd]
    assert any(name in str(caught.value) for name in names)
    assert multiprocessing.active_children() == []
    np.testing.assert_array_equal(before.obs, kept)


@pytest.mark.parametrize("how", ["loop", "native", "processes"])
def test_an_interrupted_batch_is_completed(how: str) -> None:
    asked = []

    def policy(obs: Any) -> Any:
        asked.append(len(obs))
        if len(asked) == STEPS + 3:
            raise KeyboardInterrupt
        return act(obs)

    env = trl.env.make(f"gym.{NAME}")
    c = trl.collect(env, policy, how=how, envs=ENVS, steps=STEPS)
    before = c.next()
    kept = np.array(before.obs)
    with pytest.raises(KeyboardInterrupt) as caught:
        c.next()
    assert not hasattr(caught.value, "__notes__")
    np.testing.assert_array_equal(before.obs, kept)
    with trl.collect(env, act, how=how, envs=ENVS, steps=STEPS) as d:
        d.next()
        for _ in range(2):
            have, want = c.next(), d.next()
            np.testing.assert_array_equal(have.obs, want.obs)
            np.testing.assert_array_equal(have.episodes.returns, want.episodes.returns)
    c.close()
    assert multiprocessing.active_children() == []


# --- failures ----------------------------------------------------------------------------------


def wrong(obs: Any) -> Any:
    return np.zeros((len(obs), 2), np.int32)


def fractions(obs: Any) -> Any:
    return np.full(len(obs), 0.5)


def nan(obs: Any) -> Any:
    made = np.zeros((len(obs), 1), np.float32)
    if obs[2, 2] == 1:
        made[2] = np.nan
    return made


def changing(obs: Any) -> Any:
    return np.zeros(len(obs), np.int32), {"extra": np.zeros((len(obs), int(obs[0, 2]) + 1))}


def narrow(obs: Any) -> Any:
    return np.zeros(len(obs), np.int32), {"extra": np.zeros(2)}


def raising(obs: Any) -> Any:
    raise KeyError("mine")


def four(obs: Any) -> Any:
    return obs, obs, obs, obs


@pytest.mark.parametrize(
    ("policy", "kind", "error", "text"),
    [
        (wrong, "int", ShapeError, r"action is i32\[5, 2\], but the environments expect i32\[5\]"),
        (fractions, "int", ShapeError, r"action is f64\[5\], but the environments expect i32\[5\]"),
        (wrong, "float", ShapeError, r"but the environments expect f32\[5, 1\]"),
        (nan, "float", ExecutionError, "action is NaN at step . of the batch, in environment 2"),
        (
            changing,
            "int",
            ShapeError,
            r"extra is f64\[5, .\] at step ., but needs one row for each of 5",
        ),
        (narrow, "int", ShapeError, r"extra is f64\[2\] at step 0"),
        (raising, "int", KeyError, "mine"),
        (four, "int", ShapeError, "returns 4 arrays"),
    ],
)
def test_policies_that_go_wrong(policy: Any, kind: str, error: Any, text: str) -> None:
    env = trl.env.make(f"gym.{NAME}", act=kind)
    c = trl.collect(env, policy, envs=ENVS, steps=STEPS, how="loop", seed=11)
    with pytest.raises(error, match=text):
        c.next()
    with pytest.raises(ExecutionError, match="the collector is closed: a batch failed"):
        c.next()


def test_an_environment_that_raises_is_named() -> None:
    c = named("loop", raises=10)
    before = c.next()
    kept = np.array(before.obs)
    seeds = distinct_seeds(11, ENVS)
    bad = next(k for k, seed in enumerate(seeds) if seed % 2)
    text = (
        rf"environment {bad} \(seed {seeds[bad]}\) failed at step 2 of the batch, after 9 steps of each: "
        "ValueError: a wheel came off"
    )
    with pytest.raises(EnvError, match=text):
        c.next()
    np.testing.assert_array_equal(before.obs, kept)


def test_a_vector_environment_that_raises_is_not_closed() -> None:
    env = given(AutoresetMode.SAME_STEP, raises=3)
    with pytest.raises(EnvError, match=r"environment \d failed at step 2"):
        trl.collect(env, act, steps=STEPS, how="native", seed=1).next()
    assert not env.closed
    env.close()


def test_nan_that_an_environment_chokes_on_is_the_policys() -> None:
    class Strict(Counting):
        def step(self, action: Any) -> Any:
            assert not np.isnan(action)
            return super().step(action)

    env = SyncVectorEnv([lambda: Strict("float")] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ExecutionError, match="action is NaN at step 1 .* environment 2"):
        trl.collect(env, nan_at_one, how="native", steps=STEPS).next()
    env.close()


def nan_at_one(obs: Any) -> Any:
    made = np.zeros((len(obs), 1), np.float32)
    made[2] = np.nan if obs[:, 2].any() or obs[:, 1].any() else 0
    return made


def without_mode() -> Any:
    env = given(AutoresetMode.SAME_STEP)
    del env.metadata["autoreset_mode"]
    return env


def given_text() -> Any:
    env = given(AutoresetMode.SAME_STEP)
    env.single_observation_space = gymnasium.spaces.Text(3)
    return env


def test_what_is_refused() -> None:
    same = given(AutoresetMode.SAME_STEP)
    rows: list[tuple[str, Any, Any, Any, dict[str, Any]]] = [
        (
            "a Text has no fixed size",
            EnvError,
            given_text(),
            act,
            {},
        ),
        ("does not declare its autoreset mode", EnvError, without_mode(), act, {}),
        ("envs=3, but the vector environment has 5", OptionError, same, act, {"envs": 3}),
        ("a given vector environment", OptionError, same, act, {"how": "loop"}),
        ("is not a supported environment", EnvError, Counting(), act, {}),
        ("SyncVectorEnv", EnvError, Counting(), act, {}),
        ("has no vector implementation", OptionError, "MountainCar-v0", act, {}),
        ("Gymnasium has no such environment", OptionError, "synthetic", act, {"how": "loop"}),
        ("has the arguments (a, b)", OptionError, same, lambda a, b: a, {}),
        ("runs on the host", OptionError, f"gym.{NAME}", trl.policies.random, {"how": "scan"}),
    ]
    for text, error, env, policy, options in rows:
        with pytest.raises(error) as caught:
            trl.collect(env, policy, **({"how": "native"} | options)).next()
        assert text in str(caught.value)


def test_one_environment_one_step_and_all_at_once() -> None:
    env = trl.env.make(f"gym.{NAME}", once=True)
    with trl.collect(env, act, envs=1, steps=1, how="loop") as c:
        made = [c.next() for _ in range(6)]
    assert all(len(b.final) == 1 and b.episodes.lengths.tolist() == [1] for b in made)
    assert [(bool(b.terminated), bool(b.truncated)) for b in made] == [
        (True, False),
        (False, True),
        (True, False),  # the other episode was truncated as well
    ] * 2


def test_memory_is_flat() -> None:
    with trl.collect(f"gym.{NAME}", act, envs=4, steps=16, how="native") as c:
        held = np.zeros(200, np.int64)  # in one array, since Python numbers allocate memory
        tracemalloc.start()
        for k in range(len(held)):
            c.next()
            held[k] = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert held[160:].max() < held[100:120].min() + 5_000  # a batch takes 2 KB or more


# --- EnvPool -----------------------------------------------------------------------------------


def test_without_envpool_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(OptionError, match="EnvPool is not installed: install the extra"):
        trl.collect("CartPole-v1", trl.policies.random, how="threads")
    with pytest.raises(EnvError, match="need EnvPool, which is not installed"):
        trl.collect("envpool.CartPole-v1", trl.policies.random)


def test_envpool_steps_as_cartpole_does() -> None:
    pytest.importorskip("envpool", reason="needs EnvPool: make peers-env")
    env = trl.env.make("envpool.CartPole-v1", max_steps=9)
    ones = lambda obs: np.ones(len(obs), int)  # noqa: E731
    with trl.collect(env, ones, envs=6, steps=25, how="threads", seed=3) as c:
        batches = [c.next(), c.next()]
    with trl.collect(
        trl.env.make("CartPole-v1", max_steps=9), ones, envs=6, steps=25, how="threads", seed=3
    ) as c:
        np.testing.assert_array_equal(c.next().obs, batches[0].obs)
    plain: Any = gymnasium.make("CartPole-v1").unwrapped
    obs = np.concatenate([b.obs for b in batches] + [batches[-1].last_obs[None]])
    valid, ended, cut, reward = (
        np.concatenate([getattr(b, name) for b in batches])
        for name in ("valid", "terminated", "truncated", "reward")
    )
    assert not valid.all() and ended.any() and cut.any() and not (ended & cut).any()
    length = np.zeros(6, int)
    for t in range(50):
        for n in range(6):
            if not valid[t, n]:
                assert (ended | cut)[t - 1, n] and (abs(obs[t + 1, n]) <= 0.05).all()
                length[n] = 0
                continue
            plain.reset()
            plain.state = obs[t, n].astype(np.float64)
            want, _, over, _, _ = plain.step(1)
            length[n] += 1
            np.testing.assert_allclose(obs[t + 1, n], want, atol=1e-5)
            last = length[n] == 9  # EnvPool reports every end as truncation
            assert (ended[t, n], cut[t, n]) == (over and not last, last)
            assert reward[t, n] == 1
    lengths = np.concatenate([b.episodes.lengths for b in batches])
    assert set(lengths) <= {8, 9} and sum(len(b.final) for b in batches) == len(lengths) > 12
