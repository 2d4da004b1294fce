"""Search over pass decisions: candidates, forecasts, budgets, and reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from tests.unit.checks import assert_same, leaving, tried_schedules
from timerl_nb.base.errors import BudgetError, CeilingError
from timerl_nb.base.machine_model import Machine
from timerl_nb.compiler.ir.recorded_pass_decisions import (
    Candidate,
    Forecast,
    PassChoice,
)
from timerl_nb.compiler.loops.loop_nodes import Execute
from timerl_nb.compiler.memory.budget.budget_check import Planner
from timerl_nb.compiler.memory.budget.candidate_cost import point_seconds
from timerl_nb.compiler.memory.budget.memory_lower_bound import (
    inevitable,
    lower_bound,
    unfused_lower_bound,
)
from timerl_nb.compiler.memory.liveness.unavoidable_liveness import live_across
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement import placement_planner as place
from timerl_nb.compiler.memory.placement.placement_planner import Plans
from timerl_nb.compiler.passes.fusion.fuse import Fuse
from timerl_nb.compiler.passes.vectorization.vectorize import Vectorize
from timerl_nb.compiler.scheduling import vectorization_trials as trial
from timerl_nb.compiler.scheduling.statements import Statements
from timerl_nb.driver.program import Program
from timerl_nb.driver.search import memory_budget_search as search
from timerl_nb.driver.stages import CompileObserver
from timerl_nb.show import StepsView

BOUNDS = {"B": 4, "I": 3, "T": 40}


def compiled(window: int | None = None, **options: Any) -> Program:
    return reinforce(window, hidden=()).compile(BOUNDS, trl.Options(**options))


def choice_over(program: Program, dim: str) -> PassChoice:
    found = [c for c in program.stages["vectorize"].choices if c.what == f"vectorize over {dim}"]
    assert len(found) == 1
    return found[0]


def launches(program: Program) -> int:
    return sum(len(p) for p in program.schedule.points())


@pytest.mark.parametrize("window", [None, 4])
def test_forecasts_are_what_comes_of_the_program(window: int | None) -> None:
    program = compiled(window)
    choice = choice_over(program, "t")
    assert [c.name for c in choice.candidates] == ["keep", "all", "none"]
    assert choice.taken.name == "keep"
    assert choice.why == "there is no memory budget, and memory need not grow with the bound"
    taken = choice.taken.forecast
    assert isinstance(taken, Forecast)
    assert (taken.peak, taken.launches) == (program.memory.peak, launches(program))
    kept, whole = choice["keep"].forecast, choice["all"].forecast
    assert isinstance(kept, Forecast) and isinstance(whole, Forecast)
    if window is not None:
        assert kept.peak < whole.peak and kept.launches > whole.launches
    # a second compilation agrees with the forecast
    none = choice["none"].forecast
    stepwise = program.with_options(vectorize=("b",))
    assert isinstance(none, Forecast)
    assert (none.peak, none.launches) == (stepwise.memory.peak, launches(stepwise))


def test_the_order_of_the_paper_is_a_candidate() -> None:
    program = compiled(4, trial=False)
    choice = choice_over(program, "t")
    assert [c.name for c in choice.candidates] == ["all", "none"]
    assert choice.taken.name == "all"
    assert choice.why == "trials are switched off, so every possible operation is vectorised"
    assert isinstance(choice.taken.forecast, Forecast)
    assert choice.taken.forecast.peak == program.memory.peak


def test_dimensions_without_recurrences_leave_no_choice() -> None:
    program = compiled()
    assert [c.what for c in program.stages["vectorize"].choices] == [
        "vectorize over i",
        "vectorize over t",
    ]
    assert program.stages["simplify"].choices == ()


def test_a_large_budget_buys_speed() -> None:
    program = compiled(4)
    quick = program.with_options(device_memory="1GiB")
    choice = choice_over(quick, "t")
    assert choice.taken.name == "all"
    assert choice.why == "it is the fastest candidate within 1,073,741,824 bytes"
    assert launches(quick) < launches(program)
    assert quick.memory.saved_by["vectorize over t: all"] == choice.why
    assert_same(program.execute(seed=1), quick.execute(seed=1), "within a budget")


def test_what_isl_gives_up_is_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Vectorize.run

    def given_up(self: Vectorize, pdg: Any) -> Any:
        if any(strategy != "keep" for _, strategy in self.strategies):
            raise CeilingError("it takes too much.")
        return run(self, pdg)

    monkeypatch.setattr(Vectorize, "run", given_up)
    choice = choice_over(compiled(4, device_memory="1GiB"), "t")
    assert choice.taken.name == "keep"
    assert choice["all"].forecast == "not examined: it cannot be faster, or isl gave up"


def test_a_small_budget_cuts_into_blocks() -> None:
    program = compiled(stores="point")
    assert "incrementalize" not in str(program.pipeline)
    budget = leaving(program, 0.7)
    small = program.with_options(device_memory=budget)
    (choice,) = small.stages["incrementalize"].choices
    assert choice.taken.name != "whole"
    assert small.memory.needed <= budget
    passes = [one for one in small.stages.values() if one.rewritten and one.choices]
    searched = [one.name for one in passes if not one.known]
    assert searched == ["vectorize"]  # timings of the search differ
    assert isinstance(choice.taken.forecast, Forecast)
    assert choice.taken.forecast.peak == small.memory.peak
    assert "t_block" in small.fused.dims
    assert_same(program.execute(seed=1), small.execute(seed=1), "in blocks")
    # other bounds give other choices, and a plan that differs from the search's last
    short = small.with_bounds({"T": 8})
    assert "t_block" not in short.fused.dims and short.memory.bounds == short.bounds
    assert small.with_options(device_memory=budget).memory is small.memory
    assert small._compiled.request.compiler._searched == (None, None), "a large plan is kept once"


def test_what_is_kept_instead_of_being_computed_again_is_told_with_the_memory(
    tmp_path: Path,
) -> None:
    """A disabled pass has no stage to explain itself."""
    program = compiled()
    small = program.with_options(device_memory=leaving(program, 0.7))
    assert "rematerialize" not in small.stages
    (choice,) = small.stages["memory"].choices
    assert [one.name for one in choice.candidates] == ["keep", "recompute"]
    found = choice.taken.forecast
    assert choice.taken.name == "keep" and isinstance(found, Forecast)
    assert found.needed == small.memory.needed
    (shown,) = StepsView.from_stage(small.stages["memory"]).choices
    assert [(way.name, way.taken) for way in shown.candidates] == [
        ("keep", True),
        ("recompute", False),
    ]
    assert choice.what in small.export_html(tmp_path / "page").read_text()
    # no choice without a budget, nor if the options leave one alternative
    assert program.stages["memory"].choices == ()
    kept = small.with_options(rematerialize=False)
    assert kept.stages["memory"].choices == ()


def test_of_many_dimensions_not_all_ways_together_are_tried() -> None:
    with trl.Context("i", "t", "e", "j") as ctx:
        for d, _ in ctx.dims:
            x = trl.tensor((), domain=(d,))
            x[0] = trl.zeros(())
            x[d + 1] = (x * 0.5).cos()
            ctx.output(f"{d}", x.sin())
    bounds = dict.fromkeys("ITEJ", 3)
    program = ctx.compile(bounds, trl.Options(trial=True))
    tried: list[str] = []
    observer = CompileObserver(candidate=lambda one: tried.append(one.name))
    with pytest.raises(BudgetError) as refused:
        program.again(options={"device_memory": 1}, observer=observer)
    unchanged = [name for name in tried if "=" not in name]
    ways = {", ".join(name.split(", ")[:4]) for name in unchanged}
    assert {"keep over i, keep over t, keep over e, keep over j"} < ways and len(ways) <= 3 + 4 * 2
    small = program.with_options(device_memory=refused.value.needed)
    assert_same(program.execute(), small.execute(), "within what it needs")


def test_what_fits_is_left_whole() -> None:
    program = compiled(device_memory=compiled().memory.needed, trial=True)
    (choice,) = program.stages["incrementalize"].choices
    assert choice.taken.name == "whole" and len(choice.candidates) == 1


def test_a_budget_that_is_enough_changes_nothing() -> None:
    """The fastest decisions are tried first; if they fit, nothing else is."""
    bounds = {"B": 256, "I": 2, "T": 250}
    program = reinforce(hidden=(64, 64)).compile(bounds, trl.Options(executor="xla"))
    assert any(how.startswith("in blocks") for how in program.memory.saved_by)
    tried: list[str] = []
    observer = CompileObserver(candidate=lambda one: tried.append(one.name))
    within = program.again(options={"device_memory": program.memory.needed}, observer=observer)
    assert tried == ["keep over i, keep over t, the fastest size"]
    assert str(within.fused) == str(program.fused)
    assert within.memory.needed == program.memory.needed
    (blocks,) = within.stages["incrementalize"].choices
    assert blocks.taken.name == "for speed" and "the fastest candidate within" in blocks.why
    less = program.with_options(device_memory=program.memory.needed - 1)
    assert less.memory.needed < program.memory.needed
    assert seconds(less) >= seconds(within)


def test_what_speed_leaves_whole_is_cut_within_a_budget() -> None:
    """The tiles belong to the graph chosen for speed, even without sequential loops."""
    options = trl.Options(executor="xla", rematerialize=False)
    program = reinforce(hidden=(16,)).compile({"B": 8, "I": 2, "T": 200}, options)
    budget = leaving(program, 0.6)
    cut, whole = (
        choice_over(program.with_options(device_memory=budget, incrementalize=way), "t")
        for way in ("auto", False)
    )
    assert isinstance(found := cut.taken.forecast, Forecast) and cut.taken.name == "keep"
    assert isinstance(other := whole.taken.forecast, Forecast) and other.needed <= budget
    assert found.needed <= budget and found.seconds < other.seconds
    with trl.Context("b") as ctx:
        ((b, B),) = ctx.dims
        weights = trl.constant(np.eye(32, dtype=np.float32))
        x = trl.random.normal((32,), domain=(b,), stream="x") @ weights
        ctx.output("sum", (x.tanh() @ weights).sum(over=b))
    program = ctx.compile({B: 256}, options)
    least = program.with_options(device_memory=program.memory.needed // 5).memory.needed
    assert least < program.memory.needed // 4


def seconds(program: Program) -> float:
    found = program.stages["incrementalize"].choices[0].taken.forecast
    assert isinstance(found, Forecast)
    return found.seconds


def test_a_choice_shows_itself() -> None:
    choice = choice_over(compiled(), "t")
    text = str(choice)
    assert text.startswith("vectorize over t: keep, because there is no memory budget")
    assert text.count("launches") == 3 and text.count("\n* ") == 1
    assert choice.find("none") == [text.splitlines()[3]]
    value = choice.to_json()
    assert value["taken"] == "keep"
    assert [c["name"] for c in value["candidates"]] == ["keep", "all", "none"]
    assert all(c["peak"] > 0 and c["seconds"] > 0 for c in value["candidates"])
    assert "digraph" in choice.to_dot()
    bundle = choice._repr_mimebundle_()
    assert bundle["text/plain"] == text and "<svg" in str(bundle["image/svg+xml"])
    with pytest.raises(KeyError):
        choice["some"]


def test_a_trial_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    run = Fuse.run

    def counted(self: Fuse, pdg: Any) -> Any:
        seen.append(len(pdg))
        return run(self, pdg)

    monkeypatch.setattr(Fuse, "run", counted)
    program = compiled(4)
    assert len(seen) == 1  # everything over t is stored: the trial's schedule is the program's
    str(choice_over(program, "t"))
    assert len(seen) == 2  # that of `all`: the others are cached


def test_a_hopeless_budget_is_refused_with_what_would_do() -> None:
    """One parameter exceeds the budget; the named budget is the search's minimum, and suffices."""
    ctx = reinforce(hidden=(32, 32))
    with pytest.raises(BudgetError) as caught:
        ctx.compile(BOUNDS, trl.Options(device_memory=1000))
    assert caught.value.hint == f"device_memory={caught.value.needed} would do."
    least = ctx.compile(BOUNDS, trl.Options(device_memory=caught.value.needed))
    assert least.memory.needed <= caught.value.needed


@pytest.mark.parametrize("options", [{}, {"vectorize": False}, {"fuse": False}])
def test_the_least_is_less_than_any_plan_needs(options: dict[str, Any]) -> None:
    program = compiled(**options)
    floor = lower_bound(Statements.from_graph(program.fused), program.bounds)
    assert (
        inevitable(program.pdg, program.bounds)
        <= floor
        <= program.memory.with_swaps_below(1).needed
    )
    assert floor > program.memory.with_swaps_below(1).needed // 3
    whole = program.stages["fuse" if program.options.fuse else "separate"].previous
    assert whole is not None
    assert 0 < unfused_lower_bound(whole, program.bounds) <= floor
    assert 0 < live_across(whole, program.bounds) <= program.memory.needed
    plans = Plans(program._compiled.front.constraints, program._compiled.front.tree, program.bounds)
    for plan in plans:
        assert plans.lower_bound(swap=False) <= plan.needed
        swapped = plan.with_swaps_below(1).needed
        assert plans.lower_bound(swap=True) <= min(plan.needed, swapped)
        assert plans.swapped_lower_bound <= swapped
    assert plans.lower_bound(swap=False) > program.memory.needed // 2


@pytest.mark.parametrize(
    "options",
    [{}, {"incrementalize": {"b": 1}}, {"fuse": False, "incrementalize": {"b": 2}}],
)
def test_what_waits_for_the_returns_is_known_before_anything_is_fused(
    options: dict[str, Any],
) -> None:
    """All activations are alive when the returns are computed, whether learning is tiled or not."""
    bounds = {"B": 8, "I": 2, "T": 40}
    found = trl.Options(swap=False, **options)
    program = reinforce(hidden=(32, 32)).compile(bounds, found)
    whole = program.stages["fuse" if found.fuse else "separate"].previous
    assert whole is not None
    activations = 2 * 8 * 40 * 32 * 4
    assert activations < live_across(whole, program.bounds) <= program.memory.needed


@pytest.mark.parametrize("every", [False, True])
def test_what_a_short_slice_reads_again_and_again_counts_once(every: bool) -> None:
    """Values of a merge may be one value, and nothing is gathered.

    Regression from random programs.
    """
    options = trl.Options(simplify=False, accumulate=False) if every else None
    for length, least in ((6, 1), (40, 40)):
        with trl.Context("t") as ctx:
            ((t, T),) = ctx.dims
            x = trl.data(np.array([0.1, 0.2, 0.3], np.float32))
            if every:
                ctx.output("y", x[t % 2 == 0].tanh().otherwise(0.5)[0:T].sum(axis=0))
            else:
                ctx.output("y", (x[t <= 0].tanh().otherwise(0.5) * 0.7).sum(axis=0))
        program = ctx.compile({T: length}, options)
        floor = lower_bound(Statements.from_graph(program.fused), program.bounds)
        assert 12 * least <= floor <= program.memory.with_swaps_below(1).needed, str(program.fused)


def test_long_programs_are_forecast_over_fewer_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled().with_bounds({"I": 40, "T": 10})
    exact = program.memory.peak, launches(program)
    monkeypatch.setattr(place, "EXACT", 200)
    found = choice_over(program, "t")["keep"].forecast
    assert isinstance(found, Forecast)
    assert (found.peak, found.launches) == exact
    monkeypatch.setattr(search, "MOST_POINTS", 4)
    monkeypatch.setattr(place, "EXACT", 1_000_000)
    assert "too large for a trial" in str(choice_over(program, "t")["none"].forecast)


def test_the_cost_of_a_product() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.random.normal((512, 512), domain=(t,))
        ctx.output("y", x @ trl.data(np.ones((512, 512), np.float32)))
        ctx.output("z", x.sum(axis=(0, 1)))
    program = ctx.compile({"T": 2}, trl.Options(fuse=False, vectorize=False))
    sizes = program.memory.sizes
    seconds = {
        op.attrs.body[-1].kind: point_seconds(sizes, op, Machine())
        for op in program.fused
        if op.kind == "dataflow"
    }
    assert seconds["dot"] > 10 * seconds["sum"] > 10 * Machine().launch
    assert sum(isinstance(n, Execute) for n in program.ast) > 0


def test_swaps_that_cannot_lower_the_need_are_not_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    front, planner = compiled()._compiled.front, Planner(True, True, budget=1, swap=True)
    asked: list[int] = []
    real = MemoryPlan.with_swaps_below

    def counted(plan: MemoryPlan, budget: int) -> MemoryPlan:
        asked.append(budget)
        return real(plan, budget)

    monkeypatch.setattr(MemoryPlan, "with_swaps_below", counted)
    plans = planner.plans(front.constraints, front.tree, BOUNDS)
    least = planner.choose_fitting(plans)
    assert asked and plans.swapped_lower_bound <= least.needed
    asked.clear()
    plans.swapped_lower_bound = max(plan.needed for plan in plans)
    assert not planner.choose_fitting(plans).swaps.all and not asked


@pytest.mark.filterwarnings("ignore:the interpreter runs")
def test_a_refusal_needs_a_single_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA's figure confirms the decision of the refusal, without a search of its budget."""
    asked: list[search.Search] = []
    real = search.Search.find_decision

    def counted(one: search.Search, **options: bool) -> Any:
        asked.append(one)
        return real(one, **options)

    monkeypatch.setattr(search.Search, "find_decision", counted)
    with pytest.raises(BudgetError) as caught:
        compiled(executor="xla", device_memory=500)
    assert len(asked) == 1
    needed = caught.value.needed
    assert compiled(executor="xla", device_memory=needed).memory.needed <= needed


def test_another_budget_is_searched_with_what_is_known_of_the_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No graph is rescheduled or replanned, so memory does not grow with the number of budgets."""
    program = compiled()
    asked: list[str] = []
    for module, name in ((trial, "find_schedule"), (place, "find_lifetimes")):
        real = getattr(module, name)

        def counted(*args: Any, real: Any = real, name: str = name) -> Any:
            asked.append(name)
            return real(*args)

        monkeypatch.setattr(module, name, counted)

    def fitted(share: float) -> int:
        asked.clear()
        within = int(program.memory.needed * share)
        assert program.with_options(device_memory=within).memory.needed <= within
        return len(asked)

    first = sum(fitted(share) for share in (0.8, 0.6, 0.4))
    then = [fitted(share) for share in (0.79, 0.59, 0.39)]
    # the chosen graph is planned for its loops
    assert first > 20 and max(then) <= 2, (first, then)


def test_few_blocks_are_scheduled_for_the_largest_that_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Largest tile first: once one fits, most smaller ones are known to be slower."""
    bounds = {"B": 8, "I": 2, "T": 200}
    program = reinforce(hidden=(16,)).compile(bounds, trl.Options(executor="xla"))
    scheduled, fitting = tried_schedules(monkeypatch), list[int]()
    within = program.memory.needed * 2 // 5

    def note(one: Candidate) -> None:
        if isinstance(one.forecast, Forecast) and one.forecast.needed <= within:
            fitting.append(len(scheduled))

    observer = CompileObserver(candidate=note)
    made = program.again(options={"device_memory": within}, observer=observer)
    assert made.memory.needed <= within
    blocks = {(d.name, d.step) for pdg in scheduled[fitting[0] :] for d in pdg.dims if d.step != 1}
    assert len(blocks) == 1 and len(scheduled) <= 5, blocks
