"""Programs whose kernels NumPy runs: `tests/numpy_engine.py` shows that the protocol suffices for a third engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.engines import offer_numpy, poisoned_namespace
from tests.numpy_engine import make_engine
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from tests.unit.checks import Expected, assert_memory_is_sound, leaving
from timerl_nb.base.errors import ExecutionError
from timerl_nb.base.runtime_events import Event
from timerl_nb.runtime.engine import load_engine
from timerl_nb.runtime.interpreter.interpreter import Run

BOUNDS = {"B": 2, "I": 3, "T": 4}


@pytest.fixture(autouse=True)
def _numpy_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    offer_numpy(monkeypatch)


def compiled(ctx: trl.Context, bounds: Mapping[Any, Any], **options: Any) -> trl.Program:
    return ctx.compile(bounds, trl.Options(backend="numpy", **options))


def assert_agreement(program: trl.Program, expected: Expected) -> None:
    """Check the values and the memory of a run."""
    assert program.executable.how == "interpreted by NumPy"
    events: list[Event] = []
    result = program.execute(seed=3, progress=False, on_event=events.append)
    expected.assert_same(result, "NumPy")
    expected.assert_same(result.parameters, "NumPy", "parameter")
    assert_memory_is_sound(program, result, events)


@pytest.mark.parametrize("window", [None, 3])
def test_reinforce_has_the_curve_of_jax(window: int | None) -> None:
    program = compiled(reinforce(window, hidden=(8,), baseline=False), BOUNDS)
    own = program.execute(seed=1, progress=False)
    jax = program.with_options(backend="jax", executor="interpret").execute(seed=1, progress=False)
    np.testing.assert_allclose(own["return"], jax["return"], rtol=1e-5)
    for name, value in jax.parameters.items():
        np.testing.assert_allclose(own.parameters[name], value, rtol=2e-3, atol=2e-4)
    assert own.memory.peak == jax.memory.peak


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"vectorize": False},
    {"vectorize": False, "donate": False},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "name",
    [
        "suffix",
        "work_on_a_window",
        "categorical",
        "windows_of_itself",
        "positions_that_move",
        "reductions_over_dimensions",
    ],
)
def test_patterns_agree_with_the_reference(name: str, options: dict[str, Any]) -> None:
    ctx, bounds = PATTERNS[name].context(), PATTERNS[name].bounds
    assert_agreement(compiled(ctx, bounds, **options), Expected(ctx.pdg(), bounds, 3))


def test_dead_values_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "_namespace", poisoned_namespace)
    for window in (None, 2):
        ctx, bounds = reinforce(window, hidden=(4,), baseline=False), {"B": 2, "I": 2, "T": 4}
        assert_agreement(compiled(ctx, bounds), Expected(ctx.pdg(), bounds, 3))


def test_results_share_no_memory() -> None:
    x = np.arange(6.0).reshape(2, 3)
    made = make_engine(None, compiled=False).own([x, x.T, x[0], np.broadcast_to(x[0], (2, 3)), x])
    for k, one in enumerate(made):
        assert one.base is None and one.flags.c_contiguous and one.flags.writeable
        assert not any(np.shares_memory(one, other) for other in (x, *made[:k]))


def test_values_wait_on_the_host() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((8,), domain=(t,))
        x[0] = trl.random.normal((8,))
        x[t + 1] = (x * 1.5).sin()
        ctx.output("y", x * x[T - 1 - t])
    roomy = compiled(ctx, {"T": 12}, vectorize=False)
    program = roomy.with_options(device_memory=leaving(roomy, 0.8))
    assert program.memory.swaps.all
    assert_agreement(program, Expected(ctx.pdg(), {"T": 12}, 3))


def test_half_precision_agrees_with_the_reference() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(np.linspace(0, 1, 3000, dtype=np.float32).reshape(3, 1000), domain=t)
        ctx.output("mean", x.cast("bf16").mean(axis=0))
        ctx.output("greatest", x.cast("f16")[0 : t + 1].max(axis=0).exp())
    assert_agreement(compiled(ctx, {"T": 3}), Expected(ctx.pdg(), {"T": 3}, 3))


@pytest.mark.parametrize("turn", [5, 2**32 - 1, 2**40 + 7])
def test_draws_receive_the_true_iteration(turn: int) -> None:
    """A kernel's coordinate along an unbounded dimension has 31 bits, and other words the rest."""
    with trl.Context("b", "i") as ctx:
        (b, B), (i, I) = ctx.dims
        ctx.output("x", trl.random.bits((3,), domain=(b, i)))
    (draw,) = (op for op in ctx.pdg() if op.kind == "rng")
    point = {"b": 1, "i": turn % 2**30}
    words = tuple(np.array([word], np.uint32) for word in (point["i"], turn % 2**32, turn >> 32))
    found: list[np.ndarray] = []
    for library in (load_engine("jax"), load_engine("numpy")):
        seed = library.seed_words(2**35 + 1)
        how = {"endless": "i", "turn": words}
        scope = library.scope({}, point, seed, lambda size: size, lambda size: False, **how)
        found.append(library.to_numpy(library.compute(scope, draw, (), ())))
    np.testing.assert_array_equal(*found)


def test_the_first_nan_is_found() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", (2.5 - trl.value(t).cast("f32")).sqrt())
    with pytest.raises(ExecutionError, match=r"\(sqrt\) at t = 3"):
        compiled(ctx, {"T": 5}, check_nan=True).execute(progress=False)
