"""Conditional tensors compared with NumPy: values, coordinates, reductions, gradients, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.patterns import values
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.runtime.state.checkpoint_reader import load

X = values(2, 7)


def run(write: Any, **options: Any) -> Any:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        write(ctx, trl.data(X, domain=(b, t)), b, B, t, T)
    return ctx.compile({"B": 2, "T": 7}, trl.Options(**options)).execute()


@pytest.mark.parametrize("vectorize", [True, False])
def test_an_output_says_where_its_values_are(vectorize: bool) -> None:
    result = run(
        lambda ctx, x, b, B, t, T: ctx.output("y", (x * 2)[(t % 3 == 1) & (b + t > 1)]),
        vectorize=vectorize,
    )
    rows, columns = np.array([0, 1, 1]), np.array([4, 1, 4])
    np.testing.assert_array_equal(result.coordinates["y"]["b"], rows)
    np.testing.assert_array_equal(result.coordinates["y"]["t"], columns)
    np.testing.assert_allclose(result["y"], X[rows, columns] * 2)


def test_coordinates_are_of_conditional_outputs_alone() -> None:
    def write(ctx, x, b, B, t, T):
        ctx.output("whole", x)
        ctx.output("none", x[t > 50])

    result = run(write)
    assert set(result.coordinates) == {"none"}
    assert result["none"].shape == (0,)
    assert result["none"].dtype == np.float32
    assert [x.shape for x in result.coordinates["none"].values()] == [(0,), (0,)]


def test_reductions_are_of_the_defined_points() -> None:
    def write(ctx, x, b, B, t, T):
        c = x[(t > 2) & (b + t != 4)]
        ctx.output("mean", c.mean(over=t))
        ctx.output("max", c.max(over=(b, t)))
        ctx.output("prod", c.prod(over=t))
        ctx.output("by t", x[t > 4].mean(over=b))

    result = run(write)
    held = [[3, 5, 6], [4, 5, 6]]
    np.testing.assert_allclose(result["mean"], [X[b, held[b]].mean() for b in (0, 1)], rtol=1e-6)
    np.testing.assert_allclose(result["prod"], [X[b, held[b]].prod() for b in (0, 1)], rtol=1e-6)
    assert result["max"] == max(X[b, held[b]].max() for b in (0, 1))
    np.testing.assert_allclose(result["by t"], X[:, 5:].mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(result.coordinates["by t"]["t"], [5, 6])


def test_gradients_are_zero_elsewhere() -> None:
    def write(ctx, x, b, B, t, T):
        ctx.output("dx", trl.grad(x[t % 2 == 0].square().mean(over=(b, t)), x))

    want = np.zeros((2, 7), np.float32)
    want[:, ::2] = 2 * X[:, ::2] / 8
    np.testing.assert_allclose(run(write)["dx"], want, rtol=1e-6)


def test_a_sum_adds_up_the_defined_points_alone() -> None:
    """Undefined points are not added as zeros; one launch per defined point."""
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        y = trl.data(X, domain=(b, t))[t % 3 == 0].tanh().sum(over=t).named("y")
        ctx.output("y", y)
    events: list[Event] = []
    program = ctx.compile({"B": 2, "T": 7}, trl.Options(vectorize=False))
    result = program.execute(on_event=events.append)
    points = [e.point for e in events if e.kind == "execute" and e.name == "y"]
    assert points == [(b, t) for b in range(2) for t in (0, 3, 6)]
    np.testing.assert_allclose(result["y"], np.tanh(X[:, ::3]).sum(axis=1), rtol=1e-5)


def test_checkpoints_of_conditional_tensors(tmp_path: Path) -> None:
    def write(ctx, x, b, B, t, T):
        (x * 2).named("y")[(t == 5) & (b == 1)].checkpoint(tmp_path / "points")
        x[b, t][t == 2].sum(over=b).named("total").checkpoint(tmp_path / "sums")

    run(write)
    assert [p.name for p in (tmp_path / "points").iterdir()] == ["b=1,t=5.safetensors"]
    saved = load(tmp_path / "points" / "b=1,t=5.safetensors")
    np.testing.assert_allclose(saved["y"], X[1, 5] * 2)
    saved = load(tmp_path / "sums" / "t=2.safetensors")
    np.testing.assert_allclose(saved["total"], X[:, 2].sum(), rtol=1e-6)


def test_they_say_where_they_are_defined() -> None:
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        x = trl.data(X, domain=(b, t))
        assert repr(x[t > 2] * x) == "f32[] @ (b, t) where t >= 3"
        assert repr(x[t > 2] * x[b == 0]) == "f32[] @ (b, t) where t >= 3 & b == 0"
        assert repr(x[t > 2].sum(over=b)) == "f32[] @ (t) where t >= 3"
        assert repr(x[t > 2].sum(over=t)) == "f32[] @ (b)"
        assert repr(x[t > 2][b, 5]) == "f32[] @ (b)"
        assert repr(x[t > 2].otherwise(0.0)) == "f32[] @ (b, t)"
        assert x[t == t] is x


def test_reference_and_run_name_the_same_points() -> None:
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        ctx.output("y", trl.data(X, domain=(b, t))[(t + b) % 2 == 0])
    want = Reference(ctx.pdg(), {"B": 2, "T": 7}).coordinates()["y"]
    have = ctx.compile({"B": 2, "T": 7}).execute().coordinates["y"]
    assert {d: x.tolist() for d, x in want.items()} == {d: x.tolist() for d, x in have.items()}


@pytest.mark.parametrize(
    "options", [{}, {"vectorize": False}, {"fuse": False}, {"executor": "interpret"}]
)
def test_what_nothing_comes_to(options: dict[str, Any]) -> None:
    """Reductions of slices and subsets that are empty, or not needed, at some points."""
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        x = trl.data(X[0, :6], domain=(t,))
        n = trl.value(t)
        w = trl.parameter((), domain=(b,), init=2.0)
        ctx.output("max", x[0:t].max(axis=0, initial=-9.0))
        ctx.output("min", n[t + 1 : T].min(axis=0, initial=4))
        ctx.output("mean", x[0:t].mean(axis=0, initial=7.0))
        ctx.output("over", x[t > 4 + b].mean(over=t, initial=7.0))
        ctx.output("both", x[t > 4 + b].max(over=t, initial=-9.0))
        ctx.output("chosen", trl.where(t > 0, x[0:t].max(axis=0), 5.0))
        ctx.output("other", trl.where(t == 0, 5.0, x[0:t].mean(axis=0) * 2))
        y = trl.like(x)
        y[0] = 0.0
        y[t >= 1] = x[0:t].max(axis=0)
        ctx.output("branch", y)
        ctx.output("any", (x > 0)[0:t].any(axis=0))
        ctx.output("all", (x > 0)[0:t].all(axis=0))
        ctx.output("log", x[0:t].logsumexp(axis=0))
        ctx.output("zero", trl.zeros((0,)).max(initial=3.0))
        (x * w[0])[0:t].mean(axis=0, initial=0.0).backward()
        ctx.output("grad", w.grad)
    bounds = {B: 2, T: 6}
    result = ctx.compile(bounds, trl.Options(**options)).execute()
    f = X[0, :6]
    before = [f[:k] for k in range(1, 6)]
    most = [s.max() for s in before]
    means = [s.mean() for s in before]
    with np.errstate(divide="ignore"):
        logs = [np.log(np.exp(s).sum()) for s in (f[:0], *before)]
    want = {
        "max": [-9.0, *most],
        "min": [1, 2, 3, 4, 4, 4],
        "mean": [7.0, *means],
        "over": [f[5], 7.0],
        "both": [f[5], -9.0],
        "chosen": [5.0, *most],
        "other": [5.0, *(2 * m for m in means)],
        "branch": [0.0, *most],
        "any": [False, *((s > 0).any() for s in before)],
        "all": [True, *((s > 0).all() for s in before)],
        "log": logs,
        "zero": 3.0,
        "grad": [sum(means), 0.0],
    }
    for name, value in want.items():
        np.testing.assert_allclose(result[name], value, rtol=1e-5, err_msg=name)
    whole = Reference(ctx.pdg(), {"B": 2, "T": 6}).outputs()
    for name, value in want.items():
        np.testing.assert_allclose(whole[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.filterwarnings("ignore:(.|\n)*never holds")
@pytest.mark.parametrize("options", [{}, {"vectorize": False}, {"fuse": False}])
def test_what_never_holds(options: dict[str, Any]) -> None:
    """Conditions and slices that are empty for all bounds."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(X[0, :6], domain=(t,))
        ctx.output("none", x[t > T] * 2)
        ctx.output("sum", (x[(t > 3) & (t < 2)] * 2).sum(over=t))
        ctx.output("slice", x[T:0].sum(axis=0))
        ctx.output("window", x[t:T][t > T].max(axis=0))
    result = ctx.compile({T: 6}, trl.Options(**options)).execute()
    assert {name: result[name].tolist() for name in result} == {
        "none": [],
        "sum": 0,
        "slice": 0,
        "window": [],
    }


@pytest.mark.filterwarnings("ignore:(.|\n)*never holds")
def test_a_program_with_nothing_to_do() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", trl.value(t)[t > T] * 2)
    result = ctx.compile({T: 3}).execute()
    assert result["y"].shape == (0,)
    assert result.instructions == 0


@pytest.mark.parametrize("executor", ["interpret", "xla"])
@pytest.mark.parametrize("ending", [False, True])
@pytest.mark.parametrize("vectorize", [True, False])
def test_a_sum_of_nothing_beside_sums_of_something(
    executor: Any, ending: bool, vectorize: bool
) -> None:
    """Every other row is an empty sum. Regression: it had its neighbour's sum."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.data(np.arange(1, 5, dtype=np.float32), domain=(i,)) * 1
        later = (x[t > i] * t).sum(over=t)
        ctx.output("even", x[(i + t) % 2 == 0].sum(over=t))
        ctx.output("later", later)
        done = trl.random.uniform(domain=(i, t)) > 2.0
    for length in (1, 3):
        bound = trl.until(done, at_most=length) if ending else length
        options = trl.Options(executor=executor, vectorize=vectorize)
        found = ctx.compile({I: 4, T: bound}, options).execute()
        have = np.arange(1.0, 5)
        count = [len([s for s in range(length) if (k + s) % 2 == 0]) for k in range(4)]
        np.testing.assert_array_equal(found["even"], have * count)
        after = [sum(s for s in range(length) if s > k) for k in range(4)]
        np.testing.assert_array_equal(found["later"], have * after)
