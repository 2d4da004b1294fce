"""Environments as JAX functions (ours, gymnax's, Brax's), compared step by step with the originals."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_same
from timerl_nb.base.errors import EnvError
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.language.inputs.tensor_sources import random_bits
from timerl_nb.env import jax_environment as jax_native

BOUNDS = {"B": 3, "T": 14}


class Counter(trl.env.JaxEnvironment):
    """Counts by 1, or by 2 and a random number; terminates at 7; its state exceeds its observation."""

    obs_space = trl.env.Box(0, 10, (2,))
    act_space = trl.env.Discrete(2)

    def first(self, key: Any) -> Any:
        luck = jax.random.uniform(key)
        state = {
            "at": {"count": jnp.int32(0), "luck": luck},
            "told": jnp.float32(0),
            "unread": jnp.zeros(100),
        }
        return state, self.seen(state)

    def seen(self, state: Any) -> Any:
        return jnp.stack([state["at"]["count"].astype(jnp.float32), state["at"]["luck"]])

    def after(self, key: Any, state: Any, action: Any) -> Any:
        luck = jnp.where(action == 1, jax.random.uniform(key), state["at"]["luck"])
        count = state["at"]["count"] + 1 + action
        after = {
            "at": {"count": count, "luck": luck},
            "told": state["at"]["luck"],
            "unread": state["unread"] + count,
        }
        return after, self.seen(after), state["told"] + count, count >= 7


def played(env: Any, drawn: Sequence[Any] = ()) -> trl.Context:
    """Return random actions, all outputs of steps, and the recorded draws."""
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        o = trl.like(env.obs_space, domain=(b, t)).named("o")
        o[b, 0] = env.reset(domain=(b,))
        if isinstance(env.act_space, trl.env.Discrete):
            a = trl.random.randint(env.act_space.n, domain=(b, t))
        else:
            a = trl.random.uniform(env.act_space.shape, -1.0, 1.0, domain=(b, t))
        step = env.step(a)
        o[b, t + 1] = step.obs
        every = {
            "o": o,
            "a": a,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "alive": step.alive,
            "final": step.final_obs,
        }
        every |= {f"bits{k}": x for k, x in enumerate(drawn)}
        for name, x in every.items():
            ctx.output(name, x)
    return ctx


@pytest.mark.parametrize("mode", [None, "next_step", "same_step"])
def test_episodes_are_those_of_its_functions(mode: Any) -> None:
    ctx = played(Counter(autoreset=mode, max_steps=6))
    program = ctx.compile(BOUNDS)
    found = program.execute(seed=4)
    assert_same(Reference(ctx.pdg(), BOUNDS, seed=4).outputs(), found, "run")
    assert found["terminated"].any() and found["truncated"].any()
    for b in range(BOUNDS["B"]):
        over, steps, told = False, 0, 0.0
        for t in range(BOUNDS["T"]):
            (count, luck), action = found["o"][b, t], found["a"][b, t]
            alive = found["alive"][b, t]
            assert alive == (not over or mode == "same_step")
            final = found["final"][b, t]
            if alive:
                steps += 1
                np.testing.assert_allclose(found["reward"][b, t], told + final[0], rtol=1e-6)
                assert final[0] == count + 1 + action and (action == 1) == (final[1] != luck)
                assert found["terminated"][b, t] == (final[0] >= 7)
                assert found["truncated"][b, t] == (steps == 6)
                over, told = final[0] >= 7 or steps == 6, float(luck)
            else:
                assert found["reward"][b, t] == 0
                if mode == "next_step":
                    over, steps, told = False, 0, 0.0
                    assert final[0] == 0
                else:
                    assert (final == found["o"][b, t]).all()
            if over and mode == "same_step":
                over, steps, told = False, 0, 0.0
                assert t + 1 == BOUNDS["T"] or found["o"][b, t + 1, 0] == 0
            elif t + 1 < BOUNDS["T"]:
                assert (found["o"][b, t + 1] == final).all()
    lucks = found["final"][..., 1][found["a"] == 1]
    assert mode is None or len(np.unique(lucks)) > len(lucks) // 2


def test_what_no_step_looks_at_is_not_kept() -> None:
    ctx = played(Counter(autoreset="same_step"))
    shapes = {op.shape for op in ctx.pdg() if op.kind == "merge"}
    assert shapes == {(), (2,)}, "unread is of 100"
    names = {op.label for op in ctx.pdg() if op.kind == "merge"}
    assert {"at.count", "at.luck", "told"} <= names


def test_it_is_one_program_and_the_same_by_its_seed() -> None:
    env = Counter(max_steps=5)
    program = played(env.unstarted()).compile(BOUNDS, trl.Options(executor="xla"))
    lowered = program.executable.xla_program
    assert lowered is not None and len(lowered.calls) == 1
    runs = []
    for how in ("scan", "step"):
        with trl.collect(env, trl.policies.random, envs=3, steps=8, seed=2, how=how) as c:
            runs.append([c.next(), c.next()])
    for a, b in zip(*runs, strict=True):
        for name in ("obs", "action", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
        assert set(a.episodes.lengths) <= {4, 5}


class Wrong(Counter):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def seen(self, state: Any) -> Any:
        if self.how == "raises":
            raise ValueError("no such thing")
        return super().seen(state)

    def after(self, key: Any, state: Any, action: Any) -> Any:
        after, *rest = super().after(key, state, action)
        return ({**after, "told": jnp.int32(1)} if self.how == "type" else after), *rest


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("raises", "ValueError: no such thing"),
        ("type", r"told is float32\[\] at first, but int32\[\] after a step"),
    ],
)
def test_functions_that_are_no_environment_are_refused(how: str, text: str) -> None:
    with trl.Context("b"), pytest.raises(EnvError, match=text):
        Wrong(how).reset(domain=("b",))  # here


class Walk(trl.env.JaxEnvironment):
    """Steps of the size of the action; state and action have the same type, to detect an exchange."""

    obs_space = trl.env.Box(low=-1, high=1)
    act_space = trl.env.Box(low=-1, high=1)

    def first(self, key: Any) -> Any:
        s = jax.random.uniform(key)
        return s, s


def _swapped(self: Any, state: Any, action: Any, key: Any) -> Any:
    return state, state, action, state > 9


def _action_first(self: Any, rng: Any, action: Any, state: Any) -> Any:
    return state, state, action, state > 9


def _without_key(self: Any, state: Any, action: Any) -> Any:
    return state, state, action, state > 9


def _five(self: Any, key: Any, state: Any, action: Any) -> Any:
    return state, state, action, state > 9, {}


def _raises(self: Any, k: Any, s: Any, a: Any) -> Any:
    x = s[0]
    return x, x, x, x > 9


def _other_names(self: Any, k: Any, s: Any, a: Any) -> Any:
    return s + a, s + a, a, s > 9


def _more(self: Any, key: Any, state: Any, action: Any, scale: float = 1.0) -> Any:
    return state + action, state, action * scale, state > 9


@pytest.mark.parametrize(
    ("after", "text", "line"),
    [
        (_swapped, "after takes (state, action, key), but is called as after(key, state, act", 0),
        (_action_first, "after takes (rng, action, state), but is called as after(key, st", 0),
        (_without_key, "after takes (state, action), but is called as after(key, state", 0),
        (_five, "after returns 5 values, not (state, observation, reward, terminated)", 0),
        (_raises, "Too many indices", 1),
        (_other_names, "", 0),
        (_more, "", 0),
    ],
)
def test_functions_of_another_signature_are_refused_at_their_line(
    after: Any, text: str, line: int
) -> None:
    env = type("Walks", (Walk,), {"after": after})()
    if not text:
        with trl.collect(env, trl.policies.random, envs=2, steps=3, how="scan") as c:
            assert c.next().obs.shape == (3, 2)
        return
    with pytest.raises(EnvError) as caught:
        trl.collect(env, trl.policies.random, envs=2, steps=3, how="scan").next()
    assert text in str(caught.value)
    code = after.__code__
    assert caught.value.origin.file == code.co_filename
    assert caught.value.origin.line == code.co_firstlineno + line


class Pair(trl.env.Environment):
    """One of our environments, with a state of two tensors."""

    obs_space = trl.env.Box(0, 10, ())
    act_space = trl.env.Discrete(2)
    loses = False

    def first_state(self, domain: Any) -> Any:
        return trl.random.uniform((), domain=domain), trl.random.randint(3, domain=domain)

    def transition(self, state: Any, action: Any) -> Any:
        x, n = state
        after = (x * 0.5, n + action)
        return after[: 1 if self.loses else 2], x, n >= 4

    def observe(self, state: Any) -> Any:
        return state[0] + state[1].cast("f32")


def test_a_state_of_several_tensors() -> None:
    ctx = played(Pair(autoreset="same_step"))
    found = ctx.compile(BOUNDS).execute(seed=1)
    assert_same(Reference(ctx.pdg(), BOUNDS, seed=1).outputs(), found, "run")
    x, n = np.modf(found["o"])
    final_x, final_n = np.modf(found["final"])
    np.testing.assert_allclose(final_x, x * 0.5, atol=1e-6)
    np.testing.assert_array_equal(final_n, n + found["a"])
    np.testing.assert_array_equal(found["terminated"], n >= 4)
    env = Pair()
    env.loses = True
    with pytest.raises(
        EnvError, match="the first state has 2 tensors, but the transition returns 1 tensor"
    ):
        played(env)


@pytest.mark.parametrize("family", ["gymnax", "brax"])
def test_a_library_that_is_not_there_is_named(family: str, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, family, None)
    with pytest.raises(EnvError, match="is not installed") as caught:
        trl.env.make(f"{family}.ant")
    assert f"pip install 'timerl-nb[{family}]'" in caught.value.hint


# --- gymnax and Brax, where they are ---------------------------------------------------------------

# warnings of other libraries are not ours
others = pytest.mark.filterwarnings("ignore")


def gymnax() -> Any:
    return pytest.importorskip("gymnax", reason="gymnax is not installed: make peers-env")


def brax() -> Any:
    return pytest.importorskip("brax.envs", reason="Brax is not installed: make peers-env")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the random bits for the environments' keys."""
    found: list[Any] = []

    def draw(*args: Any, **options: Any) -> Any:
        found.append(random_bits(*args, **options))
        return found[-1]

    monkeypatch.setattr(jax_native, "random_bits", draw)
    return found


def assert_steps(found: trl.Result, first: Any, step: Any, limit: int) -> None:
    """Compare episodes without autoreset, given the same bits and actions.

    Args:
        first: Maps a key to a state and its observation.
        step: Maps key, state and action to the next state, its observation, the reward, and
        termination.
    """
    first, step = jax.jit(first), jax.jit(step)
    key = partial(jax.random.wrap_key_data, impl="threefry2x32")
    lengths = []
    for b in range(BOUNDS["B"]):
        state, seen = first(key(found["bits0"][b]))
        np.testing.assert_allclose(found["o"][b, 0], seen, rtol=1e-5, atol=1e-6)
        for t in range(BOUNDS["T"]):
            state, seen, reward, ended = step(key(found["bits1"][b, t]), state, found["a"][b, t])
            np.testing.assert_allclose(found["final"][b, t], seen, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found["reward"][b, t], reward, rtol=1e-4, atol=1e-6)
            assert found["alive"][b, t] and found["terminated"][b, t] == ended
            assert found["truncated"][b, t] == (t + 1 == limit)
            if ended or t + 1 == limit:
                break
        assert not found["alive"][b, t + 1 :].any()
        lengths.append(t + 1)
    assert min(lengths) >= 4


@others
@pytest.mark.parametrize(
    ("name", "limit", "ends"),
    [("CartPole-v1", 12, False), ("Pendulum-v1", 12, False), ("Catch-bsuite", 13, True)],
)
def test_steps_are_those_of_gymnax(name: str, limit: int, ends: bool, drawn: list[Any]) -> None:
    made, params = gymnax().make(name)
    found = played(trl.env.make(f"gymnax.{name}", max_steps=limit), drawn).compile(BOUNDS).execute()
    endless = params.replace(max_steps_in_episode=10**6)

    def step(key: Any, state: Any, action: Any) -> Any:
        seen, after, reward, ended, _ = made.step_env(key, state, action, endless)
        return after, seen, reward, ended

    assert_steps(found, lambda key: made.reset_env(key, params)[::-1], step, limit)
    assert found["terminated"].any() or not ends


@others
def test_episodes_end_where_those_of_gymnax_do() -> None:
    """By its flag, at every step of consecutive batches."""
    made, params = gymnax().make("CartPole-v1")
    env = trl.env.make("gymnax.CartPole-v1", max_steps_in_episode=20)
    assert env.max_steps == 20 and trl.env.make("gymnax.CartPole-v1").max_steps == 500
    params = params.replace(max_steps_in_episode=20)
    with trl.collect(env, trl.policies.random, envs=4, steps=40, seed=0, how="scan") as c:
        batches = [c.next(), c.next()]
    ended = np.concatenate([b.terminated for b in batches])
    cut = np.concatenate([b.truncated for b in batches])
    lengths = np.concatenate([b.episodes.lengths for b in batches])
    assert (ended | cut).sum() == len(lengths) and ended.any() and cut.any()
    assert lengths.max() == 20 and (lengths == 20).sum() >= cut.sum()
    step = jax.jit(jax.vmap(made.step_env, in_axes=(None, 0, 0, None)))
    state: Any = jax.vmap(made.reset_env, in_axes=(0, None))(
        jax.random.split(jax.random.key(0), 4), params
    )[1]
    names = ("x", "x_dot", "theta", "theta_dot")
    elapsed = np.zeros(4, np.int32)
    for t, (obs, action) in enumerate(
        (o, a) for b in batches for o, a in zip(b.obs, b.action, strict=True)
    ):
        state = state.replace(time=elapsed, **dict(zip(names, np.asarray(obs).T, strict=True)))
        *_, done, _ = step(jax.random.key(0), state, action, params)
        np.testing.assert_array_equal(done, ended[t] | cut[t])
        elapsed = np.where(done, 0, elapsed + 1).astype(np.int32)


@others
def test_reinforce_learns_on_gymnax() -> None:
    gymnax()
    ctx = trl.algorithms.reinforce(
        "gymnax.CartPole-v1", hidden=[16], lr=2e-2, baseline=True, gamma=0.98
    )
    returns = ctx.compile({"B": 32, "I": 40, "T": 120}).execute(seed=0)["return"]
    assert returns[:3].mean() < 35 and returns[-3:].mean() > 70, returns


@others
def test_what_gymnax_has_can_be_made() -> None:
    without = {"MNISTBandit-bsuite", "SimpleBandit-bsuite"}  # a download; it fails in gymnax itself
    for name in sorted({*gymnax().registered_envs} - without):
        env: Any = trl.env.make(f"gymnax.{name}")
        with trl.Context("b", "t"):
            o = env.reset(domain=("b",))
            assert (o.shape, o.dtype) == (env.obs_space.shape, env.obs_space.dtype), name


@others
def test_options_and_names_of_gymnax() -> None:
    gymnax()
    env: Any = trl.env.make("gymnax.CartPole-v1", gravity=3.7)
    assert env._params.gravity == 3.7 and env.unstarted(max_steps=7).max_steps == 7
    assert repr(env).startswith("Environment(gymnax.CartPole-v1: observations Box(")
    with pytest.raises(EnvError, match="no environment 'CartPole'") as caught:
        trl.env.make("gymnax.CartPole")
    assert "CartPole-v1" in caught.value.hint
    with pytest.raises(EnvError, match=r"gymnax.CartPole-v1: TypeError.*colour"):
        trl.env.make("gymnax.CartPole-v1", colour="red")


@others
def test_steps_are_those_of_brax(drawn: list[Any]) -> None:
    made = brax().get_environment("inverted_pendulum", backend="generalized")
    env: Any = trl.env.make("brax.inverted_pendulum", backend="generalized", max_steps=12)
    assert (env.obs_space.shape, env.act_space.shape) == ((4,), (1,))
    found = played(env, drawn).compile(BOUNDS).execute()

    def first(key: Any) -> Any:
        state = made.reset(key)
        return state, state.obs

    def step(_: Any, state: Any, action: Any) -> Any:
        after = made.step(state, action)
        return after, after.obs, after.reward, after.done > 0

    assert_steps(found, first, step, 12)


@others
def test_collecting_from_brax() -> None:
    brax()
    env = trl.env.make("brax.inverted_pendulum", max_steps=3)
    with trl.collect(env, trl.policies.random, envs=2, steps=8, seed=0, how="scan") as c:
        a, b = c.next(), c.next()
    assert a.obs.shape == b.obs.shape == (8, 2, 4)
    obs, ended, cut = (
        np.concatenate([getattr(x, name) for x in (a, b)])
        for name in ("obs", "terminated", "truncated")
    )
    assert cut.sum() >= 4
    begun = []
    for env in range(2):
        elapsed = 0
        for t in range(16):
            begun += [tuple(obs[t, env])] * (elapsed == 0)
            elapsed += 1
            assert cut[t, env] == (elapsed == 3)
            elapsed = 0 if ended[t, env] or cut[t, env] else elapsed
    assert np.abs(begun).max() <= 0.01 and len({*begun}) == len(begun)  # each with separate draws


@others
def test_names_of_brax() -> None:
    brax()
    with pytest.raises(EnvError, match="no environment 'inverted_pendulun'") as caught:
        trl.env.make("brax.inverted_pendulun")
    assert "inverted_pendulum" in caught.value.hint
