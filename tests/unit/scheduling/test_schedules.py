"""Required schedules of REINFORCE for various options; validation; trial schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from timerl_nb.base.errors import VerificationError
from timerl_nb.compiler.isl.isl_scheduler import Edge
from timerl_nb.compiler.loops.loop_nodes import Execute, If, Loop, children
from timerl_nb.compiler.passes.pass_pipeline import Pipeline
from timerl_nb.compiler.scheduling import vectorization_trials as trial
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.schedule_validation import validate
from timerl_nb.compiler.scheduling.statements import statement_name
from timerl_nb.driver.compiling.pass_selection import pipeline

BOUNDS = {"B": 8, "I": 3, "T": 40}


def loops_over_t(program: trl.Program) -> dict[str, set[int]]:
    """Return the loops along t of each statement."""
    schedule = program.schedule
    found: dict[str, set[int]] = {}
    loops = schedule.tree.loops()
    for name, op in schedule.statements.items():
        mine = loops[statement_name(op)]
        found[name] = {loop for loop, at in mine if "t" in at.symbols}
    return found


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("window", [1, 2, 5, 9])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"baseline": False},
        {"hidden": ()},
        {"hidden": (8, 8, 8, 8)},
        {"optimizer": trl.optim.SGD},
        {"checkpoint": "runs/x"},
    ],
    ids=str,
)
def test_n_step_learns_in_the_loop_that_acts(window: int, options: dict[str, Any]) -> None:
    program = reinforce(window, **options).compile(BOUNDS)
    loops = loops_over_t(program)
    assert loops["learning"] & loops["acting"], loops
    assert program.with_bounds({"T": 400}).memory.peak == program.memory.peak


@pytest.mark.parametrize(
    "options", [{}, {"baseline": False}, {"optimizer": trl.optim.SGD}], ids=str
)
def test_monte_carlo_learns_after_acting(options: dict[str, Any]) -> None:
    program = reinforce(**options).compile(BOUNDS)
    loops = loops_over_t(program)
    assert loops["acting"]
    assert not loops["learning"], "vectorised over t"
    assert program.with_bounds({"T": 400}).memory.peak > 5 * program.memory.peak

    plain = program.with_options(vectorize=("b",))
    over_t = loops_over_t(plain)
    (acting,) = over_t["acting"]
    learning = [loops for name, loops in over_t.items() if name.startswith("learning") and loops]
    assert len(learning) == 1 and acting not in learning[0], "a loop of its own"


def test_an_average_over_time_makes_learning_wait() -> None:
    program = reinforce(5, average_over_time=True).compile(BOUNDS)
    assert program.with_bounds({"T": 400}).memory.peak > 3 * program.memory.peak


def test_a_constant_factor_is_lifted_and_does_not_make_learning_wait() -> None:
    """Dividing every step's loss by the number of running steps keeps the overlap."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        with ctx.region("acting"):
            env = trl.env.make("CartPole-v1")
            dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[8]).build()
            o = trl.like(env.obs_space, domain=(b, i, t))
            o[b, i, 0] = env.reset(domain=(b, i))
            a = dnn.sample(o)
            step = env.step(a)
            o[b, i, t + 1], r, d = step
        with ctx.region("learning"):
            g = r[b, i, t : trl.min(t + 3, T)].discounted_sum(0.9)
            alive = step.alive.cast("f32")
            (-dnn.log_prob(a) * g * alive / alive.sum(over=(b, t))).backward()
            trl.optim.SGD(dnn.params).step()
        ctx.output("return", r.sum(over=t).mean(over=b))
    program = ctx.compile(BOUNDS)
    loops = loops_over_t(program)
    assert loops["learning"] & loops["acting"]
    assert program.with_options(simplify=False).memory.peak > 2 * program.memory.peak


def test_a_statistic_stays_in_its_iteration() -> None:
    """Even without readers, and with a cycle of several statements that updates the iterations."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        p = trl.tensor((4,), "f32", domain=(i,)).named("p")
        p[0] = trl.ones((4,))
        q = trl.udf(np.cos, p, out=p, name="q")
        x = trl.random.normal((4,), domain=(i, t)) * q
        total = trl.udf(np.tanh, x, out=x, name="y").sum(over=t)
        ctx.output("statistic", trl.udf(np.tanh, total, out=total, name="statistic"))
        p[i + 1] = trl.udf(np.sin, q, out=q, name="next")
    ast = ctx.compile({"I": 6, "T": 5}, trl.Options(vectorize=False)).ast
    assert [line[:5] for line in str(ast).splitlines() if line.startswith("for")] == ["for i"]


def test_who_reads_a_row_runs_right_behind_its_last_value() -> None:
    with trl.Context("a", "b") as ctx:
        (a, _), (b, B) = ctx.dims
        x = trl.random.normal(domain=(a, b)).named("x")
        ctx.output("y", x[a, 0:B].discounted_sum(0.5).sum(over=a))
    options = trl.Options(vectorize=False, lift=False)
    few, many = (ctx.compile({"A": n, "B": 4}, options).memory.peak for n in (3, 30))
    assert few == many, "one row is kept"


def test_points_that_need_each_other_are_no_error_where_nobody_needs_them() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[t] = x[T - 1 - t] * 0.5
        ctx.output("t", trl.value(t) * 2)
    np.testing.assert_array_equal(ctx.compile({T: 3}).execute()["t"], [0, 2, 4])


def test_who_depends_on_others_is_found_through_any_number_of_them() -> None:
    reads = {1: {0}, 2: {1}, 3: {2, 5}, 4: {5}}
    found = trial._depending(reads, {0})
    assert found == {1, 2, 3}


@pytest.mark.parametrize("again", [True, False])
def test_what_fills_little_of_what_can_be_computed_again_stays_beside_it(again: bool) -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        w = np.full((2, 64), 0.1, np.float32)
        x = trl.tensor((2,), domain=(t,))
        x[0] = trl.ones((2,))
        h = (x @ w).tanh()
        x[t + 1] = (h @ w.T).tanh()
        u = trl.udf(np.tanh, trl.random.normal(domain=(t,)), out="f32")
        ctx.output("little", (h * u).sum(axis=0).tanh().named("little"))
        ctx.output("h", h)
    program = ctx.compile({"T": 20}, trl.Options(rematerialize=again))
    (little,) = (op for op in program.stages["vectorize"].artifact if op.label == "little")
    assert little.domain == (("t",) if again else ())


def test_no_execute_is_guarded() -> None:
    for window in (None, 5):
        ast = reinforce(window).compile(BOUNDS).ast
        for node in ast:
            if isinstance(node, If):
                assert not any(isinstance(x, Execute) for x in inside(node)), ast.line(node)


def inside(node: Any) -> list[Any]:
    found = [node]
    for child in children(node):
        found += inside(child)
    return found


def test_n_step_has_a_prologue_a_steady_state_and_an_epilogue() -> None:
    ast = reinforce(5).compile(BOUNDS).ast
    inner = [n for n in ast if isinstance(n, Loop) and n.counter != "c0"]
    runs = [[ast.names[x.op_id] for x in inside(n) if isinstance(x, Execute)] for n in inner]
    assert runs == [["acting"], ["acting", "learning"], ["learning"]]
    ranges = [(n.first.const, n.last.const) for n in inner]
    assert ranges == [(0, 3), (4, 39), (40, 43)]


def test_statement_count_does_not_depend_on_depth() -> None:
    for window in (None, 5):
        counts = {
            len(reinforce(window, hidden=(4,) * depth).compile(BOUNDS).schedule.statements)
            for depth in (1, 2, 6)
        }
        assert len(counts) == 1
        assert counts.pop() <= 20


def test_a_wrong_schedule_is_caught() -> None:
    program = PATTERNS["forward_recurrence"].context().compile({"T": 6})
    constraints = Constraints(program.fused)
    validate(constraints, program.schedule.tree)
    edge = next(e for e in constraints.validity if e.source == e.sink)
    constraints.validity.append(Edge(edge.sink, edge.source, edge.pairs.inverse()))
    with pytest.raises(VerificationError, match="before"):
        validate(constraints, program.schedule.tree)


def test_points_are_a_total_order() -> None:
    program = reinforce(5).compile(BOUNDS)
    points = program.schedule.points()
    times = np.sort(np.concatenate([p.time for p in points]))
    assert (times == np.arange(len(times))).all()
    acting = next(p for p in program.schedule.points(i=1) if p.name == "acting")
    assert (np.diff(acting.coordinates["t"][np.argsort(acting.time)]) == 1).all()
    with pytest.raises(trl.errors.DomainError, match="not a dimension"):
        program.schedule.points(q=1)


def test_the_schedule_holds_for_other_bounds() -> None:
    program = reinforce(3, hidden=(4,)).compile({"B": 2, "I": 2, "T": 9})
    other = program.with_bounds({"T": 5, "I": 1})
    assert other.schedule.tree is program.schedule.tree
    fresh = reinforce(3, hidden=(4,)).compile({"B": 2, "I": 1, "T": 5})
    np.testing.assert_allclose(other.execute()["return"], fresh.execute()["return"])


def test_why_something_was_not_vectorised() -> None:
    program = reinforce(5, hidden=()).compile(BOUNDS)
    vectorize = program.stages["vectorize"]
    state = next(op for op in vectorize.artifact if op.label == "o")  # type: ignore[attr-defined]
    assert vectorize.why(state.id) == "it is on a cycle that runs along t"
    g = next(op for op in vectorize.artifact if op.label == "g")  # type: ignore[attr-defined]
    assert "trial schedule" in (vectorize.why(g.id) or "")


def test_the_pipeline_is_one_line_and_parses_back() -> None:
    whole = pipeline(trl.Options(), {})
    text = str(whole)
    assert text == "simplify | lift | vectorize | windows | accumulate | contract | fuse"
    by_name = {one.name: one for one in whole}
    assert Pipeline.parse(text, by_name) == whole
    assert str(whole.without("lift", "contract")) == (
        "simplify | vectorize | windows | accumulate | fuse"
    )
    with pytest.raises(trl.errors.OptionError, match="no pass 'fusion'"):
        whole.without("fusion")
