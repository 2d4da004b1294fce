"""Programs with more than one dynamic bound: nested loops, loops in sequence, and the refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.eager import eagerly
from tests.unit.checks import assert_equal, assert_memory_is_sound, assert_same
from timerl_nb.base.errors import BoundsError, OptionError, TimeRLError
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.loops.loop_nodes import Execute, Loop
from timerl_nb.driver.program_runs.assumed_ceiling import find_assumed_ceilings

Bounds = dict[str, Any]

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"executor": "interpret"},
    {"vectorize": False},
    {"fuse": False},
    {"trial": False},
    {"simplify": False, "accumulate": False},
    {"lift": False, "contract": False, "executor": "interpret"},
)
I, T = 5, 6
ENDS = np.array([2, 6, 1, 3, 4])
BITS = np.random.default_rng(0).normal(size=(I, T)).clip(-2, 2).astype(np.float32)
BITS[np.arange(I), ENDS - 1] = 3.0  # the inner loop ends where the bits exceed 2.5
BITS[1, -1] = 0.0  # or at its ceiling


@pytest.fixture(autouse=True)
def _eagerly() -> Iterator[None]:
    with eagerly():
        yield


def agrees(program: trl.Program, seed: int = 3) -> trl.Result:
    """Run a program, and compare outputs, parameters and lengths with the reference."""
    reference = Reference(program.source_graph, program.bounds, seed)
    events: list[Event] = []
    shown = {"on_event": events.append} if program.options.executor == "interpret" else {}
    result = program.execute(seed=seed, progress=False, **shown)
    assert_same(reference.lengths(), result.lengths, "lengths")
    assert_same(reference.outputs(), result, "outputs")
    assert_same(reference.outputs("parameter"), result.parameters, "parameters")
    if events:
        assert_memory_is_sound(program, result, events)
    return result


# --- one loop inside the other --------------------------------------------------------------------


def nested(last: int) -> tuple[trl.Context, Bounds]:
    """Episodes of separate lengths, until iteration `last`; the state passes on to the next iteration."""
    with trl.Context("i", "t") as ctx:
        (i, outer), (t, inner) = ctx.dims
        u = trl.data(BITS, domain=(i, t)).named("u")
        w = trl.tensor((), domain=(i,)).named("w")
        x = trl.tensor((), domain=(i, t)).named("x")
        x[i, 0] = w
        x[i, t + 1] = (x + u).tanh()
        m = x.mean(over=t).named("m")
        w[i == 0] = trl.constant(0.3)
        w[i + 1] = w * 0.5 + m * 0.1
        ctx.output("x", x)
        ctx.output("m", m)
        ctx.output("end", x[i, inner - 1])
        ctx.output("steps", trl.value(inner))
        ctx.output("iterations", trl.value(outer))
        ctx.output("total", x[0:outer, 0:inner].sum(axis=(0, 1)))
        ctx.output("mean", m.mean(over=i))
        ctx.output("final", m[outer - 1])
        ctx.output("rest", m[i:outer].sum(axis=0))
        ctx.output("odd", m[i % 2 == 1])
        done = (u > 2.5).named("done")
        reached = trl.data(np.arange(I) == last, domain=(i,))
        solved = (reached | (m > 100.0)).named("solved")
    return ctx, {"I": trl.until(solved, at_most=I), "T": trl.until(done, at_most=T)}


def nested_by_hand(last: int) -> dict[str, Any]:
    w, n = 0.3, min(last + 1, I)
    xs, ms, ends = np.zeros((I, T)), np.zeros(I), np.zeros(I)
    for i in range(n):
        x = [w]
        for t in range(ENDS[i] - 1):
            x.append(np.tanh(x[-1] + BITS[i, t]))
        xs[i, : ENDS[i]], ms[i], ends[i] = x, np.mean(x), x[-1]
        w = w * 0.5 + ms[i] * 0.1
    found = {"x": xs, "m": ms, "end": ends, "total": xs.sum(), "mean": ms[:n].mean()}
    found |= {"final": ms[n - 1], "rest": ms[::-1].cumsum()[::-1], "odd": ms[1:n:2]}
    counts = {"steps": np.where(np.arange(I) < n, ENDS, 0), "iterations": np.array(n)}
    return {k: v.astype(np.float32) for k, v in found.items()} | {
        k: v.astype(np.int32) for k, v in counts.items()
    }


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("last", [0, 2, I])
def test_a_loop_ends_inside_a_loop_that_ends(last: int, options: dict[str, Any]) -> None:
    ctx, bounds = nested(last)
    result = agrees(ctx.compile(bounds, trl.Options(**options)))
    assert_same(nested_by_hand(last), result, "by hand")
    n = min(last + 1, I)
    assert result.lengths["I"] == n and result["x"].shape == (I, T)
    np.testing.assert_array_equal(result.lengths["T"], np.where(np.arange(I) < n, ENDS, 0))
    np.testing.assert_array_equal(result.coordinates["odd"]["i"], np.arange(n)[1::2])


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_both_loops_stop_without_a_condition_at_each_statement(executor: str) -> None:
    ctx, bounds = nested(2)
    program = ctx.compile(bounds, trl.Options(executor=executor))
    loops = [node for node in program.ast if isinstance(node, Loop)]
    assert [loop.turns is not None and loop.turns.names for loop in loops] == [("I",), ("T",)]
    guards = {node.guard for node in program.ast if isinstance(node, Execute)}
    assert guards == {None}
    if executor == "interpret":
        done = [node for node in program.ast if isinstance(node, Execute)]
        steps = program.execute(progress=False).instructions
        assert steps < len(done) * ENDS[:3].sum() < len(done) * ENDS.sum()


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("options", VARIANTS[:4], ids=str)
def test_three_nested_ends(options: dict[str, Any]) -> None:
    with trl.Context("j", "i", "t") as ctx:
        (_, _), (i, inner), (t, steps) = ctx.dims
        u = trl.random.normal((), domain=("j", "i", "t")).named("u")
        s = u.sum(over=t)
        q = s.sum(over=i)
        ctx.output("s", s)
        ctx.output("all", q.sum(over="j"))
        ctx.output("inner", trl.value(inner))
        ctx.output("steps", trl.value(steps))
        ends = {"J": q > 1.0, "I": s > 0.3, "T": u > 0.8}
    bounds = {name: trl.until(d, at_most=4 + k) for k, (name, d) in enumerate(ends.items())}
    lengths = agrees(ctx.compile(bounds, trl.Options(**options))).lengths
    assert [x.shape for x in lengths.values()] == [(), (4,), (4, 5)]
    assert lengths["J"] == 2
    np.testing.assert_array_equal(lengths["I"], [3, 1, 0, 0])


# --- one loop after the other ---------------------------------------------------------------------


def in_sequence() -> tuple[trl.Context, Bounds]:
    """The second loop starts from the last value of the first one, in each of several iterations."""
    with trl.Context("i", "t", "k") as ctx:
        (i, outer), (t, first), (k, second) = ctx.dims
        u, v = trl.random.uniform(domain=(i, t)), trl.random.uniform(domain=(i, k))
        w = trl.tensor((), domain=(i,)).named("w")
        x = trl.tensor((), domain=(i, t)).named("x")
        x[i, 0] = w
        x[i, t + 1] = x * 0.9 + u
        y = trl.tensor((), domain=(i, k)).named("y")
        y[i, 0] = x[i, first - 1]
        y[i, k + 1] = y * 0.6 + v * 0.1
        m = y.mean(over=k).named("m")
        w[i == 0] = trl.constant(0.3)
        w[i + 1] = m * 0.5
        ctx.output("both", x.mean(over=t) + m)
        ctx.output("products", (x * y).sum(over=(t, k)))
        ctx.output("pairs", x * y)
        ctx.output("w", w)
        ctx.output("last", m[outer - 1])
        ends = {"T": x > 1.0, "K": y < 0.6, "I": m < 0.9}
    return ctx, {name: trl.until(d, at_most=4 + k) for k, (name, d) in enumerate(ends.items())}


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_a_loop_ends_after_a_loop_that_ends(outer: bool, options: dict[str, Any]) -> None:
    ctx, bounds = in_sequence()
    program = ctx.compile(bounds if outer else {**bounds, "I": 3}, trl.Options(**options))
    lengths = agrees(program).lengths
    assert lengths["T"].shape == lengths["K"].shape == (program.bounds["I"],)
    assert ("I" in lengths) == outer


def test_one_loop_for_two_ends_goes_on_until_both_are_reached() -> None:
    """isl may fuse two loops; the fused loop ends with the longer one."""
    with trl.Context("t", "k") as ctx:
        (t, first), (k, second) = ctx.dims
        x, y = trl.random.uniform(domain=(t,)), trl.random.uniform(domain=(k,))
        ctx.output("sum", x.sum(over=t) + y.sum(over=k))
        ctx.output("outer", x * y[trl.min(t, second - 1)])
        ends = {"T": x > 0.8, "K": y > 0.6}
    bounds = {name: trl.until(d, at_most=20) for name, d in ends.items()}
    for executor in ("interpret", "xla"):
        program = ctx.compile(bounds, trl.Options(executor=executor, vectorize=False))
        result = agrees(program)
        assert max(result.lengths.values()) < 15
        if executor == "interpret":
            assert result.instructions < 10 * int(sum(result.lengths.values()))


def test_the_end_of_a_loop_may_depend_on_the_length_of_another_one() -> None:
    """K varies over i, because its condition contains T, which varies over i."""
    with trl.Context("k", "i", "t") as ctx:
        (k, _), (i, _), (t, inner) = ctx.dims
        u, y = trl.random.uniform(domain=(i, t)), trl.random.uniform(domain=(k,))
        ctx.output("y", y.sum(over=k))
        done = trl.value(k) + 1 >= trl.value(inner)
        bounds = {"I": 3, "K": trl.until(done, at_most=6), "T": trl.until(u > 0.7, at_most=7)}
    lengths = agrees(ctx.compile(bounds)).lengths
    np.testing.assert_array_equal(lengths["K"], np.minimum(lengths["T"], 6))
    assert len(set(lengths["T"].tolist())) > 1


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_training_ends_and_its_gradients_are_those_of_jax(options: dict[str, Any]) -> None:
    """Gradient descent on episodes, until the loss is small enough."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, inner) = ctx.dims
        u = trl.data(BITS, domain=(i, t))
        w = trl.parameter(trl.constant(0.8), domain=(i,)).named("w")
        x = trl.tensor((), domain=(i, t)).named("x")
        x[i, 0] = w
        x[i, t + 1] = (x * w + u).tanh()
        returns = x[i, t:inner].discounted_sum(0.9)
        loss = (returns * x).mean(over=t)
        gradient = trl.grad(loss, w)
        w.update(w - 0.1 * gradient)
        ctx.output("loss", loss)
        ctx.output("gradient", gradient)
        ends = {"I": loss < 0.6, "T": u > 2.5}
    bounds = {"I": trl.until(ends["I"], at_most=I), "T": trl.until(ends["T"], at_most=T)}
    result = agrees(ctx.compile(bounds, trl.Options(**options)))

    def by_hand(w: Any, i: int) -> Any:
        xs = [w]
        for t in range(ENDS[i] - 1):
            xs.append(jnp.tanh(xs[-1] * w + BITS[i, t]))
        g = [sum(0.9**k * x for k, x in enumerate(xs[t:])) for t in range(len(xs))]
        return sum(a * b for a, b in zip(g, xs, strict=True)) / len(xs)

    w, found = jnp.float32(0.8), []
    for i in range(I):
        found.append(jax.value_and_grad(by_hand)(w, i))
        w = w - 0.1 * found[-1][1]
        if found[-1][0] < 0.6:
            break
    n = len(found)
    assert result.lengths["I"] == n and 1 < n < I
    np.testing.assert_allclose(result["loss"][:n], [x for x, _ in found], rtol=1e-4)
    np.testing.assert_allclose(result["gradient"][:n], [g for _, g in found], rtol=1e-4)
    assert not result["gradient"][n:].any()


# --- instances, seeds, runs -----------------------------------------------------------------------


def with_instances(over: tuple[str, ...]) -> tuple[trl.Context, Bounds]:
    """Episodes that end separately; the outer loop ends for all instances or for each one."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, outer), (t, inner) = ctx.dims
        u = trl.random.normal((), domain=(b, i, t)).named("u")
        m = u.mean(over=t).named("m")
        ctx.output("last", u[b, i, inner - 1])
        ctx.output("mean", m.sum(over=i).mean(over=b))
        ctx.output("iterations", trl.value(outer) + 0 * trl.value(b))
        solved = (m if "b" in over else m.mean(over=b)) < -0.1
    return ctx, {"B": 3, "I": trl.until(solved, at_most=4), "T": trl.until(u > 0.8, at_most=5)}


@pytest.mark.filterwarnings("ignore:.*ends by itself")
@pytest.mark.parametrize("over", [(), ("b",)], ids=str)
@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_ends_of_instances_inside_an_outer_end(over: tuple[str, ...], executor: str) -> None:
    ctx, bounds = with_instances(over)
    program = ctx.compile(bounds, trl.Options(executor=executor, trial=False))
    lengths = agrees(program).lengths
    assert lengths["I"].shape == ((3,) if over else ()) and lengths["T"].shape == (3, 4)
    ran = np.arange(4) < lengths["I"][..., None]
    np.testing.assert_array_equal(lengths["T"] > 0, np.broadcast_to(ran, (3, 4)))


def test_each_seed_has_both_ends_of_its_own() -> None:
    ctx, bounds = in_sequence()
    rows, one = ctx.compile(bounds, seeds=2).execute(seed=3, progress=False), ctx.compile(bounds)
    for s in range(2):
        want = one.execute(seed=3 + s, progress=False)
        assert_same(want.lengths, {n: x[s] for n, x in rows.lengths.items()}, f"lengths {s}")
        assert_same(dict(want), {n: x[s] for n, x in rows.items()}, f"row {s}")


def test_a_ceiling_is_raised_only_where_it_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timerl_nb.compiler.language.inputs.dynamic_bound_inputs._FIRST", 4)
    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        steps = trl.value(t).cast("f32")
        ctx.output("sum", steps.sum(over=t) + 0 * trl.value(i).cast("f32"))
        done = trl.value(t) >= trl.value(i) + 5
        solved = trl.value(i) >= 2
    program = ctx.compile({"I": solved, "T": done})
    assert find_assumed_ceilings(program.bounds) == ["I", "T"]
    result = program.execute(progress=False)
    np.testing.assert_array_equal(result.lengths["T"], [6, 7, 8, 0])
    np.testing.assert_array_equal(result["sum"], [15, 21, 28, 0])
    with pytest.raises(BoundsError, match="I has no ceiling"):
        program.start()


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_a_run_with_two_ends_resumes(executor: str, tmp_path: Path) -> None:
    ctx, bounds = in_sequence()
    program = ctx.compile({**bounds, "I": 6}, trl.Options(executor=executor))
    want = agrees(program)
    with program.start(3, checkpoint=tmp_path, every=2, paused=True) as run:
        run.wait()
        run.step(2)
        run.wait()
    have = program.resume(tmp_path)
    assert have.instructions < want.instructions
    assert_equal(want, have)
    assert_equal(want.lengths, have.lengths)
    with pytest.raises(OptionError, match="unknown before the run"):
        ctx.compile(bounds, trl.Options(executor=executor)).start(3, checkpoint=tmp_path / "other")


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_the_host_gets_no_call_beyond_either_end(executor: str) -> None:
    seen: list[tuple[int, int]] = []

    def count(i: Any, t: Any) -> np.ndarray:
        seen.append((int(i), int(t)))
        return np.float32(i + t)

    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        n = trl.udf(count, trl.value(i), trl.value(t), out="f32", domain=(i, t)).named("n")
        ctx.output("n", n)
        done = trl.value(t) >= trl.value(i)
        solved = n.max(over=t) >= 4.0
    bounds = {"I": trl.until(solved, at_most=5), "T": trl.until(done, at_most=4)}
    program = ctx.compile(bounds, trl.Options(executor=executor))
    result = program.execute(progress=False)
    assert sorted(seen) == [(i, t) for i in range(3) for t in range(i + 1)]
    assert result.lengths["I"] == 3
    np.testing.assert_array_equal(result.lengths["T"], [1, 2, 3, 0, 0])


# --- refusals -------------------------------------------------------------------------------------


def _refused(name: str) -> str:
    with trl.Context("i", "t") as ctx:
        (i, outer), (t, inner) = ctx.dims
        u = trl.random.normal((), domain=(i, t)).named("u")
        ctx.output("u", u.sum(over=t))
        done, solved = (u > 0.5).named("done"), (u.sum(over=t) > 1.0).named("solved")
        if name == "neither is the outer one":
            solved = (u > 1.0).named("solved")
        elif name == "the inner end needs the outer one":
            done = done & (trl.value(outer) > 2)
        elif name == "a step of another iteration":
            ctx.output("before", u[trl.max(i - 1, 0), t])
        elif name == "an iteration that may be missing":
            ctx.output("third", u.sum(over=t)[2] + 0 * trl.value(outer).cast("f32"))
        elif name == "a mean over both":
            ctx.output("mean", u.mean(over=(i, t)))
        bounds = {"I": trl.until(solved, at_most=4), "T": trl.until(done, at_most=5)}
        with pytest.raises(TimeRLError) as caught:
            ctx.compile(bounds).execute(progress=False)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("neither is the outer one", ("neither i nor t", "solved = (u > 1.0)", ".any(over=t)")),
        ("the inner end needs the outer one", ("in a cycle", "for I = T = 2", "done")),
        ("a step of another iteration", ("only the first point of t", "i = 1")),
        ("an iteration that may be missing", ("is read at", "[2]")),
        ("a mean over both", ("T, which differs for each i", "x.mean(over=t).mean(over=i)")),
    ],
)
def test_programs_without_a_meaning_are_refused_at_their_line(
    name: str, parts: tuple[str, ...]
) -> None:
    message = _refused(name)
    for part in (*parts, "test_several_dynamic_bounds.py"):
        assert part in message, message
