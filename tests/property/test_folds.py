"""Long runs: the plan by periodic extrapolation equals the plan point by point."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.frozen import PROGRAMS
from tests.property.drawn import Drawn
from tests.property.programs import chain, programs
from tests.property.test_programs import RUNS, VARIANTS, chosen, sampled
from tests.unit.checks import assert_memory_is_sound
from timerl_nb.base.errors import BoundsError
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement import placement_planner as place
from timerl_nb.compiler.memory.placement import ring_sizes as axes
from timerl_nb.compiler.memory.placement.placement_planner import Plans
from timerl_nb.compiler.memory.steady_state import extrapolated_plan as folded_plans
from timerl_nb.compiler.memory.steady_state.extrapolated_plan import FoldedPlan, layout_of
from timerl_nb.compiler.scheduling.schedule_artifact import Schedule
from timerl_nb.show.memory.memory_view import MemoryView
from timerl_nb.show.schedule.points_of_one_iteration import Turn

MANY = 97  # points: more than most windows, and no multiple of a period


def folded(program: trl.Program, bounds: Mapping[str, int]) -> bool:
    """Return whether a program is planned by extrapolation under bounds; compare with point by point."""
    plan, graph, schedule = (
        program.memory,
        program._compiled.front.constraints,
        program._compiled.front.tree,
    )
    ways: dict[str, Any] = {"smallest": plan.smallest, "donation": plan.donates}
    few = next(iter(Plans(graph, schedule, bounds, **ways, exact=0)))
    if not isinstance(few, FoldedPlan):
        return False
    whole = next(iter(Plans(graph, schedule, bounds, **ways, exact=1 << 60)))
    assert_alike(few, whole)
    assert_drawn_alike(few, whole)
    return True


def assert_alike(few: FoldedPlan, whole: MemoryPlan) -> None:
    """Check that the plan by extrapolation equals the plan point by point."""
    line, known = few.timeline(), whole.timeline()
    assert line.peak == known.peak and line.peak_time == known.peak_time
    assert sum(s.length * s.repeats for s in line.segments) == line.segments[-1].end
    for name in ("time", "bytes", "host", "transient", "turn"):
        assert np.array_equal(getattr(line, name), getattr(known, name)), name
    assert line.by_tensor.keys() == known.by_tensor.keys()
    for name, held in known.by_tensor.items():
        assert np.array_equal(line.by_tensor[name], held), name
    for time in range(0, len(known.time), 1 + len(known.time) // 17):
        assert line.holders_at(time) == known.holders_at(time)
        assert few.moment(time) == whole.moment(time)
        assert np.array_equal(
            line.bytes_between(time, time + 40), known.bytes_between(time, time + 40)
        )
    assert few.stores == whole.stores
    assert few.counts == whole.counts
    layout, other = layout_of(few), layout_of(whole)
    assert layout.homes == other.homes
    assert (layout.merges, layout.latest) == (other.merges, other.latest)
    turns = few.fold.turns if few.fold else 0
    assert np.array_equal(line.ends(turns), known.ends(turns))
    assert line.most_in_turn == known.most_in_turn
    starts = np.arange(3 % len(known.time), len(known.time), 1 + len(known.time) // 7)
    assert np.array_equal(
        line.peak_times(starts, len(known.time)), known.peak_times(starts, len(known.time))
    )


def assert_drawn_alike(few: FoldedPlan, whole: MemoryPlan) -> None:
    """Check that iterations are drawn like those of a plan point by point."""
    other = drawn(whole)
    sizes = {d.name: d.count(whole.bounds) for d in whole.pdg.dims}
    places = (0, 0.3, 0.6, 1)
    turns = [{d: int(x * (sizes[d] - 1)) for d in other.turn.fixed} for x in places]
    for fixed in (None, *turns):
        first, other = (drawn(plan, fixed) for plan in (few, whole))
        assert first.turn.fixed == other.turn.fixed and len(first.turn) == len(other.turn)
        for one, known in zip(first.turn.points, other.turn.points, strict=True):
            assert one.name == known.name
            a, b = (np.argsort(points.time) for points in (one, known))
            for name in ("time", "rank"):
                assert np.array_equal(getattr(one, name)[a], getattr(known, name)[b])
            for d, at in known.coordinates.items():
                assert np.array_equal(one.coordinates[d][a], at[b])
        assert np.array_equal(first.at, other.at) and np.array_equal(first.bytes, other.bytes)
        assert np.array_equal(first.gathered, other.gathered)
        assert first.peak == other.peak and first.program_peak == other.program_peak
        if few.fold is not None and few.fold.inner and other.run is not None:
            assert first.run is not None and first.run.points == other.run.points
            runs = [[s.bytes.tolist() for s in one.stretches] for one in (first.run, other.run)]
            assert runs[0] == runs[1]  # without omissions
        for held, known in zip(first.tensors, other.tensors, strict=True):
            assert (held.name, held.last_read_by) == (known.name, known.last_read_by)
            assert np.array_equal(held.held, known.held)
        for lives in zip(first.lives, other.lives, strict=True):
            assert len({one.name for one in lives}) == 1
            one, known = (np.column_stack([x.born, x.dies, x.reader, x.points]) for x in lives)
            assert np.array_equal(np.unique(one, axis=0), np.unique(known, axis=0))
            assert len(one) == len(known)


def drawn(plan: MemoryPlan, fixed: Mapping[str, int] | None = None) -> MemoryView:
    schedule = Schedule(plan.constraints, plan.clock.schedule, plan.bounds)
    return MemoryView.of_turn(Turn.from_schedule(schedule, plan, fixed=fixed))


@sampled(RUNS // 2)
@given(
    st.one_of(programs(), programs(4, last=chain)), st.sampled_from(VARIANTS), st.integers(0, 40)
)
def test_few_turns_say_what_all_do(drawn: Drawn, options: dict[str, Any], more: int) -> None:
    program = drawn.ctx.compile(drawn.bounds, chosen(drawn, options))
    if not program.memory.swaps.all:
        for name in drawn.bounds:
            folded(program, {**drawn.bounds, name: MANY + more})


# The bound of each program's outermost loop.
REPEATING = {
    "learning_now_and_then": "I",
    "nested_recurrence": "I",
    "adam_with_schedule": "I",
    "branches_of_slices": "T",
    "past": "T",
    "targets": "I",
    "convolutions": "I",
    "clipped ppo": "I",
    **dict.fromkeys(("monte carlo", "n-step", "average over time", "actor-critic"), "I"),
    **dict.fromkeys(("reinforce", "ppo", "step by step", "by points", "apart"), "I"),
    **dict.fromkeys(("in blocks", "recomputed", "two turns", "episodes", "episodes, n-step"), "I"),
}


# Programs with extrapolation in an inner loop; their outermost loop is short.
INSIDE = (
    *("monte carlo", "n-step", "average over time", "actor-critic", "reinforce", "ppo", "apart"),
    *("clipped ppo", "step by step", "by points", "two turns"),
)


@pytest.mark.some_of("name", 6)
@pytest.mark.parametrize("name", REPEATING)
def test_the_frozen_programs_repeat(name: str) -> None:
    program = PROGRAMS[name].compile("interpret")
    assert folded(program, {**program.bounds, REPEATING[name]: 83})


@pytest.mark.some_of("name", 3)
@pytest.mark.parametrize("name", INSIDE)
def test_the_frozen_programs_repeat_within_a_turn(name: str) -> None:
    program = PROGRAMS[name].compile("interpret")
    assert folded(program, {**program.bounds, "T": 111})


@pytest.mark.some_of("case", 4)
@pytest.mark.parametrize(
    "case",
    [
        *((name, REPEATING[name], 61) for name in ("n-step", "monte carlo", "past", "targets")),
        *((name, REPEATING[name], 61) for name in ("average over time", "by points")),
        *((name, "T", 97) for name in ("n-step", "monte carlo")),
    ],
    ids=lambda case: f"{case[0]}-{case[1]}",
)
def test_a_run_is_what_was_planned_by_few_turns(
    case: tuple[str, str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, bound, count = case
    one, turns = PROGRAMS[name], {bound: count}
    long = replace(one, bounds={**one.bounds, **turns})
    expected = long.compile("interpret").execute(seed=1)
    monkeypatch.setattr(place, "EXACT", 0)
    for executor in ("interpret", "xla"):
        program = long.compile(executor)
        assert isinstance(program.memory, FoldedPlan)
        events: list[Event] = []
        heard = events.append if executor == "interpret" else None
        result = program.execute(seed=1, on_event=heard)
        for key, value in expected.items():
            np.testing.assert_allclose(result[key], value, rtol=1e-5, atol=1e-6, err_msg=key)
        if executor == "interpret":
            assert_memory_is_sound(program, result, events)


def test_a_long_run_is_planned_at_once() -> None:
    program = PROGRAMS["n-step"].compile("xla")
    few, many = (program.with_bounds({"I": turns}).memory for turns in (10**5, 10**7))
    assert len(few.clock) == len(many.clock)
    grown = (many.peak - few.peak) / (10**7 - 10**5)
    assert grown == sum(s.unit for s in many.stores.values() if s.most > 10**6)
    segments = many.timeline().segments
    assert max(segment.repeats for segment in segments) > 10**7 - 100
    assert f"i = {10**7 - 1}" in many.moment(segments[-1].end - 1)
    for name in ("time", "bytes", "host", "by_tensor"):
        with pytest.raises(BoundsError, match="too many for an array"):
            getattr(many.timeline(), name)


def test_turns_of_a_long_run_are_drawn_by_those_that_stand_for_them() -> None:
    program = PROGRAMS["n-step"].compile("xla").with_bounds({"I": 10**6})
    last, other = (MemoryView.from_program(program, fixed={"i": i}) for i in (10**6 - 1, 10**5))
    line = program.memory.timeline()
    for view in (last, other):  # with the iteration numbers of the run, not of its representative
        times = view.turn.ranks[view.at]
        assert view.bytes.tolist() == line.bytes_at(times).tolist()
        total = sum((one.bytes for one in view.tensors), view.gathered)
        assert total.tolist() == view.bytes.tolist()
        assert {line.turn_at(int(time)) for time in times} == set(view.turn.fixed.values())
    assert MemoryView.from_program(program).peak.bytes == program.memory.peak
    assert last.turn.fixed == {"i": 10**6 - 1} and last.program_peak.bytes == program.memory.peak
    assert len(last.turn) == len(other.turn) > 0
    assert last.program_peak.moment == program.memory.moment(program.memory.timeline().peak_time)


def test_a_run_no_longer_than_the_two_that_would_say_it_is_planned_by_itself() -> None:
    program = PROGRAMS["n-step"].compile("interpret")
    graph, schedule = program.memory.constraints, program.memory.clock.schedule
    long = next(iter(Plans(graph, schedule, {**program.bounds, "I": 200}, exact=0))).fold
    assert long is not None
    both = sum(window["I"] for window in long.windows)
    for turns in (both - long.period, both, both + long.period):
        plan = next(iter(Plans(graph, schedule, {**program.bounds, "I": turns}, exact=0)))
        assert isinstance(plan, FoldedPlan) == (turns > both)
        told = f"planned point by point, {len(plan.clock):,} points: iterations of "
        assert (told in str(plan)) == (turns <= both)


def test_a_plan_says_why_a_long_run_was_looked_at_point_by_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(place, "EXACT", 0)
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        x = trl.random.normal((), domain=(i,))
        ctx.output("some", x[(i % 7 == 0) & (i % 11 == 0)])
        ctx.output("reversed", trl.random.normal((), domain=(i,), stream="y")[I - 1 - i])
    plan = ctx.compile({I: 90}, trl.Options(vectorize=False, lift=False)).memory
    assert not isinstance(plan, FoldedPlan)
    assert plan.whole and f"points: {plan.whole}" in str(plan)


def test_turns_in_which_nothing_runs() -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        x = trl.random.normal((), domain=(i,), stream="x")
        ctx.output("few", x[i <= 1])
        ctx.output("last", x[i >= I - 2])
    program = ctx.compile({I: 9}, trl.Options(vectorize=False, lift=False))
    assert folded(program, {"I": 203})


# Aperiodic programs: none is planned by extrapolation.
@pytest.mark.parametrize("index", ["I - 1 - i", "i // 2", "trl.min(2 * i, I - 1)"])
def test_turns_that_differ_are_planned_point_by_point(index: str) -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        x = trl.random.normal((), domain=(i,), stream="x")
        y = trl.tensor((), domain=(i,)).named("y")
        y[0] = x[0]
        y[i + 1] = (y * 0.5 + x[eval(index, {"i": i, "I": I, "trl": trl})]).tanh()
        ctx.output("y", y)
    program = ctx.compile({I: 6}, trl.Options(vectorize=False, lift=False))
    assert not folded(program, {"I": 203})


def conditional(moduli: tuple[int, ...]) -> trl.Context:
    """A state with some returned values, selected by the iteration modulo some numbers."""
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        x = trl.tensor((), domain=(i,)).named("x")
        x[0] = trl.constant(1.0)
        x[i + 1] = (x + trl.random.normal((), domain=(i,))).sin()
        for k in moduli:
            ctx.output(f"every {k}", x[i % k == 0])
    return ctx


def test_a_period_that_is_too_long_is_refused_with_the_numbers_and_their_lines() -> None:
    with pytest.raises(BoundsError) as caught:
        conditional((3119, 3121)).compile({"I": 2 * 10**7})
    said = str(caught.value)
    assert "at 20,000,001 points, too many to plan" in said
    assert (
        "iterations of i repeat with period 9,734,399, the least common multiple of 3,119 and 3,121"
        in said
    )
    assert re.search(r"i modulo 3,121 is used at test_folds\.py:\d+: ctx\.output\(f\"every", said)
    assert "choose moduli such that the larger ones are multiples of the smaller ones" in said


def test_a_ring_of_many_values_is_found_without_trying_all_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search may return a ring slightly longer than the shortest."""
    looked: list[int] = []
    whole = axes.have_disjoint_slots
    monkeypatch.setattr(
        axes, "have_disjoint_slots", lambda *given: looked.append(0) or whole(*given)
    )
    monkeypatch.setattr(axes, "_WORK", 1 << 14)
    program = conditional((3, 7)).compile({"I": 4000})
    assert len(looked) < 60
    store = next(one for one in program.memory.stores.values() if one.name == "x'")
    assert store.most <= store.size <= 4000
    have, want = (one.execute(2) for one in (program, program.with_options(stores="point")))
    assert all(np.array_equal(have[name], want[name]) for name in ("every 3", "every 7"))


def test_of_very_many_values_each_has_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ring is searched among so many values: planning stays fast for any length with conditional outputs."""
    program = conditional((3,)).compile({"I": 10**7})
    assert isinstance(program.memory, FoldedPlan) and len(program.memory.clock) < 200
    store = next(one for one in program.memory.stores.values() if one.name == "x'")
    assert (store.kind, store.most) == ("point", 3_333_334)
    ways = [trl.Options(executor=executor) for executor in ("interpret", "xla")]
    expected = [conditional((3,)).compile({"I": 400}, way).execute(2) for way in ways]
    monkeypatch.setattr(place, "EXACT", 0)
    monkeypatch.setattr(folded_plans, "MOST_VALUES", 99)
    for way, known in zip(ways, expected, strict=True):
        program = conditional((3,)).compile({"I": 400}, way)
        assert isinstance(program.memory, FoldedPlan)
        assert "point" in {s.kind for s in program.memory.stores.values()}
        assert np.array_equal(program.execute(2)["every 3"], known["every 3"])
