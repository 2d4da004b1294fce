"""Batches made in the background (`trl.collect(…, ahead=k)`)."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from tests import fake_torch
from tests.counting import NAME
from tests.unit.collecting.test_collecting_interrupts import Interrupts, assert_same
from tests.unit.collecting.test_collecting_owned import overwrite
from timerl_nb.base.errors import EnvError, ExecutionError, OptionError, ShapeError
from timerl_nb.collecting import Batch, Collector

HOWS = ("scan", "step", "loop", "native", "processes")


@cache
def compiled(how: str) -> Collector:
    env = f"{'' if how in ('scan', 'step') else 'gym.'}CartPole-v1"
    policy = trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), hidden=[4])
    return trl.collect(env, policy, envs=3, steps=4, seed=1, how=how)


def made(how: str, ahead: int = 0) -> Collector:
    c = compiled(how).with_seed(1)  # it shares compiled code
    c._ahead = ahead
    return c


def weights_of(c: Collector, number: int) -> dict[str, Any]:
    """Return distinct weights, with the number of their version."""
    return {n: np.float32(number + 1) * np.asarray(w) for n, w in c.weights.items()}


@pytest.mark.parametrize(("how", "ahead"), [*((how, 1) for how in HOWS), ("loop", 2)])
def test_batches_have_the_weights_of_an_earlier_call(how: str, ahead: int) -> None:
    """The sequence equals that of a collector in the foreground under the same older weights."""
    with made(how) as c, made(how, ahead=ahead) as d:
        first = c.weights
        supplied = [{n: (k + 1) * np.asarray(w) for n, w in first.items()} for k in range(5)]
        for k in range(5):
            used = max(0, k - ahead)
            want, have = c.next(params=supplied[used]), d.next(params=supplied[k])
            assert_same(have, want, f"batch {k}")
            np.testing.assert_array_equal(have.log_prob, want.log_prob)
            assert (have.policy_version, d.policy_version) == (used + 1, k + 1)


def test_the_batch_is_made_while_the_caller_works() -> None:
    """The policy waits for the caller, who waits for the policy: without a second thread, it would hang."""
    asked, answered = threading.Semaphore(0), threading.Semaphore(1)

    def policy(obs: Any) -> Any:
        asked.release()
        assert answered.acquire(timeout=60)
        return np.zeros(len(obs), np.int64)

    with trl.collect(f"gym.{NAME}", policy, envs=2, steps=1, how="loop", ahead=1) as c:
        c.next()
        for _ in range(3):
            assert asked.acquire(timeout=60)  # of the returned batch
            answered.release()
            c.next()
        answered.release(5)


@pytest.mark.parametrize("how", ["loop", "scan"])
def test_earlier_batches_stay_as_they_are(how: str) -> None:
    with made(how, ahead=1) as c:
        batches = [c.next() for _ in range(3)]
        copies = [np.array(b.obs) for b in batches]
        overwrite(batches[0].reward)  # the memory is the caller's
        more = [c.next() for _ in range(2)]
        for b, obs in zip(batches, copies, strict=True):
            np.testing.assert_array_equal(b.obs, obs)
            assert (np.asarray(b.reward) == 1.0).all() == (b is not batches[0])
    with made(how) as c:
        assert_same(more[-1], [c.next() for _ in range(5)][-1], "with writes")


def test_an_error_of_the_policy_surfaces_at_its_batch() -> None:
    calls: list[int] = []

    def policy(obs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise ZeroDivisionError("third step")
        return np.zeros(len(obs), np.int64)

    c = trl.collect(f"gym.{NAME}", policy, envs=2, steps=1, how="loop", ahead=1)
    c.next()
    c.next()
    with pytest.raises(ZeroDivisionError, match="third step"):
        c.next()
    with pytest.raises(ExecutionError, match=r"closed: a batch failed \(ZeroDivisionError\)"):
        c.next()
    assert len(calls) == 3  # no batch was made after the error
    c.close()


def test_an_error_in_the_background_names_the_line_of_the_user() -> None:
    c = trl.collect(f"gym.{NAME}", lambda obs: obs[:, 0], envs=2, steps=1, how="loop", ahead=1)
    with pytest.raises(trl.errors.TimeRLError) as caught:
        c.next()
    assert caught.value.origin.file == __file__


def test_a_worker_that_dies_surfaces_at_its_batch() -> None:
    env = trl.env.make(f"gym.{NAME}", dies=5)
    zeros = lambda obs: np.zeros(len(obs), np.int64)  # noqa: E731
    c = trl.collect(env, zeros, envs=2, steps=3, seed=0, how="processes", ahead=1)
    c.next()
    with pytest.raises(EnvError, match="process ended with exit code"):
        c.next()


def test_an_environment_that_raises_in_the_first_step_surfaces_at_the_first_batch() -> None:
    env = trl.env.make(f"gym.{NAME}", raises=1)
    zeros = lambda obs: np.zeros(len(obs), np.int64)  # noqa: E731
    c = trl.collect(env, zeros, envs=2, steps=3, how="loop", ahead=2)
    with pytest.raises(EnvError, match="after 0 steps"):
        c.next()


def test_close_during_a_batch_waits_for_its_end() -> None:
    entered, leave = threading.Event(), threading.Event()
    calls: list[int] = []

    def policy(obs: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            entered.set()
            assert leave.wait(60)
        return np.zeros(len(obs), np.int64)

    c = trl.collect(f"gym.{NAME}", policy, envs=1, steps=1, how="loop", ahead=3)
    c.next()
    assert entered.wait(60)
    threading.Timer(0.05, leave.set).start()
    c.close()
    assert leave.is_set() and len(calls) == 2  # the other requested batches are dropped
    c.close()
    with pytest.raises(ExecutionError, match=r"closed: close\(\) was called"):
        c.next()


def test_a_policy_cannot_ask_its_own_collector() -> None:
    held: list[Collector] = []
    for name in ("next", "close"):
        ask = lambda obs, name=name: getattr(held[-1], name)()  # noqa: E731
        held.append(trl.collect(f"gym.{NAME}", ask, envs=2, steps=2, how="loop", ahead=1))
        with pytest.raises(ExecutionError, match="while the same collector produces a batch"):
            held[-1].next()


def test_a_dropped_collector_ends_its_thread() -> None:
    before = threading.active_count()
    c = made("loop", ahead=1)
    c.next()
    assert threading.active_count() == before + 1
    thread = next(t for t in threading.enumerate() if t.name.startswith("timerl collect"))
    gone = weakref.ref(c)
    del c
    gc.collect()
    assert gone() is None
    thread.join(60)
    assert not thread.is_alive()


def test_two_collectors_in_one_process() -> None:
    with (
        made("scan") as c,
        made("scan", ahead=1) as d,
        made("loop", ahead=1) as e,
        made("loop") as f,
    ):
        for k in range(3):
            assert_same(d.next(), c.next(), f"scan, {k}")
            assert_same(e.next(), f.next(), f"loop, {k}")


@pytest.mark.parametrize("how", ["loop", "scan"])
def test_an_interrupt_loses_no_batch(how: str) -> None:
    with made(how, ahead=1) as whole:
        wanted = [whole.next() for _ in range(4)]
        n = exact = 0
        while True:
            n += 17 if how == "loop" else 7
            with whole.with_seed(1) as c:
                assert_same(c.next(), wanted[0], "before")
                before = sys.gettrace()
                sys.settrace(interrupts := Interrupts(n))
                try:
                    c.next()
                except KeyboardInterrupt:
                    pass
                else:
                    break
                finally:
                    sys.settrace(before)
                for k in (1, 2, 3):
                    assert_same(c.next(), wanted[k], f"{n} lines, at {interrupts.at}")
                exact += 1
    assert exact > 2


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setitem(sys.modules, "torch", fake_torch)
    yield fake_torch


def test_a_module_acts_by_copies_of_its_weights(torch: Any) -> None:
    module = torch.Module()
    with trl.collect(f"gym.{NAME}", module, envs=4, steps=5, how="loop", ahead=1) as c:
        first = c.next()
        weight = np.array([[0], [2], [1]], np.float32)
        module.weight.array[:] = 3  # the learner changes its module in place
        second = c.next(params={"weight": torch.Tensor(weight)})
        third = c.next()
        assert not first.action.any() and not second.action.any() and not module.seen
        np.testing.assert_array_equal(third.action, (third.obs @ weight)[..., 0] % 7)
        with pytest.raises(ShapeError, match="do not fit the module"):
            c.load({"weight": torch.Tensor(np.zeros((4, 1)))})
        assert c.next().policy_version == c.policy_version == 1

    class Alone(fake_torch.Module):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("cannot copy a lock")

    with pytest.raises(OptionError, match="cannot be copied .*: cannot copy a lock"):
        trl.collect(f"gym.{NAME}", Alone(), how="loop", ahead=1)


def test_versions_count_loaded_weights() -> None:
    with made("scan") as c:
        assert c.next().policy_version == 0
        c.load(weights_of(c, 1))
        b = c.next(params=weights_of(c, 2))
        assert b.policy_version == c.policy_version == 2
        assert b.torch is not None and b.numpy().policy_version == 2
        same = jax.tree_util.tree_map(lambda x: x, b)
        other = jax.tree_util.tree_map(lambda x: x + 0, b)
        assert (same.policy_version, other.policy_version) == (2, None)
        with pytest.raises(ShapeError):
            c.load({})
        assert c.policy_version == 2  # refused weights do not count
        assert c.with_seed(3).next().policy_version == 2


def test_ahead_is_checked() -> None:
    for wrong in (-1, 1.5, "1"):
        with pytest.raises(ShapeError, match="ahead, the number of batches made in advance"):
            trl.collect("CartPole-v1", trl.policies.random, ahead=wrong)  # type: ignore[arg-type]


def test_counts_and_speed_are_those_of_the_strategy() -> None:
    with made("scan", ahead=1) as c, made("scan") as d:
        assert c.counts == d.counts
        c.next()
        assert c.counts.calls == 1 and isinstance(c.next(), Batch)
