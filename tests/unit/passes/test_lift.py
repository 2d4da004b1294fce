"""Recurrences as batch operations: all spellings are recognised, and no look-alikes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_same
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit
from timerl_nb.compiler.ir.graph_verifier import prove_reads, verify
from timerl_nb.compiler.ir.operations import is_sliced
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.loops.loop_nodes import Loop
from timerl_nb.compiler.passes.lifting.prefix_accumulation import step_by_step
from timerl_nb.compiler.passes.vectorization.batching_rules import Refused

BOUNDS = {"B": 3, "T": 6}
Write = Callable[..., Any]


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def context(write: Write) -> trl.Context:
    """Return a program with the output of `write` on tensors x, z (floats) and d (booleans)."""
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        x, z = (trl.data(values(3, 6, seed=k), domain=(b, t)) for k in (0, 1))
        d = trl.data(values(3, 6, seed=2) > 0.7, domain=(b, t))
        ctx.output("y", write(x, z, d, b, B, t, T))
    return ctx


def ahead(y: Any, b: Any, t: Any, T: Any) -> Any:
    return y[b, trl.min(t + 1, T - 1)]


def before(y: Any, b: Any, t: Any) -> Any:
    return y[b, trl.max(t - 1, 0)]


# --- lifted, by rule -----------------------------------------------------------------------------


def sum_of_this(x, z, d, b, B, t, T):
    s = trl.like(x)
    s[b, 0] = x[b, 0]
    s[b, t + 1] = s + ahead(x, b, t, T)
    return s


def sum_of_the_past(x, z, d, b, B, t, T):
    s = trl.like(x)
    s[b, 0] = trl.constant(1.5)
    s[b, t + 1] = s + x
    return s


def sum_by_condition(x, z, d, b, B, t, T):
    s = trl.like(x)
    s[t == 0] = x
    s[t > 0] = x - (-before(s, b, t)) - z
    return s


def sum_of_vectors(x, z, d, b, B, t, T):
    both = trl.stack([x, z])
    s = trl.like(both)
    s[b, T - 1] = both[b, T - 1]
    s[b, t - 1] = s + x.unsqueeze(0)
    return s


def sum_of_integers(x, z, d, b, B, t, T):
    n = (x * 2.0**29).cast("i32")  # wraps around, exactly
    s = trl.like(n)
    s[b, 0] = n[b, 0]
    s[b, t + 1] = s + n
    return s


def decayed(x, z, d, b, B, t, T):
    s = trl.like(x)
    s[b, 0] = x[b, 0]
    s[b, t + 1] = 0.5 * (s - x) * 0.5
    return s


def returns(x, z, d, b, B, t, T):
    g = trl.like(x)
    g[b, T - 1] = x[b, T - 1]
    g[t < T - 1] = x + 0.9 * ahead(g, b, t, T)
    return g


def returns_from_behind(x, z, d, b, B, t, T):
    g = trl.like(x)
    g[b, T - 1] = x[b, T - 1]
    g[b, t - 1] = x[b, t - 1] + 0.9 * g
    return g


def moving_average(x, z, d, b, B, t, T):
    s = trl.like(x)
    s[b, 0] = x[b, 0]
    s[b, t + 1] = s + 0.1 * (x - s)
    return s


def masked_returns(x, z, d, b, B, t, T):
    g = trl.like(x)
    g[b, T - 1] = x[b, T - 1]
    g[t < T - 1] = x + 0.9 * (~d).cast("f32") * ahead(g, b, t, T)
    return g


def chosen_returns(x, z, d, b, B, t, T):
    g = trl.like(x)
    g[b, T - 1] = x[b, T - 1]
    g[t < T - 1] = trl.where(d, z, x + 0.9 * ahead(g, b, t, T))
    return g


def advantages(x, z, d, b, B, t, T):
    alive = 1.0 - d.cast("f32")
    delta = x + 0.99 * alive * ahead(z, b, t, T) - z
    a = trl.like(x)
    a[b, T - 1] = delta[b, T - 1]
    a[t < T - 1] = delta + 0.99 * 0.95 * alive * ahead(a, b, t, T)
    return a


def growing(x, z, d, b, B, t, T):
    s = trl.like(x)
    s[b, 0] = x[b, 0]
    s[b, t + 1] = s * 3.0 / (z * z + 0.5) + x
    return s


def starting_anew(x, z, d, b, B, t, T):
    s = trl.like(x)
    s[t % 3 == 0] = x
    s[t % 3 != 0] = before(s, b, t) * 0.5 + z
    return s


def chosen(x, z, d, b, B, t, T):
    y = trl.like(x)
    y[b, 0] = x[b, 0]
    y[b, t + 1] = y * trl.where(z > 0, 0.5, -0.25) + x
    return y


def gates(x, z, d, b, B, t, T):
    gate, values = z.sigmoid(), trl.stack([x, z, x * z])
    s = trl.like(values)
    s[b, 0] = values[b, 0]
    s[b, t + 1] = s * gate.unsqueeze(0) + values * (1.0 - gate).unsqueeze(0)
    return s


def towards_a_number(x, z, d, b, B, t, T):
    s = trl.like(x)
    s[b, 0] = x[b, 0]
    s[b, t + 1] = trl.where(d, -(1.5 - s) * z, s - 0.25 * (s - 1.0))
    return s


def towards_a_number_by_branches(x, z, d, b, B, t, T):
    s, m = trl.like(x), trl.like(x)
    s[b, 0] = x[b, 0]
    s[b, t + 1] = m
    m[t < 2] = s - 0.5
    m[t >= 2] = 3.0 - (s - 0.5)
    return s


def by_what_recurs(x, z, d, b, B, t, T):
    c, y = trl.like(x), trl.like(x)
    c[b, 0] = trl.constant(0.5)
    c[b, t + 1] = c * c
    y[b, 0] = x[b, 0]
    y[b, t + 1] = y * c + x
    return y


def product(x, z, d, b, B, t, T):
    p = trl.like(x)
    p[b, 0] = x[b, 0]
    p[b, t + 1] = p * ahead(x, b, t, T)
    return p


def schedule(x, z, d, b, B, t, T):
    lr = trl.tensor((), domain=(t,))
    lr[0] = trl.constant(0.1)
    lr[t + 1] = lr * 0.9
    return lr * x


def greatest(x, z, d, b, B, t, T):
    m = trl.like(x)
    m[b, 0] = x[b, 0]
    m[b, t + 1] = trl.max(m, ahead(x, b, t, T))
    return m


def least_to_come(x, z, d, b, B, t, T):
    m = trl.like(x)
    m[b, T - 1] = x[b, T - 1]
    m[t < T - 1] = trl.where(d, trl.min(x, trl.min(ahead(m, b, t, T), z)), ahead(m, b, t, T))
    return m


def gradient_of_a_sum(x, z, d, b, B, t, T):
    return trl.grad(sum_of_the_past(x, z, d, b, B, t, T).square(), x)


def gradient_of_a_recurrence(x, z, d, b, B, t, T):
    return trl.grad(gates(x, z, d, b, B, t, T).square().sum(), z)


LIFTED: dict[str, tuple[list[Write], int]] = {
    "running sum": (
        [sum_of_this, sum_of_the_past, sum_by_condition, sum_of_vectors, sum_of_integers],
        1,
    ),
    "discounted sum": ([decayed, returns, returns_from_behind, moving_average, schedule], 1),
    "linear recurrence": (
        [
            masked_returns,
            chosen_returns,
            advantages,
            growing,
            starting_anew,
            gates,
            chosen,
            towards_a_number,
            towards_a_number_by_branches,
        ],
        1,
    ),
    "running product": ([product], 1),
    "running max": ([greatest], 1),
    "running min": ([least_to_come], 1),
}
ALL = {f.__name__: (rule, f) for rule, (fs, _) in LIFTED.items() for f in fs}
ALL["gradient_of_a_sum"] = "running sum", gradient_of_a_sum
ALL["gradient_of_a_recurrence"] = "linear recurrence", gradient_of_a_recurrence


@pytest.mark.parametrize("name", ALL)
def test_recurrences_are_lifted(name: str) -> None:
    rule, write = ALL[name]
    ctx = context(write)
    want = Reference(ctx.pdg(), BOUNDS).outputs()
    program = ctx.compile(BOUNDS)
    steps = [s.rule for s in program.stages["lift"].steps if s.rule != "dead code"]
    assert steps and set(steps) == {rule}
    assert not any(isinstance(node, Loop) for node in program.ast)
    assert_same(want, program.execute(), "run")
    for changes in (
        {"lift": False},
        {"vectorize": False},
        {"vectorize": ("t",), "fuse": False},
        {"trial": False, "simplify": False, "accumulate": False},
    ):
        fused = program.with_options(**changes).fused
        assert_same(want, Reference(fused, BOUNDS).outputs(), str(changes))
    for steps_left in (1, 2):
        bounds = {**BOUNDS, "T": steps_left}
        want = Reference(ctx.pdg(), bounds).outputs()
        assert_same(want, program.with_bounds({"T": steps_left}).execute(), f"T = {steps_left}")


def test_factors_above_one_are_multiplied_in_order() -> None:
    """The product of many factors would overflow although the values do not."""
    orders = {
        write.__name__: [
            not op.attrs.ordered
            for op in context(write).compile(BOUNDS).stages["lift"].artifact
            if op.kind == "linear_scan"
        ]
        for write in (
            *(masked_returns, advantages, starting_anew, gates, chosen),
            *(growing, product, by_what_recurs),
        )
    }
    assert orders == {
        "masked_returns": [True],
        "advantages": [True],
        "starting_anew": [True],
        "gates": [True],
        "chosen": [True],
        "growing": [False],
        "product": [False],
        "by_what_recurs": [],  # its factors are cyclic, and computed one by one
    }

    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        y = trl.tensor((), domain=(t,))
        y[0] = trl.constant(0.0)
        y[t + 1] = y * 1e3
        ctx.output("y", y)
    assert not np.any(ctx.compile({"T": 40}).execute()["y"])


# --- not lifted ----------------------------------------------------------------------------------


def two_back(x, z, d, b, B, t, T):
    y = trl.like(x)
    y[t < 2] = x
    y[b, t + 2] = y * 0.5 + x
    return y


def two_readers(x, z, d, b, B, t, T):
    y = trl.like(x)
    y[t < 2] = x
    y[t >= 2] = 0.5 * y[b, trl.max(t - 1, 0)] + 0.25 * y[b, trl.max(t - 2, 0)]
    return y


def squared(x, z, d, b, B, t, T):
    y = trl.like(x)
    y[b, 0] = x[b, 0]
    y[b, t + 1] = y * y * 0.1 + x
    return y


def by_its_value(x, z, d, b, B, t, T):
    y = trl.like(x)
    y[b, 0] = x[b, 0]
    y[b, t + 1] = trl.where(y > 0.0, y * 0.5, y + x)
    return y


def factor_of_itself(x, z, d, b, B, t, T):
    y = trl.like(x)
    y[b, 0] = x[b, 0]
    y[b, t + 1] = (y * x).tanh() * y + x
    return y


def mixed(x, z, d, b, B, t, T):
    h = trl.tensor((2,), domain=(b, t))
    h[b, 0] = trl.constant([1.0, 2.0])
    h[b, t + 1] = (h @ trl.constant(values(2, 2))) * 0.3
    return h


def each_other(x, z, d, b, B, t, T):
    u, v = trl.like(x), trl.like(x)
    u[b, 0], v[b, 0] = x[b, 0], z[b, 0]
    u[b, t + 1] = 0.5 * v + 0.25 * u + x
    v[b, t + 1] = 0.5 * u + 0.25 * v + z
    return u + v


def across(x, z, d, b, B, t, T):
    y = trl.like(x)
    y[b, 0] = x[b, 0]
    y[b, t + 1] = y[B - 1 - b, t] * 0.5 + x
    return y


def over_others(x, z, d, b, B, t, T):
    y = trl.like(x)
    y[b, 0] = x[b, 0]
    y[b, t + 1] = y.sum(over=b) * 0.1 + x
    return y


def chosen_by_both(x, z, d, b, B, t, T):
    y = trl.like(x)
    y[(t == 0) | (b == 0)] = x
    y[(t > 0) & (b > 0)] = before(y, b, t) * 0.5 + x
    return y


def greatest_of_two(x, z, d, b, B, t, T):
    y = trl.like(x)
    y[t < 2] = x
    y[t >= 2] = trl.max(before(y, b, t), x)
    return y


NOT: dict[Write, str] = {
    two_back: "depends on points other than the previous or next along t",
    two_readers: "depends on points other than",
    squared: "a product of its value with itself",
    by_its_value: "(lt) is",
    factor_of_itself: "(tanh) is not linear",
    mixed: "(dot) is not linear in it, element by element",
    each_other: "several values depend on each other",
    across: "depends on points other than",
    over_others: "its operations vary over",
    chosen_by_both: "its branches are chosen by b and t",
    greatest_of_two: "restarts at some points",
}


@pytest.mark.parametrize("write", NOT, ids=lambda f: f.__name__)
def test_what_only_looks_alike_is_not_lifted_and_says_why(write: Write) -> None:
    ctx = context(write)
    program = ctx.compile(BOUNDS)
    stage = program.stages["lift"]
    assert not stage.steps
    merges = [op.id for op in stage.artifact if op.kind == "merge" and stage.why(op.id)]
    assert merges and all(NOT[write] in (stage.why(k) or "") for k in merges)
    want = Reference(ctx.pdg(), BOUNDS).outputs()
    assert_same(want, Reference(program.fused, BOUNDS).outputs(), "fused graph")


def test_what_runs_in_actings_loop_stays_there() -> None:
    """A running sum of acting values frees each step; lifted, it would store all."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        s = trl.tensor((), domain=(b, i, t))
        s[b, i, 0] = trl.random.normal((), domain=(b, i))
        s[b, i, t + 1] = (s * 0.9).tanh()
        total = trl.like(s).named("total")
        total[b, i, 0] = s[b, i, 0]
        total[b, i, t + 1] = total + s[b, i, trl.min(t + 1, T - 1)]
        ctx.output("y", total[b, i, T - 1])
    program = ctx.compile({"B": 2, "I": 2, "T": 50})
    stage = program.stages["lift"]
    (merge,) = (op.id for op in stage.artifact if op.label == "total")
    assert "in the loop of acting over t" in (stage.why(merge) or "")
    assert not stage.steps
    assert program.memory.peak < 50 * 2 * 4
    alone = program.with_options(trial=False)
    assert [s.rule for s in alone.stages["lift"].steps if s.rule != "dead code"] == ["running sum"]
    assert_same(program.execute(seed=2), alone.execute(seed=2), "lifted or not")


def test_dimensions_that_are_not_vectorised_are_left() -> None:
    program = context(returns).compile(BOUNDS, trl.Options(vectorize=("b",)))
    assert any(
        "t is not vectorised" in why for why in program.stages["lift"].rewritten.refused.values()
    )


# --- the reverse: windows that stay in a loop ----------------------------------------------------


def acting(write: Write, T: int = 80) -> trl.Context:
    """Return an acting program, s[t + 1] of s[t], with the result of `write` at the end."""
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T_) = ctx.dims
        s = trl.tensor((2,), domain=(b, t))
        s[b, 0] = trl.random.normal((2,), domain=(b,))
        s[b, t + 1] = (s * 0.99 + write(s, b, t, T_) * 0.01).tanh()
        ctx.output("y", s[b, T_ - 1])
    return ctx


PREFIXES: dict[str, Write] = {
    "sum": lambda s, b, t, T: s[b, 0 : t + 1].sum(axis=0),
    "sum of all": lambda s, b, t, T: s[b, 0 : t + 1].sum(),
    "mean before": lambda s, b, t, T: s[b, 0:t].sum(axis=0) / (t + 1),
    "max": lambda s, b, t, T: s[b, 0 : t + 1].max(axis=0),
    "min": lambda s, b, t, T: s[b, 0 : t + 1].min(axis=0),
    "any": lambda s, b, t, T: (s > 0.5)[b, 0 : t + 1].any(axis=0).cast("f32"),
    "count": lambda s, b, t, T: (s > 0.5)[b, 0 : t + 1].sum(axis=0).cast("f32"),
    "product": lambda s, b, t, T: (s * 1.1)[b, 0:t].prod(axis=0),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PREFIXES)
def test_prefixes_in_actings_loop_run_step_by_step(name: str) -> None:
    ctx = acting(PREFIXES[name])
    bounds = {"B": 3, "T": 80}
    program = ctx.compile(bounds)
    assert [s.rule for s in program.stages["windows"].steps] == ["prefix step by step"]
    assert program.memory.peak == program.with_bounds({"T": 20}).memory.peak, "whatever T is"
    want = Reference(ctx.pdg(), bounds).outputs()
    assert_same(want, program.execute(), "run")
    for changes in ({"vectorize": False}, {"trial": False}, {"simplify": False, "fuse": False}):
        fused = program.with_options(**changes).fused
        assert_same(want, Reference(fused, bounds).outputs(), str(changes))
    small = program.with_bounds({"T": 1})
    assert_same(Reference(ctx.pdg(), small.bounds).outputs(), small.execute(), "one step")


def test_without_lifting_a_prefix_is_read_whole() -> None:
    ctx = acting(PREFIXES["sum"])
    with pytest.warns(UserWarning, match="is read in slices"):
        whole = ctx.compile({"B": 3, "T": 80}, trl.Options(lift=False))
    assert whole.memory.peak > 80 * 3 * 2 * 4


SUFFIXES: dict[str, Write] = {
    "sum": lambda x, b, B, t, T: x[b, t:T].sum(axis=0),
    "what is to come": lambda x, b, B, t, T: x[b, t + 1 : T].max(axis=0, initial=-1.0),
    "discounted": lambda x, b, B, t, T: x[b, t:T].discounted_sum(0.9),
    "product": lambda x, b, B, t, T: x[b, t:T].prod(axis=0),
    "all": lambda x, b, B, t, T: (x < 1.0)[b, t:T].all(axis=0),
}
READ_WHOLE: dict[Write, str] = {
    lambda x, b, B, t, T: x[b, trl.max(t - 2, 0) : t + 1].sum(axis=0): "remove earlier values",
    lambda x, b, B, t, T: x[b, 0 : t + 1].discounted_sum(0.9): "its discount does not count",
    lambda x, b, B, t, T: x[0:B, t:T].sum(axis=(0, 1)): "it reads b at 0:B",
    lambda x, b, B, t, T: x[0 : b + 1, t][b, t:T].sum(axis=0).sum(axis=0): "its shape varies",
}


def _steps(write: Write) -> tuple[Pdg, Edit]:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        ctx.output("y", write(trl.data(values(3, 6), domain=(b, t)), b, B, t, T))
    return ctx.pdg(), Edit(ctx.pdg())


@pytest.mark.parametrize("name", SUFFIXES)
def test_suffixes_run_backwards(name: str) -> None:
    graph, edit = _steps(SUFFIXES[name])
    (op,) = (op for op in graph if op.kind in ("sum", "max", "min", "prod", "discounted_sum"))
    step_by_step(edit, op, graph.dims["t"])
    made = edit.finish().pdg
    verify(made)
    for bounds in (BOUNDS, {**BOUNDS, "T": 1}):
        prove_reads(made, bounds)
        want = Reference(graph, bounds).outputs()
        assert_same(want, Reference(made, bounds).outputs(), name)


@pytest.mark.parametrize("write", READ_WHOLE, ids=READ_WHOLE.values())
def test_what_is_no_prefix_says_why(write: Write) -> None:
    graph, edit = _steps(write)
    for op in graph:
        if op.kind in ("sum", "discounted_sum") and any(map(is_sliced, op.inputs)):
            with pytest.raises(Refused, match=READ_WHOLE[write]):
                step_by_step(edit, op, graph.dims["t"])
    assert not edit.steps


def test_advantages_of_what_acting_made_are_one_operation_after_it() -> None:
    """Batches after the acting loop move their dependents out of the loop."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        critic = trl.nn.MLP([4, 8, 1], domain=(i,))
        s = trl.tensor((4,), domain=(b, i, t))
        s[b, i, 0] = trl.random.normal((4,), domain=(b, i))
        s[b, i, t + 1] = (s * 1.5).sin()
        value, reward = critic(s).reshape(()), s.take(0)
        alive = 1.0 - (s.take(1) > 0.9).cast("f32")
        ahead = (b, i, trl.min(t + 1, T - 1))
        delta = reward + 0.99 * alive * value.detach()[ahead] - value.detach()
        advantage = trl.like(delta)
        advantage[b, i, T - 1] = delta[b, i, T - 1]
        advantage[t < T - 1] = delta + 0.95 * 0.99 * alive * advantage[ahead]
        (advantage.detach() * value).mean(over=(b, t)).backward()
        trl.optim.SGD(critic.params, lr=0.01).step()
        ctx.output("advantage", advantage)
    bounds = {"B": 3, "I": 2, "T": 5}
    program = ctx.compile(bounds)
    assert [s.rule for s in program.stages["lift"].steps][0] == "linear recurrence"
    assert sum(isinstance(node, Loop) for node in program.ast) == 2, "iterations, and acting"
    assert_same(Reference(ctx.pdg(), bounds).outputs(), program.execute(), "run")
    in_steps = program.with_options(lift=False).with_bounds({"T": 100}).execute()
    lifted = program.with_bounds({"T": 100}).execute()
    assert lifted.instructions < 0.5 * in_steps.instructions
    assert_same(dict(in_steps), lifted, "lifted")
