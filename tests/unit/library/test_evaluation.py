"""Evaluation inside a program: plays the learned policy, and changes nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.base.errors import DomainError, EnvError, OptionError, ShapeError
from timerl_nb.env.cartpole import CartPole

BOUNDS = {"B": 4, "I": 10, "T": 16}


def in_epochs() -> trl.Context:
    """A program that learns several epochs per batch, with one layer."""
    with trl.Context("b", "i", "t", "e") as ctx:
        (b, B), (i, I), (t, T), (e, E) = ctx.dims
        ctx.fix(E, 2)
        env = trl.env.make("CartPole-v1")
        dnn = trl.DNNBuilder(domain=(i, e)).from_env(env, hidden=[]).build()
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        a = dnn[i, 0].sample(o)
        o[b, i, t + 1], r, d = env.step(a)
        loss = -dnn(o.detach()).log_prob(a) * r[b, i, t:T].discounted_sum(0.9)
        loss.mean(over=(b, t)).backward()
        trl.optim.SGD(dnn.params, lr=0.1, along=(i, e)).step()
        ctx.output("return", r.sum(over=t).mean(over=b))
    return ctx


MAKERS: dict[str, Callable[[], trl.Context]] = {
    "once": lambda: reinforce(hidden=(8,)),
    "epochs": in_epochs,
}


class Remembering(CartPole):
    """Cart-pole with recorded first states."""

    firsts: list[Any] = []

    def first_state(self, domain: Any) -> Any:
        first = super().first_state(domain)
        self.firsts.append(first)
        return first


def played(state: np.ndarray, act: Callable[[np.ndarray], Any], steps: int) -> float:
    """Return the return of a cart-pole episode from a state, by the published equations."""
    x, v, angle, turning = state.astype(np.float64)
    total = 0.0
    for _ in range(steps):
        seen = np.float32([x, v, angle, turning])
        force = 10.0 if int(act(seen)) == 1 else -10.0
        cos, sin = np.cos(angle), np.sin(angle)
        part = (force + 0.05 * turning**2 * sin) / 1.1
        angular = (9.8 * sin - cos * part) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        linear = part - 0.05 * angular * cos / 1.1
        x, v = x + 0.02 * v, v + 0.02 * linear
        angle, turning = angle + 0.02 * turning, turning + 0.02 * angular
        total += 1.0
        if abs(x) > 2.4 or abs(angle) > 12 * 2 * np.pi / 360:
            break
    return total


@pytest.mark.parametrize(("name", "executor"), [("once", "xla"), ("epochs", "interpret")])
def test_all_else_is_as_without(name: str, executor: str) -> None:
    options = trl.Options(executor=executor)
    without = MAKERS[name]().compile(BOUNDS, options)
    ctx = MAKERS[name]()
    with ctx:
        ctx.output("evaluation", ctx.evaluate("CartPole-v1", 3, every=4, max_steps=20).mean())
    program = ctx.compile(BOUNDS, options)
    want, have = without.execute(seed=2), program.execute(seed=2)
    for one, other in ((want, have), (want.parameters, have.parameters)):
        for key in one:
            np.testing.assert_array_equal(one[key], other[key])
    np.testing.assert_array_equal(have.coordinates["evaluation"]["i"], [3, 7])
    assert have["evaluation"].shape == (2,) and (have["evaluation"] > 1).all()
    # it uses only the memory of the episodes' states
    assert program.memory.peak - without.memory.peak < 1000
    assert program.bounds == {**without.bounds, "EPISODE": 3, "STEP": 20}


def test_returns_are_those_of_plain_play(tmp_path: Path) -> None:
    Remembering.firsts = []
    with reinforce(hidden=(8,), checkpoint=None) as ctx:
        (network,) = [one.network for one in ctx.policies]
        i = ctx.dims[1][0]
        ctx.output("evaluation", ctx.evaluate(Remembering(), 4, every=3, max_steps=60))
        (first,) = Remembering.firsts
        ctx.output("first", first)
        network[(i + 1) % 3 == 0].checkpoint(tmp_path)
    result = ctx.compile({"B": 16, "I": 9, "T": 40}).execute(seed=4)
    at = result.coordinates["evaluation"]["i"]
    np.testing.assert_array_equal(at, [2, 5, 8])
    assert result["evaluation"].shape == (3, 4)
    for k, point in enumerate(at):
        act = result.policy(step=int(point))
        want = [played(state, act, 60) for state in result["first"][point]]
        np.testing.assert_array_equal(result["evaluation"][k], want)
    assert len(np.unique(result["evaluation"])) > 3  # episodes differ


def test_each_evaluation_draws_for_itself() -> None:
    with reinforce(hidden=(8,)) as ctx:
        ctx.output("one", ctx.evaluate("CartPole-v1", 8, max_steps=30))
        ctx.output("drawn", ctx.evaluate("CartPole-v1", 8, max_steps=30, sample=True))
    result = ctx.compile({"B": 2, "I": 3, "T": 5}).execute()
    assert [result[name].shape for name in ("one", "drawn")] == [(3, 8)] * 2
    assert (result["one"] != result["drawn"]).any()
    assert len(ctx.dims) == 3


def test_a_frame_shows_what_is_evaluated_so_far() -> None:
    with reinforce(hidden=(8,)) as ctx:
        ctx.output("evaluation", ctx.evaluate("CartPole-v1", 2, 4, max_steps=9).mean())
    program = ctx.compile(BOUNDS)
    with program.start(paused=True) as run:
        frames = run.frames()
        run.step(5)
        frame = next(f for f in frames if f.state == "paused" and len(f.curves["evaluation"]))
        assert frame.curves["evaluation"].at.tolist() == [3]
        run.resume()
        *_, frame = frames
        result = run.result()
    assert frame.curves["evaluation"].at.tolist() == [3, 7]
    np.testing.assert_array_equal(frame.curves["evaluation"].values, result["evaluation"])


def test_gymnasium_is_played_as_well() -> None:
    with reinforce(hidden=(8,)) as ctx:
        ctx.output("evaluation", ctx.evaluate("gym.CartPole-v1", 2, 5, max_steps=12).mean())
    result = ctx.compile(BOUNDS).execute()
    assert ((result["evaluation"] > 1) & (result["evaluation"] <= 12)).all()


def test_what_cannot_be_evaluated_is_said() -> None:
    ctx = reinforce(hidden=(8,))
    with pytest.raises(DomainError, match="no context is open"):
        ctx.evaluate("CartPole-v1")
    with trl.Context("i"), pytest.raises(DomainError, match="another context is open"):
        ctx.evaluate("CartPole-v1")
    with ctx:
        for given, error, text in (
            ({"episodes": 0}, ShapeError, "the number of episodes must be an integer of at least"),
            ({"every": 0}, ShapeError, "every must be an integer of at least 1"),
            ({"every": 2.5}, ShapeError, "every must be an integer"),
            ({"env": "MountainCar"}, EnvError, "there is no environment"),
            ({"env": 3}, EnvError, "is not an environment"),
            ({"max_steps": 0}, EnvError, "max_steps must be an integer of at least 1"),
        ):
            with pytest.raises(error, match=text):
                ctx.evaluate(**{"env": "CartPole-v1", **given})
    assert ctx.space.names == ("b", "i", "t")  # nothing of it was written
    with trl.Context("b", "i", "t") as other:
        (b, B), (i, I), (t, T) = other.dims
        env = trl.env.make("CartPole-v1")
        network = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[8]).build()
        other.policy(network)
        with pytest.raises(OptionError, match="the policy's network is not trained yet"):
            other.evaluate(env)
    with trl.Context("i") as none, pytest.raises(OptionError, match="steps no environment"):
        none.evaluate("CartPole-v1")
