"""Interrupts at every line of a collector, and threads that share one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.counting import NAME
from timerl_nb.base.errors import ExecutionError
from timerl_nb.collecting import Batch, Collector

OURS = (
    "collecting/",
    "execution/control/unbounded_iterations.py",
    "env/vector_environments.py",
    "runtime/xla/execution/lowered_run.py",
    "runtime/interpreter/interpreter.py",
)
ARRAYS = ("obs", "action", "reward", "terminated", "truncated", "last_obs")
BATCHES = 5


class Interrupts:
    """Raises KeyboardInterrupt at the n-th executed line of ours in this thread."""

    def __init__(self, n: int) -> None:
        self.left, self.at = n, ""

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        return self.line if "timerl_nb/" in name and any(part in name for part in OURS) else None

    def line(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self.left -= 1
            if not self.left:
                sys.settrace(None)
                self.at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self.line


def made(how: str) -> Collector:
    if how in ("scan", "step"):
        policy = trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), hidden=[4])
        return trl.collect("CartPole-v1", policy, envs=3, steps=4, seed=1, how=how)
    if how == "native":
        return trl.collect("gym.CartPole-v1", trl.policies.random, envs=3, steps=4, how=how)
    return trl.collect(f"gym.{NAME}", trl.policies.random, envs=3, steps=4, how=how)


def assert_same(have: Batch, want: Batch, where: str) -> None:
    for name in ARRAYS:
        x, y = np.asarray(getattr(have, name)), np.asarray(getattr(want, name))
        np.testing.assert_array_equal(x, y, err_msg=f"{name}, {where}")
    np.testing.assert_array_equal(have.episodes.returns, want.episodes.returns, err_msg=where)
    np.testing.assert_array_equal(have.final.obs, want.final.obs, err_msg=where)


@pytest.mark.parametrize(("how", "every"), [("loop", 3), ("native", 3), ("scan", 7), ("step", 41)])
def test_an_interrupt_at_any_line_leaves_a_collector_to_go_on(how: str, every: int) -> None:
    """Batches equal those without an interrupt, unless environments are reset."""
    with made(how) as c:
        wanted = [c.next() for _ in range(BATCHES)]
        whole = c  # its compiled program is shared
        n, exact, anew = 1, 0, 0
        while True:
            one = whole.with_seed(seed=whole._task.seed)
            ahead = (n // every) % 2  # within the first batch, or the next one
            for k in range(ahead):
                assert_same(one.next(), wanted[k], "before")
            interrupts = Interrupts(n)
            before = sys.gettrace()
            sys.settrace(interrupts)
            try:
                one.next()
            except KeyboardInterrupt as error:
                notes = getattr(error, "__notes__", [])
            else:
                break  # no lines are left
            finally:
                sys.settrace(before)
            if notes:  # within a step of the environments
                assert "env/" in interrupts.at or "host_stepping.py" in interrupts.at
                assert "all of them begin new episodes" in notes[0]
                first, second = one.next(), one.next()
                np.testing.assert_array_equal(first.last_obs, second.obs[0])
                anew += 1
            else:
                for k in range(ahead, ahead + 3):
                    assert_same(one.next(), wanted[k], f"{n} lines, at {interrupts.at}")
                exact += 1
            one.close()
            n += every
        one.close()
    assert exact > 3 and (anew > 0) == (how in ("loop", "native"))


def test_weights_that_come_after_an_interrupt_are_acted_by(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    with made("scan") as c, made("scan") as d:
        right = {n: 0 * w for n, w in c.weights.items()}
        right["actor.bias"] = np.array([-100, 100], np.float32)
        assert_same(c.next(), d.next(), "before")
        monkeypatch.setattr("timerl_nb.runtime.jax_backend.arrays_and_devices.wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            c.next()
        monkeypatch.undo()
        b = c.next(params=right)
        assert (np.asarray(b.action) == 1).all()
        assert_same(b, d.next(params=right), "after")


@pytest.mark.parametrize("how", ["loop", "scan"])
def test_threads_take_turns(how: str) -> None:
    with made(how) as c:
        wanted = [c.next() for _ in range(24)]
        found, failed = list[Batch](), list[BaseException]()
        one = c.with_seed(seed=c._task.seed)

        def collect() -> None:
            try:
                for _ in range(6):
                    found.append(one.next())
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=collect) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        one.close()
    assert not failed and len(found) == 24
    known = {np.asarray(b.obs).tobytes(): b for b in found}
    for want in wanted:
        assert_same(known[np.asarray(want.obs).tobytes()], want, "threads")


def test_a_policy_cannot_ask_its_own_collector() -> None:
    held: list[Collector] = []
    ask: Callable[[Any], Any] = lambda obs: held[0].next()  # noqa: E731
    c = trl.collect(f"gym.{NAME}", ask, envs=2, steps=2, how="loop")
    held.append(c)
    with pytest.raises(ExecutionError, match="while the same collector produces a batch"):
        c.next()
