"""`ctx.before(a, b)` holds in every schedule and through every pass; impossible orders are named."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import DomainError, ScheduleError
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Slice
from timerl_nb.driver.program import Program
from timerl_nb.show import graph_view

BOUNDS = {"I": 2, "T": 4}
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"vectorize": False},
    {"vectorize": ("i",), "fuse": False},
    {"simplify": False, "accumulate": False, "vectorize": False},
)
Ask = Callable[..., Any]
ASKED: dict[str, Ask] = {
    "this first": lambda ctx, x, a, b, s, i, t, T: ctx.before(a, b),
    "the other first": lambda ctx, x, a, b, s, i, t, T: ctx.before(b, a),
    "all of a dimension": lambda ctx, x, a, b, s, i, t, T: ctx.before(a, s),
    "after a sum": lambda ctx, x, a, b, s, i, t, T: ctx.before(s, a),
    "the next step": lambda ctx, x, a, b, s, i, t, T: ctx.before(a[i, t + 1], b),
    "reversed": lambda ctx, x, a, b, s, i, t, T: ctx.before(a[i, T - 1 - t], b),
    "a window": lambda ctx, x, a, b, s, i, t, T: ctx.before(a[i, t : trl.min(t + 2, T)], b),
    "a merge": lambda ctx, x, a, b, s, i, t, T: ctx.before(x, b),
    "what it needs anyway": lambda ctx, x, a, b, s, i, t, T: ctx.before(b, s),
    "two": lambda ctx, x, a, b, s, i, t, T: (ctx.before(b, a), ctx.before(a, s)),
}


def written(ask: Ask | None) -> trl.Context:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        noise = trl.random.normal(domain=(i, t))
        x = trl.tensor((), domain=(i, t)).named("x")
        x[i, 0] = 0.5
        x[i, t + 1] = (x * 0.5 + noise).tanh()
        a = (noise * 2).tanh().named("a")
        b = (noise + 1).sin().named("b")
        s = b.sum(over=t).named("s")
        for name, y in (("x", x), ("a", a), ("b", b), ("s", s)):
            ctx.output(name, y)
        if ask is not None:
            ask(ctx, x, a, b, s, i, t, T)
    return ctx


def assert_orders_hold(program: Program) -> None:
    """Check every order of the fused graph, point by point, against the schedule."""
    graph, bounds = program.fused, program.bounds
    times = {
        p.op_id: {
            at: int(time)
            for time, *at_ in zip(p.time, *p.coordinates.values(), strict=True)
            for at in [tuple(map(int, at_))]
        }
        for p in program.schedule.points()
    }
    for order in graph.orders:
        before, after = graph[order.before], graph[order.after]
        if before.kind == "merge":
            continue
        index = order.index(graph.dims, before.domain, after.domain)
        for point, time in times[after.id].items():
            env = {**bounds, **dict(zip(after.domain, point, strict=True))}
            spans = [
                range(evaluate(e.lo, env), evaluate(e.hi, env))
                if isinstance(e, Slice)
                else (evaluate(e, env),)
                for e in index
            ]
            for earlier in product(*spans):
                assert times[before.id].get(earlier, -1) < time, (order, earlier, point)


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("name", ASKED)
def test_orders_hold_through_all_passes(name: str, options: dict[str, Any]) -> None:
    program = written(ASKED[name]).compile(BOUNDS, trl.Options(**options))
    assert program.fused.orders or name == "what it needs anyway"
    assert_orders_hold(program)
    if options == {"vectorize": False}:
        want = written(None).compile(BOUNDS).execute(seed=1)
        have = program.execute(seed=1)
        for key in want:
            np.testing.assert_allclose(have[key], want[key], rtol=1e-5, err_msg=key)


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("name", ["this first", "the other first", "all of a dimension", "two"])
def test_orders_hold_where_a_dimension_ends_early(name: str, options: dict[str, Any]) -> None:
    def run(ask: Ask | None) -> tuple[Program, trl.Result]:
        ctx = written(ask)
        with ctx:
            done = trl.random.uniform(domain=("i", "t"), stream="end") < 0.3
        ends = {**BOUNDS, "T": trl.until(done, at_most=6)}
        program = ctx.compile(ends, trl.Options(**options))
        return program, program.execute(seed=1)

    program, have = run(ASKED[name])
    assert program.fused.orders
    assert_orders_hold(program)
    _, want = run(None)
    assert 1 <= want.lengths["T"].min() < 6
    for key in want:
        np.testing.assert_allclose(have[key], want[key], rtol=1e-5, err_msg=key)


@pytest.mark.filterwarnings("ignore:scheduling ")
def test_orders_hold_in_a_schedule_by_parts() -> None:
    program = written(ASKED["all of a dimension"]).compile(
        BOUNDS, trl.Options(isl_operations=1, vectorize=False)
    )
    assert_orders_hold(program)


def test_a_run_keeps_the_order() -> None:
    log: list[tuple[str, int]] = []

    def note(name: str) -> Callable[..., Any]:
        def call(x: Any) -> Any:
            log.append((name, int(x)))
            return np.float32(x)

        return call

    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.value(t).cast("f32")
        late, early = (trl.udf(note(name), x, out="f32") for name in ("late", "early"))
        ctx.before(early[trl.min(t + 1, T - 1)], late)
        ctx.output("y", late + early)
    ctx.compile({T: 3}, trl.Options(vectorize=False)).execute()
    for k in range(3):
        assert log.index(("early", min(k + 1, 2))) < log.index(("late", k))


def test_an_order_shows_itself() -> None:
    program = written(ASKED["all of a dimension"]).compile(BOUNDS)
    (order,) = program.pdg.orders
    assert str(program.pdg).splitlines()[-1] == (
        f"  %{order.before}[i, 0:T] before %{order.after} @ (i)"
    )
    assert program.pdg.to_json()["orders"][0]["at"] == {"i": "i"}
    assert 'label=" before "' in program.pdg.to_dot()
    assert "test_orders" in order.origin.file
    assert program.stages["simplify"].why(order.before) == "it is part of an order"


def test_an_order_of_what_nobody_needs_is_dropped_with_a_note() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(np.arange(3.0), domain=(t,))
        unused, y = x + 1, (x * 2).named("y")
        ctx.before(unused, y)
        ctx.output("y", y)
    program = ctx.compile({T: 3})
    assert not program.fused.orders
    (step,) = [s for s in program.stages["simplify"].steps if s.rule == "order dropped"]
    assert "not needed" in step.note


@pytest.mark.parametrize(
    "ask",
    [
        lambda ctx, x, a, b, s, i, t, T: (ctx.before(a, b), ctx.before(b, a)),
        lambda ctx, x, a, b, s, i, t, T: ctx.before(s, b),  # through a reduction
        lambda ctx, x, a, b, s, i, t, T: ctx.before(s * 2.0, b),
        lambda ctx, x, a, b, s, i, t, T: (ctx.before(a, s), ctx.before(s, a)),
        lambda ctx, x, a, b, s, i, t, T: (ctx.before(a[i, t + 1], b), ctx.before(b[i, t - 1], a)),
    ],
)
def test_an_order_that_cannot_hold_is_named(ask: Ask) -> None:
    with pytest.raises(ScheduleError, match="in a cycle") as caught:
        written(ask).compile(BOUNDS, trl.Options(simplify=False))
    assert "must run before" in str(caught.value)
    assert "ctx.before" in str(caught.value)


def test_a_circle_through_a_merge() -> None:
    """x[t + 1] needs y[t], but y[t] must wait for x[t + 2]."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,)).named("x")
        y = (x + 1.0).named("y")
        x[0] = 0.0
        x[t + 1] = y
        ctx.before(x[t + 2], y)
        ctx.output("y", y)
    with pytest.raises(ScheduleError) as caught:
        ctx.compile({T: 4})
    assert "ctx.before(x[t + 2], y)" in str(caught.value)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda ctx, x, a, b, s, i, t, T: ctx.before(a, 3), "second of an order must be a tensor"),
        (lambda ctx, x, a, b, s, i, t, T: ctx.before("acting", b), "first of an order must be a t"),
        (
            lambda ctx, x, a, b, s, i, t, T: ctx.before(a, b[i, t + 1]),
            "not a computation that can wait",
        ),
        (lambda ctx, x, a, b, s, i, t, T: ctx.before(a, x), "defined by branches"),
        (lambda ctx, x, a, b, s, i, t, T: ctx.before(a, a), "before itself"),
        (lambda ctx, x, a, b, s, i, t, T: ctx.before(a[i, t + 1], s), "does not vary over t"),
    ],
)
def test_wrong_orders(ask: Ask, message: str) -> None:
    with pytest.raises(DomainError, match=message) as caught:
        written(ask)
    assert "ctx.before" in str(caught.value)


def test_orders_stay_within_a_context() -> None:
    with trl.Context("t") as other:
        ((t, _),) = other.dims
        y = trl.value(t) * 2
    with pytest.raises(DomainError, match="belongs to another context"):
        written(lambda ctx, x, a, *rest: ctx.before(a, y))


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_orders_are_drawn_dashed_in_every_stage(name: str, options: dict[str, Any]) -> None:
    program = written(ASKED[name]).compile(BOUNDS, trl.Options(**options))
    plain = written(None).compile(BOUNDS, trl.Options(**options))
    for stage in ("pdg", "simplify", "fuse", "separate"):
        if stage not in program.stages or stage not in plain.stages:
            continue
        graph: Any = program.stages[stage].artifact
        view = graph_view(graph).unfold()
        orders = [edge for edge in view.edges if edge.kind == "order"]
        assert bool(orders) == bool(graph.orders)
        picture = view.to_svg()
        assert picture.count("stroke-dasharray") >= len(orders)
        told = [edge for edge in view.to_json()["edges"] if edge["kind"] == "order"]
        assert len(told) == len(orders) and all(edge["count"] for edge in told)
        assert all(f'id="{edge["id"]}"' in picture for edge in told)
        other: Any = plain.stages[stage].artifact
        assert all(edge.kind == "read" for edge in graph_view(other).unfold().edges)


def test_an_order_says_who_waits_for_what() -> None:
    view = graph_view(written(ASKED["all of a dimension"]).compile(BOUNDS).pdg).unfold()
    (order,) = [edge for edge in view.edges if edge.kind == "order"]
    ids = {node.key: node.name or node.label.split("\n")[0] for node in view.nodes}
    assert "a" in ids[order.tail] and "s" in ids[order.head]
    assert order.label == "[i, 0:T]" and " before " in str(view)
