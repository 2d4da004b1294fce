"""Every public array argument takes lossless types, and refuses the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from ml_dtypes import bfloat16

import timerl_nb as trl
from timerl_nb.base.errors import TimeRLError, TimeRLWarning
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.replay import Replay, SumTree

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", bfloat16, "float32", "float64"]
# non-numeric arrays, or numbers that would lose precision
STRANGE: dict[str, Any] = {
    "complex": np.array([1 + 2j, 1]),
    "text": np.array(["1", "1"]),
    "list of text": ["1", "1"],
    "bytes": np.array([b"1", b"1"]),
    "objects": np.array([1, None], object),
    "mixed list": [1, "1"],
    "times": np.array(["2026-01-01", "2026-01-02"], "datetime64[D]"),
    "durations": np.array([1, 1], "timedelta64[s]"),
    "ragged": [[1], [1, 2]],
    "wide integers": [2**70, 1],
}
FRACTIONS = [
    [1.7, 1.0],
    np.array([1.0, 1.0], np.float32),
    [np.nan, 1.0],
    np.array([1, 1], bfloat16),
]


def buffer(kind: str = "f32", **options: Any) -> Replay:
    made = Replay(4, {"x": ((), kind)}, priority=trl.replay.Proportional(1.0, 0.0), **options)
    made.insert({"x": np.zeros(4, made.fields["x"].dtype)}, errors=[1.0, 2.0, 3.0, 4.0])
    return made


def updated(errors: Any) -> Any:
    b = buffer()
    b.update(b.sample(2).ticket, errors)
    return b.tree.priorities


def given(dtype: str) -> Callable[[Any], Any]:
    def take(x: Any) -> Any:
        with trl.Context("i") as ctx:
            ((i, I),) = ctx.dims
            ctx.output("y", trl.given("g", (), dtype, domain=(i,)) + 0)
        return ctx.compile({I: 2}).execute(given={"g": x}, progress=False)["y"]

    return take


def returned(dtype: str) -> Callable[[Any], Any]:
    def take(x: Any) -> Any:
        with trl.Context("t") as ctx:
            ((t, T),) = ctx.dims
            ctx.output("y", trl.udf(lambda _: x, trl.value(t), out=((2,), dtype)))
        return ctx.compile({T: 1}).execute(progress=False)["y"]

    return take


def loaded(x: Any) -> Any:
    with trl.Context("t"):
        trl.nn.Linear(2, 1).load({"linear.weight": [[one] for one in x], "linear.bias": [0.0]})
    return x


def data(dtype: str | None) -> Callable[[Any], Any]:
    def take(x: Any) -> Any:
        with trl.Context("t") as ctx:
            ((t, T),) = ctx.dims
            ctx.output("y", trl.data(x, domain=t, dtype=dtype))
        return ctx.compile({T: 2}).execute(progress=False)["y"]

    return take


def tree() -> SumTree:
    made = SumTree(4)
    made.update([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    return made


def written(x: Any) -> None:
    """Write through a thread's writer; return its staged entries."""
    made = buffer()
    with made.actor(2) as put:
        put({"x": x})
    made.insert_entries({"x": x})


@pytest.fixture(scope="module", name="collector")
def collectors() -> Iterator[Any]:
    env = trl.env.make("CartPole-v1")
    policy = trl.DNNBuilder().from_env(env, hidden=[])
    with trl.collect(env, policy, envs=2, steps=1, how="scan") as c:
        yield c


def weights(collector: Any, x: Any) -> Any:
    values = {n: np.zeros(w.shape, np.float32) for n, w in collector.weights.items()}
    (name,) = (n for n, w in values.items() if w.shape == (2,))
    collector.load({**values, name: x})
    return np.asarray(collector.weights[name])


def extras(x: Any) -> Any:
    env = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    with trl.collect(env, lambda obs: (np.zeros(2, int), {"e": x}), steps=1, how="native") as c:
        return c.next().e


Take = Callable[[Any], Any]
NUMBERS: dict[str, Take] = {  # floating-point arguments
    "insert": lambda x: buffer().insert({"x": x}),
    "insert, errors": lambda x: buffer().insert({"x": [0.0, 0.0]}, errors=x),
    "update, errors": updated,
    "SumTree.update, priority": lambda x: tree().update([0, 1], x),
    "SumTree.insert, priority": lambda x: tree().insert(0, x),
    "SumTree.entries_at": lambda x: tree().entries_at(x),
    "Proportional.from_errors": lambda x: trl.replay.Proportional().from_errors(x),
    "actor": written,
    "given": given("f32"),
    "udf": returned("f32"),
    "load": loaded,
    "data": data("f32"),
}
POSITIONS: dict[str, Take] = {  # index arguments
    "SumTree.update": lambda x: tree().update(x, 1.0),
    "SumTree.retrieve": lambda x: tree().retrieve(x),
}
SERIALS: dict[str, Take] = {"ticket": lambda x: buffer().ticket(x)}
COUNTS: dict[str, Take] = {  # 32-bit integers
    "insert": lambda x: buffer("i32").insert({"x": x}),
    "given": given("i32"),
    "udf": returned("i32"),
}
QUICK = [n for n in NUMBERS if n not in ("given", "udf", "load", "data")]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_no_number_is_refused(name: str, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TimeRLError):
            NUMBERS[name](STRANGE[kind])


@pytest.mark.parametrize("name", POSITIONS | COUNTS | SERIALS)
@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_no_integer_is_refused(name: str, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TimeRLError):
            (POSITIONS | COUNTS | SERIALS)[name](STRANGE[kind])


@pytest.mark.parametrize("name", POSITIONS | COUNTS)
def test_fractions_are_no_integers(name: str) -> None:
    for x in FRACTIONS:
        with pytest.raises(TimeRLError):
            (POSITIONS | COUNTS)[name](x)


@pytest.mark.parametrize("name", POSITIONS)
def test_positions(name: str) -> None:
    for kind in INTEGERS:
        POSITIONS[name](np.array([1, 3], kind))
    POSITIONS[name]([])
    for wrong, said in (
        ([True, False], "flatnonzero"),
        ([4, 0], "out of range for 4 entries"),
        ([-1, 0], "out of range for 4 entries"),
        (np.array([2**63, 0], np.uint64), "integers"),
    ):
        with pytest.raises(TimeRLError, match=said):
            POSITIONS[name](wrong)


@pytest.mark.parametrize("name", QUICK)
def test_numbers_of_every_type(name: str) -> None:
    for kind in [*INTEGERS, *FLOATS, bool]:
        NUMBERS[name](np.array([1, 0], kind))


@pytest.mark.parametrize("name", COUNTS)
def test_integers_that_do_not_fit_are_refused(name: str) -> None:
    COUNTS[name](np.array([2**31 - 1, -(2**31)], np.int64))
    for wrong in ([2**31, 0], [2**40 + 1, 0], [-(2**40), 0]):
        with pytest.raises(TimeRLError, match="do not fit"):
            COUNTS[name](np.array(wrong))


@pytest.mark.parametrize("name", ["insert", "given", "udf", "load", "data"])
def test_numbers_that_become_infinite_are_warned_of(name: str) -> None:
    with pytest.warns(TimeRLWarning, match="infinite"):
        NUMBERS[name](np.array([1e300, 1.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NUMBERS[name](np.array([np.inf, 1 / 3]))


@pytest.mark.parametrize("kind", STRANGE)
def test_weights_and_extras_are_numbers(kind: str, collector: Any) -> None:
    for take in (extras, lambda x: weights(collector, x)):
        with pytest.raises(TimeRLError):
            take(STRANGE[kind])


def test_weights_of_every_type(collector: Any) -> None:
    for kind in [*INTEGERS, *FLOATS, bool]:
        assert weights(collector, np.array([1, 0], kind)).tolist() == [1.0, 0.0]
    assert weights(collector, np.array([2**40, 0])).tolist() == [2.0**40, 0.0]


def test_nothing_changes_where_an_argument_is_refused() -> None:
    made = tree()
    for wrong in ([1.7], ["1"], [True]):
        with pytest.raises(TimeRLError):
            made.update(wrong, 9.0)
    with pytest.raises(TimeRLError):
        made.update([1], [1j])
    assert made.priorities.tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("kind", ["bool", "i8", "u8", "i16", "i32", "i64", "f16", "f32", "f64"])
def test_returns_of_several_steps_have_fractions(kind: str) -> None:
    fields = {"obs": ((), "f32"), "reward": ((), kind), "next_obs": ((), "f32"),
              "terminated": ((), "bool")}  # fmt: skip
    made = Replay(8, fields, n_step=3, gamma=0.5)
    for k in range(5):
        made.insert({"obs": [float(k)], "reward": np.array([1]).astype(NUMPY[kind]),
                     "next_obs": [k + 1.0], "terminated": [k == 4]})  # fmt: skip
    rows = made.sample(64)
    by_length = {3: (1.75, 0.125), 2: (1.5, 0.25), 1: (1.0, 0.5)}
    for obs, reward, discount in zip(rows["obs"], rows["reward"], rows["discount"], strict=True):
        assert (reward, discount) == by_length[min(3, 5 - int(obs))]
    assert len(set(rows["obs"].tolist())) == 5
    assert made.fields["discount"].dtype.kind == "f"


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint8, np.int32])
def test_discounts_over_integers_in_programs(kind: type) -> None:
    r = np.array([1, 1, 0, 1]).astype(kind)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(r, domain=t)
        ctx.output("whole", x[t:T].discounted_sum(0.5))
        ctx.output("steps", x[t : trl.min(t + 2, T)].discounted_sum(0.5))
        ctx.output("scan", trl.constant(r).linear_scan(np.array([0, 1, 0, 1]).astype(kind)))
        advantage = trl.tensor((), domain=t)
        advantage[t == T - 1] = x.floating()
        advantage[t < T - 1] = x + 0.5 * advantage[t + 1]
        ctx.output("advantage", advantage)
    made = ctx.compile({T: 4}).execute(progress=False)
    want = [1.625, 1.25, 0.5, 1.0]
    assert made["whole"].tolist() == made["advantage"].tolist() == want
    assert made["steps"].tolist() == [1.5, 1.0, 0.5, 1.0]
    assert made["scan"].tolist() == [1.0, 2.0, 0.0, 1.0]
