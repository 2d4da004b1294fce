"""Dynamic bounds: dimensions that end at a condition of the program (semantics.md §2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.eager import eagerly
from tests.episodes import cartpole
from tests.unit.checks import assert_memory_is_sound, assert_same
from timerl_nb.base import errors
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.loops.loop_nodes import Loop

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"vectorize": False},
    {"fuse": False},
    {"trial": False},
    {"simplify": False, "accumulate": False},
    {"lift": False, "contract": False},
)
I, MOST = 4, 9
BITS = np.random.default_rng(3).normal(size=(I, MOST)).clip(-2, 2).astype(np.float32)
ENDS = np.array([2, 9, 1, 5])  # rows end where the bits fall below 2.5
BITS[np.arange(I), ENDS - 1] = 3.0
BITS[1, -1] = 0.0  # the condition never ends the second row

Tensor = Any


@pytest.fixture(autouse=True)
def _eagerly() -> Iterator[None]:
    with eagerly():
        yield


def episodes(learn: Callable[..., Tensor]) -> tuple[trl.Context, Tensor]:
    """x[i, t + 1] = tanh(x + u) from w[i], ended by u > 2.5; w[i + 1] = w / 2 + learn(…) / 10."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, bound) = ctx.dims
        u = trl.data(BITS, domain=(i, t)).named("u")
        w = trl.tensor((), domain=(i,)).named("w")
        x = trl.tensor((), domain=(i, t)).named("x")
        x[i, 0] = w
        x[i, t + 1] = (x + u).tanh()
        done = (u > 2.5).named("done")
        m = learn(x, i, t, bound).named("m")
        w[i == 0] = trl.constant(0.3)
        w[i + 1] = w * 0.5 + m * 0.1
        ctx.output("x", x)
        ctx.output("m", m)
    return ctx, done


def by_hand(learn: Callable[[Any], Any]) -> dict[str, Any]:
    w, xs, ms = 0.3, np.zeros((I, MOST)), np.zeros(I)
    for i, end in enumerate(ENDS):
        x = [w]
        for t in range(end - 1):
            x.append(np.tanh(x[-1] + BITS[i, t]))
        xs[i, :end] = x
        ms[i] = learn(np.array(x))
        w = w * 0.5 + ms[i] * 0.1
    return {"x": xs.astype(np.float32), "m": ms.astype(np.float32)}


def _backward(x: Tensor, i: Any, t: Any, bound: Any) -> Tensor:
    g = trl.tensor((), domain=(i, t)).named("g")
    g[i, bound - 1] = x[i, bound - 1]
    g[t < bound - 1] = x + 0.9 * g[i, trl.min(t + 1, bound - 1)]
    return g.mean(over=t)


def _returns(x: np.ndarray, n: int = MOST) -> np.ndarray:
    return np.array([sum(0.9**k * v for k, v in enumerate(x[t : t + n])) for t in range(len(x))])


LEARN: dict[str, tuple[Callable[..., Tensor], Callable[[Any], Any]]] = {
    "mean": (lambda x, i, t, n: x.mean(over=t), lambda x: x.mean()),
    "sum": (lambda x, i, t, n: x.sum(over=t), lambda x: x.sum()),
    "length": (lambda x, i, t, n: trl.value(n).cast("f32") + 0 * x[i, 0], len),
    "last": (lambda x, i, t, n: x[i, n - 1], lambda x: x[-1]),
    "all but the last": (lambda x, i, t, n: x[i, 0 : n - 1].sum(axis=0), lambda x: x[:-1].sum()),
    "greatest": (lambda x, i, t, n: x.max(over=t), lambda x: x.max()),
    "returns": (
        lambda x, i, t, n: (x[i, t:n].discounted_sum(0.9) * x).mean(over=t),
        lambda x: (_returns(x) * x).mean(),
    ),
    "returns of 3 steps": (
        lambda x, i, t, n: (x[i, t : trl.min(t + 3, n)].discounted_sum(0.9) * x).mean(over=t),
        lambda x: (_returns(x, 3) * x).mean(),
    ),
    "backward": (_backward, lambda x: _returns(x).mean()),
    "reversed": (
        lambda x, i, t, n: (x * x[i, n - 1 - t]).sum(over=t),
        lambda x: (x * x[::-1]).sum(),
    ),
    "normalised": (
        lambda x, i, t, n: (x - x.mean(over=t)).max(over=t),
        lambda x: (x - x.mean()).max(),
    ),
}


def run(program: trl.Program) -> trl.Result:
    events: list[Event] = []
    result = program.execute(seed=3, progress=False, on_event=events.append)
    assert_memory_is_sound(program, result, events)
    return result


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("name", LEARN)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_values_are_those_of_the_true_lengths(name: str, options: dict[str, Any]) -> None:
    learn, expected = LEARN[name]
    ctx, done = episodes(learn)
    bounds = {"I": I, "T": trl.until(done, at_most=MOST)}
    program = ctx.compile(bounds, trl.Options(**options))
    want = by_hand(expected)
    reference = Reference(program.source_graph, program.bounds)
    assert_same(want, reference.outputs(), "reference")
    result = run(program)
    assert_same(want, result, "run")
    for lengths in (result.lengths, reference.lengths()):
        np.testing.assert_array_equal(lengths["T"], ENDS)


@pytest.mark.parametrize("ends", [1, MOST])
def test_ends_at_once_or_never(ends: int) -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, bound) = ctx.dims
        x = trl.tensor((), domain=(i, t))
        x[i, 0] = trl.random.normal((), domain=(i,))
        x[i, t + 1] = x * 0.5
        m = trl.tensor((), domain=(i,))
        m[i == 0] = trl.constant(0.0)
        m[i + 1] = m + x[i, t:bound].sum(axis=0).mean(over=t)
        ctx.output("x", x)
        ctx.output("m", m)
        done = (x > -1e9) if ends == 1 else (x > 1e9)
    program = ctx.compile({"I": 3, "T": trl.until(done, at_most=MOST)})
    result = run(program)
    np.testing.assert_array_equal(result.lengths["T"], [ends] * 3)
    assert not result["x"][:, ends:].any() and result["x"][:, :ends].all()
    assert_same(Reference(program.source_graph, program.bounds, 3).outputs(), result, "run")


def test_what_ends_a_dimension_joins_nothing_of_its_length() -> None:
    """All of y over t is one array of dynamic length, but `done` does not wait for it."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        x = trl.data(np.arange(12, dtype=np.float32).reshape(2, 2, 3), domain=(b, i, t))
        y = x[b, 0, t]
        ctx.output("y", y)
        ctx.output("z", y.tanh())
        done = (trl.random.uniform(domain=(t,)) < 0.5) & (trl.value(t) < 0)
    program = ctx.compile({"B": 2, "I": 2, T: trl.until(done, at_most=3)})
    want = Reference(program.source_graph, program.bounds).outputs()
    assert_same(want, Reference(program.fused, program.bounds).outputs(), "fused graph")
    assert_same(want, run(program), "run")


def test_what_ends_a_dimension_joins_nothing_that_computes_with_its_length() -> None:
    """T - t is no separate statement: the kernel that multiplies by it computes it."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        x = trl.tensor((), domain=(i, t)).named("x")
        x[i, 0] = trl.constant(0.5)
        x[i, t + 1] = (x + trl.data(BITS, domain=(i, t))).tanh()
        ctx.output("y", x.exp() * trl.value(T - t).cast("f32"))
        done = x > 0.9
    options = trl.Options(vectorize=False, lift=False)
    program = ctx.compile({"I": I, "T": trl.until(done, at_most=MOST)}, options)
    assert_same(Reference(program.source_graph, program.bounds, 3).outputs(), run(program), "run")


def test_a_sum_over_another_dimension_is_no_total_over_all_iterations() -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, _), (t, T) = ctx.dims
        total = trl.data(np.arange(4, dtype=np.float32), domain=(b,))[0:B].sum(axis=0)
        ctx.output("y", total * trl.value(T).cast("f32"))
        done = trl.data(BITS, domain=(i, t)) > 2.5
    program = ctx.compile({"B": 4, "I": I, "T": trl.until(done, at_most=MOST)})
    np.testing.assert_array_equal(run(program)["y"], 6 * ENDS)


def test_branches_read_the_length_of_their_own_iteration() -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        length = trl.value(T)
        y = trl.tensor((), "i32", domain=(b, i))
        y[b == 0] = length
        y[b >= 1] = length * 10
        ctx.output("y", y)
        done = trl.data(BITS, domain=(i, t)) > 2.5
    program = ctx.compile({"B": 2, "I": I, "T": trl.until(done, at_most=MOST)})
    np.testing.assert_array_equal(run(program)["y"], [ENDS, 10 * ENDS])


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_what_does_not_vary_is_read_where_each_iteration_ends(options: dict[str, Any]) -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        x = trl.data(np.arange(MOST, dtype=np.float32), domain=(t,))
        ctx.output("next", x[trl.min(t + 1, T - 1)])
        ctx.output("reversed", x.tanh()[T - 1 - t])
        done = trl.random.uniform(domain=(i, t)) < 0.3
    program = ctx.compile({"I": I, T: trl.until(done, at_most=MOST)}, trl.Options(**options))
    want = Reference(program.source_graph, program.bounds, seed=3).outputs()
    assert_same(want, Reference(program.fused, program.bounds, seed=3).outputs(), "fused graph")
    assert_same(want, run(program), "run")


@pytest.mark.parametrize("options", [*VARIANTS, {"simplify": False}], ids=str)
def test_a_branch_is_repeated_as_often_as_each_iteration_takes(options: dict[str, Any]) -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        x = trl.data(np.arange(12, dtype=np.float32).reshape(3, 4), domain=(i, t))
        ctx.output("x", x[i % 2 == 0].tanh().otherwise(0.5).sin())
        done = trl.random.uniform(domain=(i, t)) < 0.3
    program = ctx.compile({"I": 3, T: trl.until(done, at_most=4)}, trl.Options(**options))
    want = Reference(program.source_graph, program.bounds, seed=3).outputs()
    assert_same(want, Reference(program.fused, program.bounds, seed=3).outputs(), "fused graph")
    assert_same(want, run(program), "run")


def test_a_branch_of_another_iteration_is_not_repeated_as_often_as_that_takes() -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        y = trl.tensor((), domain=(i, t)).named("y")
        y[i == 0] = trl.data(BITS, domain=(i, t)).tanh()
        y[i >= 1] = trl.data(np.arange(I, dtype=np.float32), domain=(i,)).tanh()[i - 1]
        ctx.output("y", y.sin())
        done = trl.data(BITS, domain=(i, t)) > 2.5
    program = ctx.compile({"I": I, "T": trl.until(done, at_most=MOST)})
    want = Reference(program.source_graph, program.bounds).outputs()
    assert_same(want, Reference(program.fused, program.bounds).outputs(), "fused graph")
    assert_same(want, run(program), "run")


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_an_end_by_what_starts_from_another_tensor(options: dict[str, Any]) -> None:
    """Each point waits for the previous one, also of n; but x needs n first at some points."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        n = trl.random.normal(domain=(t,))
        x = trl.tensor((), domain=(t,))
        x[t <= 1] = n
        x[t + 2] = (x - n).tanh()
        ctx.output("y", n.tanh())
        done = (trl.random.uniform(domain=(t,)) < 0.3) & (x > -0.3)
    program = ctx.compile({T: trl.until(done, at_most=MOST)}, trl.Options(**options))
    want = Reference(program.source_graph, program.bounds, seed=3).outputs()
    assert_same(want, run(program), "run")


@pytest.mark.parametrize("ends", [1, 2, 6])
@pytest.mark.parametrize("behind", [0, 1])
def test_what_ends_a_dimension_looks_no_further_than_its_window(ends: int, behind: int) -> None:
    for of in (lambda t, T: trl.min(t + 1, T), lambda t, T: trl.min(T, t + 1)):
        with trl.Context("t") as ctx:
            ((t, T),) = ctx.dims
            x = trl.random.normal((), domain=(t,))
            total = x[trl.max(t - behind, 0) : of(t, T)].sum(axis=0)
            ctx.output("total", total)
            done = total > 0.5  # only of t, whatever T is
        program = ctx.compile({T: trl.until(done, at_most=ends)})
        lengths = set[int]()
        for seed in range(4):
            reference = Reference(program.source_graph, {"T": ends}, seed)
            result = program.execute(seed=seed)
            assert_same(reference.lengths(), result.lengths, "lengths")
            assert_same(reference.outputs("output"), result, "outputs")
            lengths.add(int(result.lengths["T"]))
        assert len(lengths) > 1 or ends < 6


def test_one_length_for_all_iterations() -> None:
    """A condition over t alone: the bound is constant."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, bound) = ctx.dims
        u = trl.data(BITS[3], domain=(t,))
        x = trl.random.normal((2,), domain=(i, t))
        ctx.output("mean", x.mean(over=(i, t)))
        ctx.output("u", u * 2)
        done = u > 2.5
    program = ctx.compile({"I": 3, "T": trl.until(done, at_most=MOST)})
    result = run(program)
    assert result.lengths["T"] == 5 and not result["u"][5:].any()
    assert_same(Reference(program.source_graph, program.bounds, 3).outputs(), result, "run")


# --- gradients ----------------------------------------------------------------------------------


W = np.array([0.3, -0.5, 0.8, 0.2], np.float32)


def policy_gradient(window: int | None) -> tuple[trl.Context, Tensor]:
    """Backpropagation through a recurrence over episodes with early ends."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, bound) = ctx.dims
        u = trl.data(BITS, domain=(i, t))
        w = trl.data(W, domain=(i,))
        x = trl.tensor((), domain=(i, t)).named("x")
        x[i, 0] = trl.constant(0.1)
        x[i, t + 1] = (x * 0.9 + u * w).tanh()
        end = bound if window is None else trl.min(t + window, bound)
        g = x[i, t:end].discounted_sum(0.9)
        loss = (g * x).mean(over=t) + x[i, bound - 1] * w
        steps = trl.tensor((), domain=(i,))  # iterations run sequentially
        steps[i == 0] = trl.constant(0.0)
        steps[i + 1] = steps + loss
        ctx.output("grad", trl.grad(loss, w))
        ctx.output("loss", loss)
        done = u > 2.5
    return ctx, done


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_gradients_are_those_of_jax(window: int | None, options: dict[str, Any]) -> None:
    ctx, done = policy_gradient(window)
    bounds = {"I": I, "T": trl.until(done, at_most=MOST)}
    program = ctx.compile(bounds, trl.Options(**options))
    result = run(program)

    def loss(w: Any, i: int) -> Any:
        xs = [jnp.asarray(0.1)]
        for t in range(ENDS[i] - 1):
            xs.append(jnp.tanh(xs[-1] * 0.9 + BITS[i, t] * w))
        n = window or MOST
        g = [sum(0.9**k * x for k, x in enumerate(xs[t : t + n])) for t in range(len(xs))]
        return sum(a * b for a, b in zip(g, xs, strict=True)) / len(xs) + xs[-1] * w

    want = [jax.value_and_grad(loss)(jnp.float32(W[i]), i) for i in range(I)]
    np.testing.assert_allclose(result["loss"], [v for v, _ in want], rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(result["grad"], [g for _, g in want], rtol=2e-4, atol=2e-5)
    assert_same(Reference(program.source_graph, program.bounds).outputs(), result, "reference")


# --- whole programs -----------------------------------------------------------------------------


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("options", VARIANTS[:3], ids=str)
def test_cartpole_ends_when_all_poles_have_fallen(
    window: int | None, options: dict[str, Any]
) -> None:
    ctx, done = cartpole(window)
    bounds = {"B": 2, "I": 2, "T": trl.until(done, at_most=60)}
    program = ctx.compile(bounds, trl.Options(**options))
    result = run(program)
    reference = Reference(program.source_graph, program.bounds, 3)
    assert_same(reference.outputs(), result, "run")
    assert_same(reference.outputs("parameter"), result.parameters, "parameters")
    fallen = (result["reward"].cumsum(2) >= result["reward"].sum(2, keepdims=True)).argmax(2)
    np.testing.assert_array_equal(result.lengths["T"], np.minimum(fallen.max(0) + 1, 60))
    assert (result.lengths["T"] < 60).all()
    np.testing.assert_allclose(result["return"], result["reward"].sum(2).mean(0), rtol=1e-5)


def test_a_run_costs_what_its_lengths_ask_for() -> None:
    """Loops stop: a higher ceiling adds no instruction and no memory of point stores."""
    ctx, done = cartpole(3)
    counts: set[tuple[int, int]] = set()
    for most in (100, 400):
        program = ctx.compile({"B": 2, "I": 2, "T": trl.until(done, at_most=most)})
        ends = [node for node in program.ast if isinstance(node, Loop) and "c1" in node.counter]
        assert ends and all(node.turns is not None for node in ends)
        result = program.execute(seed=3, progress=False)
        counts.add((result.instructions, result.memory.peak))
    assert len(counts) == 1


@pytest.mark.parametrize("name", ["mc", "nstep"])
def test_loops_are_those_of_a_fixed_bound_and_stop(
    name: str, golden: Callable[[str, str], None]
) -> None:
    """N-step learning still overlaps acting."""
    ctx, done = cartpole(5 if name == "nstep" else None)
    bounds = {"B": 64, "I": 20, "T": trl.until(done, at_most=500)}
    golden(f"loops.{name}.dynamic", str(ctx.compile(bounds).ast))


def test_gymnasium_runs_as_long_as_its_episodes() -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        env = trl.env.make("gym.CartPole-v1")
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        a = (o.take(2) > 0).cast("i32")
        step = env.step(a)
        o[b, i, t + 1] = step.obs
        ctx.output("o", o)
        done = (step.done | ~step.alive).all(over=b)
    program = ctx.compile({"B": 2, "I": 3, "T": trl.until(done, at_most=500)})
    result = run(program)
    lengths = result.lengths["T"]
    assert (lengths > 5).all() and (lengths < 500).all()
    seeds = np.random.SeedSequence(3).generate_state(2)
    for b in range(2):
        env = gymnasium.make("CartPole-v1")
        for i in range(3):
            obs, _ = env.reset(seed=int(seeds[b]) if i == 0 else None)
            over = False
            for t in range(lengths[i]):
                np.testing.assert_array_equal(result["o"][b, i, t], obs)
                if not over:
                    obs, _, over, _, _ = env.step(int(obs[2] > 0))
            assert not result["o"][b, i, lengths[i] :].any()


# --- instances with separate ends -----------------------------------------------------------------


def instances(vary: str = "b") -> tuple[trl.Context, Tensor]:
    """REINFORCE on given rewards: each instance and iteration has its own end."""
    rng = np.random.default_rng(5)
    with trl.Context(vary, "i", "t") as ctx:
        (b, _), (i, _), (t, bound) = ctx.dims
        x = trl.data(rng.normal(size=(3, 2, 6)).astype(np.float32), domain=(b, i, t))
        done = trl.data(rng.random((3, 2, 6)) < 0.3, domain=(b, i, t)).named("done")
        w = trl.parameter(np.float32(0.5), domain=i, name="w")
        y = (x * w).tanh()
        g = x[b, i, t:bound].discounted_sum(0.9)
        g3 = x[b, i, t : trl.min(t + 3, bound)].max(axis=0)
        (y * (g + g3)).mean(over=t).mean(over=b).backward()
        w.update(w - 0.1 * w.grad)
        ctx.output("y", y)
        ctx.output("g", g)
        ctx.output("mean", y.mean(over=t))
        ctx.output("last", x[b, i, -1])
        ctx.output("total", y.sum(over=(b, t)))
    return ctx, done


def instances_by_hand() -> tuple[dict[str, Any], Any, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3, 2, 6)).astype(np.float32)
    done = rng.random((3, 2, 6)) < 0.3
    ends = np.where(done.any(2), done.argmax(2) + 1, 6)
    w = jnp.float32(0.5)
    want = {name: np.zeros((3, 2), np.float32) for name in ("mean", "last")}
    want |= {"y": np.zeros_like(x), "g": np.zeros_like(x), "total": np.zeros(2, np.float32)}

    def loss(w: Any, i: int) -> Any:
        total = 0.0
        for b in range(3):
            r = x[b, i, : ends[b, i]]
            g = _returns(r) + np.array([r[t : t + 3].max() for t in range(len(r))])
            total = total + (jnp.tanh(r * w) * g).mean() / 3
        return total

    for i in range(2):
        for b in range(3):
            n = ends[b, i]
            r = x[b, i, :n]
            want["y"][b, i, :n], want["g"][b, i, :n] = np.tanh(r * w), _returns(r)
            want["mean"][b, i], want["last"][b, i] = np.tanh(r * w).mean(), r[-1]
        want["total"][i] = want["y"][:, i].sum()
        w = w - 0.1 * jax.grad(loss)(w, i)
    return want, w, ends


@pytest.mark.filterwarnings("ignore:.*ends by itself")
@pytest.mark.some_of("options", 2)
@pytest.mark.parametrize("options", (*VARIANTS, {"executor": "xla"}), ids=str)
def test_each_instance_ends_by_itself(options: dict[str, Any]) -> None:
    ctx, done = instances(vary="v" if options else "b")
    bounds = dict(
        zip((bound for _, bound in ctx.dims), (3, 2, trl.until(done, at_most=6)), strict=True)
    )
    program = ctx.compile(bounds, trl.Options(**options))
    want, w, ends = instances_by_hand()
    reference = Reference(program.source_graph, program.bounds)
    assert_same(want, reference.outputs(), "reference")
    result = program.execute(progress=False) if "executor" in options else run(program)
    assert_same(want, result, "run")
    np.testing.assert_allclose(result.parameters["w"], w, rtol=1e-4)
    for lengths in (result.lengths, reference.lengths()):
        np.testing.assert_array_equal(lengths["T"], ends)


@pytest.mark.filterwarnings("ignore:.*ends by itself")
def test_a_mean_over_instances_and_their_steps_is_refused() -> None:
    """The number of all steps is not B times the length of one instance."""
    ctx, done = instances()
    with ctx:
        (b, _), _, (t, _) = ctx.dims
        ctx.output("z", (done.cast("f32") * 2.0).mean(over=(b, t)))
    with pytest.raises(errors.BoundsError, match="differs for each b, i(.|\n)*reduce over t first"):
        ctx.compile({"B": 3, "I": 2, "T": trl.until(done, at_most=6)})


def test_the_gradient_of_a_mean_over_iterations_and_steps_is_refused() -> None:
    """The mean itself is no output, so only its gradient divides by both numbers."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        x = trl.data(BITS, domain=(i, t))
        ctx.output("gradient", trl.grad(x.square().mean(over=(i, t)), x))
    with pytest.raises(errors.BoundsError, match="reduce over t first"):
        ctx.compile({"I": I, "T": trl.until(x > 2.5, at_most=MOST)})


def test_separate_ends_are_a_warning_with_the_parallel_form() -> None:
    ctx, done = instances()
    with pytest.warns(errors.TimeRLWarning, match=r"ends by itself(.|\n)*done\.all\(over=b\)"):
        ctx.compile({"B": 3, "I": 2, "T": trl.until(done, at_most=6)})


@pytest.mark.filterwarnings("ignore:.*ends by itself")
def test_each_seed_has_its_own_instances() -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, bound) = ctx.dims
        u = trl.random.uniform(domain=(b, i, t))
        ctx.output("sum", u.sum(over=t))
        ctx.output("last", u[b, i, -1])
    bounds = {"B": 2, "I": 2, "T": trl.until((u > 0.6).named("done"), at_most=6)}
    many = ctx.compile(bounds, seeds=2).execute(seed=4, progress=False)
    program = ctx.compile(bounds)
    for s in range(2):
        one = program.execute(seed=4 + s, progress=False)
        np.testing.assert_array_equal(many.lengths["T"][s], one.lengths["T"])
        assert_same(dict(one.items()), {n: many[n][s] for n in many}, f"seed {s}")


@pytest.mark.filterwarnings("ignore:.*ends by itself")
def test_each_gymnasium_environment_ends_by_itself() -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        env = trl.env.make("gym.CartPole-v1")
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        step = env.step((o.take(2) > 0).cast("i32"))
        o[b, i, t + 1] = step.obs
        ctx.output("o", o)
        ctx.output("return", step.reward.sum(over=t))
    program = ctx.compile({"B": 2, "I": 2, "T": trl.until(step.done, at_most=45)})
    result = run(program)
    lengths = result.lengths["T"]
    assert lengths.min() < lengths.max()
    np.testing.assert_array_equal(result["return"], lengths)
    seeds = np.random.SeedSequence(3).generate_state(2)
    for b in range(2):
        env = gymnasium.make("CartPole-v1")
        for i in range(2):
            obs, _ = env.reset(seed=int(seeds[b]) if i == 0 else None)
            for t in range(lengths[b, i]):
                np.testing.assert_array_equal(result["o"][b, i, t], obs)
                obs, _, over, _, _ = env.step(int(obs[2] > 0))
                assert over == (t == lengths[b, i] - 1) or t == 44
            assert not result["o"][b, i, lengths[b, i] :].any()


def test_the_host_gets_true_lengths() -> None:
    seen: list[int] = []

    def total(x: Any) -> Any:
        seen.append(len(x))
        return np.float32(x.sum())

    ctx, done = episodes(
        lambda x, i, t, n: trl.udf(total, x[i, 0:n] * 2.0, out="f32", name="total")
    )
    program = ctx.compile({"I": I, "T": trl.until(done, at_most=MOST)})
    assert_same(by_hand(lambda x: 2 * x.sum()), run(program), "run")
    assert seen == list(ENDS)


# --- views --------------------------------------------------------------------------------------


def test_a_program_shows_what_ends_it() -> None:
    ctx, done = episodes(LEARN["mean"][0])
    program = ctx.compile({"I": I, "T": trl.until(done, at_most=MOST)})
    assert "T <= 9 until done" in repr(program)
    assert "T <= 9 until done" in str(program.memory)
    assert program.bounds == {"I": I, "T": MOST}
    assert str(program.pipeline).startswith("dynamic_bounds | simplify")
    assert "while t < T[i]" in str(program.ast)
    assert "T varies over (i)" in str(program.fused) or "varies over (i)" in str(program.fused)
    steps = [str(step) for step in program.stages["dynamic_bounds"].steps]
    assert any("varies with T" in step for step in steps)
    free, ends = policy_gradient(None)
    stage = free.compile({"I": I, "T": trl.until(ends, at_most=MOST)}).stages["vectorize"]
    assert any(why == "T differs for each i" for why in map(stage.why, free.pdg().ops))
    again = program.with_options(fuse=False)
    assert again.bounds == program.bounds
    assert_same(again.execute(progress=False), program.execute(progress=False), "options")
    small = program.with_bounds({"T": trl.until(done, at_most=4)})
    np.testing.assert_array_equal(small.execute(progress=False).lengths["T"], np.minimum(ENDS, 4))


# --- refusals -----------------------------------------------------------------------------------


def _wrong(make: Callable[..., Any]) -> str:
    """Return the message of compiling with the bound that `make` returns."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, bound) = ctx.dims
        x = trl.random.normal((), domain=(b, i, t)).named("x")
        y = trl.random.normal((), domain=(i, t)).named("y")
        w = trl.tensor((), domain=(i,)).named("w")
        w[i == 0] = trl.constant(0.0)
        w[i + 1] = w + y.sum(over=t)
        ctx.output("w", w)
        with pytest.raises(errors.TimeRLError) as caught:
            given = make(ctx, b, i, t, bound, x, y)
            ctx.compile({"B": 2, "I": 3, "T": given}).execute(progress=False)
    return str(caught.value)


def _other(ctx: Any, *_: Any) -> Any:
    with trl.Context("i", "t"):
        return trl.until(trl.random.uniform(domain=("i", "t")) > 0.5, at_most=5)


def _across(ctx: Any, b: Any, i: Any, t: Any, bound: Any, x: Any, y: Any) -> Any:
    ctx.output("z", y[trl.max(i - 1, 0), t])
    return trl.until(y > 1, at_most=5)


def _merged(ctx: Any, b: Any, i: Any, t: Any, bound: Any, x: Any, y: Any) -> Any:
    f = trl.data(BITS[0], domain=(t,))
    g = trl.tensor((), domain=(t,)).named("g")
    g[bound - 1] = f[bound - 1]
    g[t < bound - 1] = f
    ctx.output("z", g)
    return trl.until(y > 1, at_most=5)


def _total(ctx: Any, b: Any, i: Any, t: Any, bound: Any, x: Any, y: Any) -> Any:
    ctx.output("z", y.mean(over=(i, t)))
    return trl.until(y > 1, at_most=5)


def _over_some(ctx: Any, b: Any, i: Any, t: Any, bound: Any, x: Any, y: Any) -> Any:
    """The lengths vary over i and b, the sum is over i."""
    n = trl.tensor((), domain=(b,))
    n[b == 0] = trl.constant(0.0)
    n[b + 1] = n * 0.5
    ctx.output("n", n)
    ctx.output("z", y.sum(over=(i, t)))
    return trl.until(x > 1, at_most=5)


def _second(ctx: Any, b: Any, i: Any, t: Any, bound: Any, x: Any, y: Any) -> Any:
    ctx.output("z", y[i, 1])
    return trl.until(y > 1, at_most=5)


def _of_its_end(ctx: Any, b: Any, i: Any, t: Any, bound: Any, x: Any, y: Any) -> Any:
    return trl.until(y > y.mean(over=t), at_most=5)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "no tensor": (lambda *a: trl.until(True, at_most=5), "cannot end a dimension"),
    "zero": (lambda ctx, b, i, t, n, x, y: trl.until(y > 1, at_most=0), "positive integer"),
    "huge": (lambda ctx, b, i, t, n, x, y: trl.until(y > 1, at_most=2**53), "below 2**53"),
    "fraction": (lambda ctx, b, i, t, n, x, y: trl.until(y > 1, at_most=2.5), "positive integer"),
    "numbers": (lambda ctx, b, i, t, n, x, y: trl.until(y, at_most=5), "f32[]"),
    "vector": (
        lambda ctx, b, i, t, n, x, y: trl.until(
            trl.random.normal((2,), domain=(i, t)) > 0, at_most=5
        ),
        "bool[2]",
    ),
    "not over t": (
        lambda ctx, b, i, t, n, x, y: trl.until(y[i, 0] > 1, at_most=5),
        "but not over t: it cannot end t",
    ),
    "another context": (_other, "another context"),
    "another iteration": (_across, "The bound T differs for each i"),
    "a merge without i": (_merged, "let g and the branch's value vary over i"),
    "a mean over all": (_total, "reduce over t first"),
    "a sum over some iterations": (_over_some, "x.mean(over=t).mean(over=(b, i))"),
    "a second point": (_second, "T = 1"),
    "its own end": (_of_its_end, "cycle"),
}


@pytest.mark.filterwarnings("ignore:.*ends by itself")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_at_its_line(name: str) -> None:
    make, part = REFUSED[name]
    message = _wrong(make)
    assert part in message, message
    assert "test_dynamic_bounds.py" in message, message


def test_bounds_stay_of_their_kind() -> None:
    ctx, done = episodes(LEARN["mean"][0])
    program = ctx.compile({"I": I, "T": trl.until(done, at_most=MOST)})
    with pytest.raises(errors.BoundsError, match="until"):
        program.with_bounds({"T": 5})
    with pytest.raises(errors.BoundsError, match="compil"):
        ctx.compile({"I": I, "T": MOST}).with_bounds({"T": trl.until(done, at_most=5)})
    with pytest.raises(errors.BoundsError, match="neither i nor t"):
        ctx.compile({"I": trl.until(done, at_most=I), "T": trl.until(done, at_most=MOST)})


# --- reads under another bound --------------------------------------------------------------------


def sums_across() -> tuple[trl.Context, Tensor]:
    """g[i, t] is the sum of u from t to the end, with the last one doubled; its readers are at another i."""
    with trl.Context("i", "t") as ctx:
        (i, most), (t, bound) = ctx.dims
        u = trl.data(BITS, domain=(i, t)).named("u")
        g = trl.tensor((), domain=(i, t)).named("g")
        g[t == bound - 1] = u * 2.0
        g[t < bound - 1] = u + g[i, trl.min(t + 1, bound - 1)]
        w = trl.tensor((), domain=(i,)).named("w")
        w[i == 0] = trl.constant(0.5)
        w[i + 1] = w * 0.5 + g[i, 0]
        ctx.output("w", w)
        ctx.output("before", g[trl.max(i - 1, 0), 0])
        ctx.output("all", trl.udf(np.sum, g[0:most, 0], out="f32"))
        done = (u > 2.5).named("done")
    return ctx, done


@pytest.mark.some_of("vectorize", 2)
@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("vectorize", [True, False, ("i",), ("t",)])
def test_branches_by_the_bound_are_chosen_by_that_of_the_point_read(
    vectorize: Any, fuse: bool
) -> None:
    """Vectorised over i, points beyond the end are computed with the others, and not used."""
    first = [BITS[k, :end].sum() + BITS[k, end - 1] for k, end in enumerate(ENDS)]
    w = [0.5]
    for value in first[:-1]:
        w.append(w[-1] * 0.5 + value)
    want = {
        "w": np.array(w, np.float32),
        "before": np.array([first[max(k - 1, 0)] for k in range(I)], np.float32),
        "all": np.array(sum(first), np.float32),
    }
    ctx, done = sums_across()
    bounds = {"I": I, "T": trl.until(done, at_most=MOST)}
    for lift in (True, False):
        for executor in ("interpret", "xla"):
            options = trl.Options(executor=executor, vectorize=vectorize, fuse=fuse, lift=lift)
            program = ctx.compile(bounds, options)
            assert_same(want, program.execute(), f"{executor}, lift={lift}")
        events: list[Event] = []
        program = program.with_options(executor="interpret")
        result = program.execute(on_event=events.append)
        assert_same(want, result, "recorded")
        assert_memory_is_sound(program, result, events)
