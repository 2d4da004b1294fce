"""All inputs and outputs preserve values: out-of-range integers are refused, infinities cause a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import timerl_nb as trl
from timerl_nb.base.errors import TimeRLError, TimeRLWarning
from timerl_nb.replay import Replay

WIDE = 2**40 + 1
HUGE = 1e300


class Wide(gymnasium.Env[Any, Any]):
    """Observations of 64 bits: integers, or floats with equally large rewards."""

    def __init__(
        self, kind: str, value: float, start: float = 0, space: str = "", reward: Any = 0.0
    ) -> None:
        ends = (-(2**62), 2**62) if kind == "int64" else (-np.inf, np.inf)
        ends = (0, 100) if space else ends
        self.observation_space = spaces.Box(*ends, (2,), np.dtype(space or kind).type)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self._kind, self._value, self._start = kind, value, start
        self._reward = float(value) if reward == 0.0 else reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.array([self._start, 5], self._kind), {}

    def step(self, action: Any) -> Any:
        return np.array([self._value, 5], self._kind), self._reward, False, False, {}


gymnasium.register(id="Wide-v0", entry_point=f"{__name__}:Wide", disable_env_checker=True)


def wide(**options: Any) -> Any:
    return trl.env.make("gym.Wide-v0", **options)


def narrow(value: float, how: str, space: str = "int32") -> Any:
    """Collect observations of a space with fewer bits."""
    env = wide(
        kind="float64" if space == "float32" else "int64", value=value, space=space, reward=1.0
    )
    with trl.collect(env, still, envs=count_of(how), steps=2, how=how, seed=0) as c:
        return c.next().obs[1]


def count_of(how: str) -> int:
    """Return a number of environments: a process takes seconds to begin."""
    return 1 if how == "processes" else 2


def still(obs: Any) -> Any:
    return np.zeros((len(obs), 1), np.float32)


def collected(kind: str, value: float, how: str, start: float = 0, **more: Any) -> Any:
    options = {"kind": kind, "value": value, "start": start, **more}
    env = wide(**options)
    if how == "native":
        env = SyncVectorEnv([lambda: Wide(**options)] * 2)
    with trl.collect(env, still, envs=count_of(how), steps=2, how=how, seed=0) as c:
        return c.next()


def in_program(kind: str, value: float, start: float = 0, **options: Any) -> Any:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        env = wide(kind=kind, value=value, start=start, **options)
        o = trl.like(env.obs_space, domain=(b, t))
        o[b, 0] = env.reset(domain=(b,))
        step = env.step(trl.random.uniform((1,), domain=(b, t)))
        o[b, t + 1] = step.obs
        ctx.output("o", o)
        ctx.output("r", step.reward)
    return ctx.compile({B: 1, T: 3}).execute(progress=False)


def value_of(make: Callable[[Any], Any], x: Any) -> Any:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", make((x, t)))
    return ctx.compile({T: 2}).execute(progress=False)["y"]


def given(x: Any, dtype: str) -> Any:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        ctx.output("y", trl.given("g", (), dtype, domain=(i,)) + 0)
    return ctx.compile({I: 2}).execute(given={"g": np.array([x, 3])}, progress=False)["y"]


def exchanged(x: Any, kind: str) -> Any:
    buffer = Replay(4, {"x": ((), kind)})
    buffer.insert({"x": np.full(4, x)})
    return buffer.sample(2).jax()["x"]


def acted(action: Any) -> Any:
    """Collect with an action of another type than the environment's."""
    env = SyncVectorEnv([lambda: Wide("float32", 0)] * 2)
    with trl.collect(env, lambda obs: np.full((2, 1), action), steps=2, how="native") as c:
        return c.next().action


def extra(x: Any, first: Any = 0.0) -> Any:
    """Collect with an extra of another type than the first one's."""
    seen = iter([first, x])
    env = SyncVectorEnv([lambda: Wide("float32", 0)] * 2)

    def policy(obs: Any) -> Any:
        return still(obs), {"extra": np.full(2, next(seen))}

    with trl.collect(env, policy, steps=2, how="native") as c:
        return c.next().extra


def weights(x: Any) -> Any:
    policy = trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), hidden=[])
    with trl.collect("CartPole-v1", policy, envs=2, steps=2, how="scan") as c:
        values = {n: np.zeros(s.shape) for n, s in c.weights.items()}
        name = next(iter(values))
        values[name] = np.full(values[name].shape, x)
        c.load(values)
        return c.weights[name]


def loaded(x: Any) -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        arrays = {"linear.weight": np.full((1, 1), x), "linear.bias": np.zeros(1)}
        trl.nn.Linear(1, 1, domain=(i,)).load(arrays)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "loop, first": lambda x: collected("int64", 0, "loop", x),
    "loop": lambda x: collected("int64", x, "loop"),
    "native": lambda x: collected("int64", x, "native"),
    "processes": lambda x: collected("int64", x, "processes"),
    "loop, int32 space": lambda x: narrow(x, "loop"),
    "processes, int32 space": lambda x: narrow(x, "processes"),
    "program": lambda x: in_program("int64", x),
    "program, first": lambda x: in_program("int64", 0, x),
    "data": lambda x: value_of(lambda at: trl.data([at[0]] * 2, domain=at[1]), x),
    "constant": lambda x: value_of(lambda at: trl.constant(np.array(at[0])) + trl.value(at[1]), x),
    "given": lambda x: given(x, "i32"),
    "udf": lambda x: value_of(
        lambda at: trl.udf(lambda _: np.asarray(at[0]), trl.value(at[1]), out="i32"), x
    ),
    "insert": lambda x: Replay(4, {"x": ((), "i32")}).insert({"x": np.full(4, x)}),
    "jax": lambda x: exchanged(x, "i64"),
}
WARNED: dict[str, Callable[[Any], Any]] = {
    "loop": lambda x: collected("float64", x, "loop"),
    "native": lambda x: collected("float64", x, "native"),
    "loop, float32 space": lambda x: narrow(x, "loop", "float32"),
    "program": lambda x: in_program("float64", x),
    "data": lambda x: value_of(lambda at: trl.data([at[0]] * 2, domain=at[1]), x),
    "constant": lambda x: value_of(lambda at: trl.constant(np.array(at[0])) + trl.value(at[1]), x),
    "given": lambda x: given(x, "f32"),
    "udf": lambda x: value_of(
        lambda at: trl.udf(lambda _: np.asarray(at[0]), trl.value(at[1]), out="f32"), x
    ),
    "insert": lambda x: Replay(4, {"x": ((), "f32")}).insert({"x": np.full(4, x)}),
    "jax": lambda x: exchanged(x, "f64"),
    "action": acted,
    "extra": lambda x: extra(x),
    "weights": weights,
    "load": loaded,
}


@pytest.mark.parametrize("name", REFUSED)
def test_integers_that_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(TimeRLError, match=r"(do|does) not fit"):
        REFUSED[name](WIDE)
    if "processes" not in name:  # they are reset at each call
        REFUSED[name](2**31 - 1)


@pytest.mark.parametrize("name", WARNED)
def test_finite_numbers_that_become_infinite_are_warned_of(name: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        WARNED[name](HUGE)
    ours = [one for one in told if issubclass(one.category, TimeRLWarning)]
    assert any("infinite" in str(one.message) for one in ours)
    assert len({str(one.message) for one in ours}) == len(ours)  # each once
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WARNED[name](1 / 3)  # rounding is silent


def test_an_extra_of_another_kind_than_the_first_is_refused() -> None:
    with pytest.raises(TimeRLError, match="float64 does not fit into int64"):
        extra(0.5, first=0)


@pytest.mark.parametrize(
    ("how", "spaces"), [("loop", ("uint8", "int16", "uint32")), ("processes", ("int16",))]
)
def test_integers_that_fit_into_the_space_are_kept(how: str, spaces: tuple[str, ...]) -> None:
    for space in spaces:
        obs = narrow(100, how, space)
        assert obs.dtype == space and obs.tolist() == [[100, 5]] * count_of(how)


def test_processes_tell_of_numbers_that_become_infinite() -> None:
    with pytest.warns(TimeRLWarning, match="observations exceed .* infinite"):
        obs = narrow(HUGE, "processes", "float32")
    assert obs.tolist() == [[np.inf, 5]]


REWARDS = {
    "loop": lambda x: collected("float32", 0, "loop", reward=x).reward[0, 0],
    "program": lambda x: in_program("float32", 0, reward=x)["r"][0, 0],
}


@pytest.mark.parametrize("name", REWARDS)
def test_rewards_are_numbers(name: str) -> None:
    for one in (None, "a", [1.0, 2.0], 1j):
        with pytest.raises(TimeRLError, match=r"its reward is \w+, not a number"):
            REWARDS[name](one)
    for one in (2, np.float64(2), np.array([2.0]), np.int64(2)):
        assert REWARDS[name](one) == 2.0
