"""Failed runs retain the last complete iteration, or report the loss; the next run works."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from tests.failing import are_same, failing, stopped
from tests.reinforce import reinforce
from timerl_nb.base.errors import ExecutionError, TimeRLWarning
from timerl_nb.runtime.run_protocol import changed_already
from timerl_nb.runtime.state.run_progress import SoFar

ROOT = Path(__file__).parents[3]
WAYS = {
    "xla": {"executor": "xla"},
    "fused": {"executor": "xla", "fuse_iterations": 2},
    "interpret": {"executor": "interpret"},
}
_MADE: dict[str, trl.Program] = {}


def learning(way: str) -> trl.Program:
    if way not in _MADE:
        bounds, options = {"B": 4, "I": 12, "T": 8}, trl.Options(**WAYS[way])
        _MADE[way] = reinforce(hidden=(8,)).compile(bounds, options)
    return _MADE[way]


def held() -> int:
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), MemoryError()], ids=repr)
@pytest.mark.parametrize("way", WAYS)
def test_what_fails_ahead_of_a_call_leaves_the_last_turn(way: str, error: BaseException) -> None:
    program = learning(way)
    whole = program.execute(seed=3)
    with failing(program, at=3, within=False, error=error) as lost:
        before = held()
        run = program.start(seed=3)
        run.wait()
        assert run.error is error and lost() == 0
        # even while the error, with its frames, is alive
        assert held() - before < program.memory.peak / 8
    with pytest.raises(type(error)):
        run.result()
    assert run.state == "failed" and run.turn == (6 if way == "fused" else 3)
    assert are_same(run.so_far(), stopped(program, run.turn, seed=3))
    assert are_same(program.execute(seed=3), whole)


@pytest.mark.parametrize("way", WAYS)
def test_what_fails_within_a_call_says_what_it_cost(way: str) -> None:
    program = learning(way)
    whole = program.execute(seed=3)
    with failing(program, at=3, within=True, error=ValueError("no")) as lost:
        run = program.start(seed=3)
        with pytest.raises(ValueError, match="no"):
            run.result()
        assert lost() >= 12  # parameters, and Adam's moments
    names = ", ".join(whole.parameters)
    if way == "interpret":  # no kernel may overwrite the curve
        with pytest.warns(
            TimeRLWarning, match=f"missing after 3 turns; .* reused their memory: {names}"
        ):
            left = run.so_far()
        assert list(left) == ["return"] and not left.parameters
        np.testing.assert_array_equal(left["return"], whole["return"][:3])
    else:
        with pytest.raises(ExecutionError, match="no results are left after") as caught:
            run.so_far()
        assert f"reused their memory: return, {names}" in str(caught.value)
    assert are_same(program.execute(seed=3), whole)


def looked_at(executor: str, look: Callable[..., object]) -> trl.Program:
    """A host function reads the parameters learned in the same iteration."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        layer = trl.nn.Linear(2, 3, domain=(i,))
        x = trl.tensor((2,), "f32", domain=(i, t))
        x[i, 0] = trl.random.normal((2,), domain=(i,))
        x[i, t + 1] = layer(x[i, t]).sum(axis=-1, keepdims=True).tanh() * x
        layer(x[i, T - 1]).square().sum().backward()
        trl.optim.SGD(layer.params, lr=0.1).step()
        ctx.output("x", x[i, T - 1].sum())
        ctx.output(
            "seen", trl.udf(look, layer.weight[trl.min(i + 1, I - 1)].sum(), out="f32", name="look")
        )
    return ctx.compile({"I": 6, "T": 4}, trl.Options(executor=executor, vectorize=False))


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_what_the_turn_that_fails_has_changed_is_not_taken_for_the_last(executor: str) -> None:
    fails: list[bool] = []
    calls: list[Any] = []

    def look(x: Any) -> Any:
        calls.append(x)
        if fails and len(calls) == 4:
            raise ValueError("no")
        return x

    program = looked_at(executor, look)
    whole = program.execute(seed=1)
    calls.clear()
    fails.append(True)
    run = program.start(seed=1)
    with pytest.raises(ExecutionError, match="look raised ValueError"):
        run.result()
    with pytest.warns(TimeRLWarning, match="the failed iteration has .*weight"):
        left = run.so_far()
    assert list(left) == ["x", "seen"] and "weight" not in left.parameters
    for name in left:
        np.testing.assert_array_equal(left[name], whole[name][: run.turn])
    fails.clear()
    assert are_same(program.execute(seed=1), whole)


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_while_a_turn_is_waited_for(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed values are one iteration ahead of the reported ones."""
    program, wait = learning(way), jax.block_until_ready
    whole = program.execute(seed=3)
    told: list[int] = []

    def interrupted(made: Any) -> Any:
        if len(told) == 2:
            raise KeyboardInterrupt
        return wait(made)

    def turned(count: int = 1) -> None:
        told.append(count)

    run = program.begin(seed=3, progress=turned)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "block_until_ready", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.complete()
    lost: dict[str, str] = {}
    left = run.so_far(SoFar(program.executable.progress(), sum(told)), lost=lost)
    assert set(lost) == set(whole.parameters) and set(lost.values()) == {changed_already().what}
    (curve,) = left.values()
    np.testing.assert_array_equal(curve, whole["return"][: sum(told)])
    with pytest.raises(ExecutionError, match="has ended and cannot continue"):
        run.complete()
    run.release()
    assert run.ledger.live == 0
    assert are_same(program.execute(seed=3), whole)


@pytest.mark.parametrize("within", [False, True])
def test_a_step_that_fails_leaves_its_stores(within: bool) -> None:
    program = learning("interpret")
    breaks = failing(program, at=1, within=within, error=ValueError("no"))
    with breaks, pytest.raises(ValueError, match="no"):
        while True:
            program.step(seed=3)
    after, weight = program.stores, "trunk.0.weight"
    assert len(after["r"]) == 8 and (f"{weight}'" in after) != within
    if not within:
        want = stopped(program, 1, seed=3).parameters[weight]
        np.testing.assert_array_equal(after[f"{weight}'"][0], want)
    first = program.step(seed=3)  # starts over
    assert first is not None and len(program.stores) < len(after)
    while program.step() is not None:
        pass


def test_a_run_that_has_not_failed_has_its_result() -> None:
    program = learning("xla")
    with program.start(seed=3, paused=True) as run:
        run.wait()
        with pytest.raises(ExecutionError, match="the run is paused"):
            run.so_far()
        run.resume()
        assert run.result() is run.so_far()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="its limits are Linux's")
def test_lack_of_memory() -> None:
    command = [sys.executable, "-m", "tests.starving"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for one in found.values():
        assert "Out of memory allocating 100" in one["error"] and one["again"]
    assert found["xla"]["turn"] == found["interpret"]["turn"] == 2
    assert "no results are left after 2 turns" in found["xla"]["left"]
    assert found["interpret"]["left"] == "True"
