"""Stores: the kind chosen for each tensor, and minimal ring sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.compiler.memory.liveness.slot_live_ranges import LiveRanges
from timerl_nb.compiler.memory.liveness.value_lifetimes import ValueLiveRanges, series
from timerl_nb.compiler.memory.memory_timeline import Span
from timerl_nb.compiler.memory.placement.ring_sizes import Axis, _reach, have_disjoint_slots, ring
from timerl_nb.compiler.memory.placement.storage_kinds import choose


def live_pairs(span: Span) -> list[tuple[int, int]]:
    count = len(span.birth_times)
    return [
        (p, q)
        for p in range(count)
        for q in range(p)
        if span.birth_times[p] <= span.dies[q] and span.birth_times[q] <= span.dies[p]
    ]


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """Values over (i, t) with random order of birth and lifetime."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 8)))
    points = np.argwhere(np.ones(shape))
    born = np.arange(len(points)) * draw(st.sampled_from([1, 2]))
    if draw(st.booleans()):
        points = points[draw(st.permutations(range(len(points))))]
    longest = draw(st.integers(0, 5))
    ages = draw(st.lists(st.integers(0, longest), min_size=len(born), max_size=len(born)))
    dies = born + np.array(ages, np.int64)
    return Span((("x", 4),), ValueLiveRanges(points, born, dies, dies))


@given(spans())
def test_most_at_once_is_the_height_of_the_series(span: Span) -> None:
    end = int(max(span.dies.max(), span.birth_times.max())) + 2
    assert span.lives.most_at_once == series(span.birth_times, span.dies, 1, end).max()


@given(spans())
def test_a_ring_keeps_live_values_apart_and_no_shorter_one_does(span: Span) -> None:
    found = choose(span.lives, ("i", "t"), smallest=True)
    pairs = live_pairs(span)
    if found.kind == "slot":
        assert not pairs
    if found.kind != "ring":
        return
    (axis,) = found.axes

    def collide(size: int) -> bool:
        at = span.points[:, axis.coordinate] % size
        return any(at[p] == at[q] for p, q in pairs)

    assert not collide(axis.size)
    assert all(collide(size) for size in range(1, axis.size))


@st.composite
def ranges(draw: st.DrawFn) -> LiveRanges:
    """Values over (b, t) with live ranges; some are never read."""
    count = draw(st.integers(1, 9))
    points = draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 30)), min_size=count, max_size=count)
    )
    born = draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
    ages = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    return LiveRanges(np.array(points), np.array(born), np.array(born) + np.array(ages))


@given(ranges(), st.booleans())
def test_reach_is_the_greatest_distance_of_two_that_are_there_at_once(
    given: LiveRanges, beside: bool
) -> None:
    others = [Axis(0, 3, ring=False)] if beside else []
    ends = np.maximum(given.last, given.born + 1)
    distances = [
        abs(int(given.coordinates[p, 1] - given.coordinates[q, 1]))
        for p in range(len(given.born))
        for q in range(len(given.born))
        if given.born[p] < ends[q] and given.born[q] < ends[p]
        if not beside or given.coordinates[p, 0] == given.coordinates[q, 0]
    ]
    assert _reach(given, others, 1) == max(distances) + 1


def test_a_ring_much_longer_than_what_is_there_at_once_is_found() -> None:
    """Pairs of values at every distance up to twelve: no shorter ring is conflict-free."""
    at = np.array([x for d in range(1, 13) for x in (20 * d, 20 * d + d)])[:, None]
    born = np.arange(24)
    apart_by = LiveRanges(at, born, 2 * (born // 2) + 2)
    assert apart_by.most_at_once == 2
    assert ring(apart_by, [], 0) == Axis(0, 13)
    assert not have_disjoint_slots([Axis(0, 12)], [apart_by])
    assert ring(apart_by, [], 0, longest=13) == Axis(0, 13)
    assert ring(apart_by, [], 0, longest=12) is None
    near = LiveRanges(np.arange(24)[:, None], born, born + 3)
    assert ring(near, [], 0, tries=1) == ring(near, [], 0, tries=0) == Axis(0, 3)


def test_why_each_store_is_what_it_is() -> None:
    program = reinforce(5, hidden=()).compile({"B": 4, "I": 3, "T": 40})
    stores = {store.name: store for store in program.memory.stores.values()}
    assert stores["logits"].shape == "ring of 5 along t"
    assert stores["state'"].shape == "ring of 6 along t"
    assert stores["actor.weight'"].shape == "slot", "the new value lives in the old one's memory"
    assert "t % 5" in stores["logits"].why
    assert all(store.why for store in stores.values())
    apart = program.with_options(donate=False).memory.stores.values()
    assert "ring of 2 along i" in {s.shape for s in apart if s.name == "actor.weight'"}
    plain = program.with_options(stores="point")
    assert {store.kind for store in plain.memory.stores.values()} == {"point"}
    assert plain.memory.peak >= program.memory.peak
    with pytest.raises(trl.errors.OptionError, match='stores is "auto" or "point"'):
        program.with_options(stores="slot")


def seen_while_stepping(program: trl.Program) -> dict[tuple[str, object], np.ndarray]:
    """Return every value shown by a stepped run, by name and point."""
    seen: dict[tuple[str, object], np.ndarray] = {}
    while program.step(seed=0) is not None:
        for name, values in program.stores.items():
            seen.update({(name, point): np.array(x) for point, x in values.items()})
    return seen


def test_a_stepped_run_shows_values_by_point_whatever_the_store() -> None:
    program = reinforce(3, hidden=()).compile({"B": 2, "I": 2, "T": 8})
    seen = seen_while_stepping(program)
    plain = seen_while_stepping(program.with_options(stores="point"))
    assert ("logits", (1, 7)) in seen
    assert seen.keys() == plain.keys()
    for key, value in plain.items():
        np.testing.assert_array_equal(seen[key], value)


def test_recurrences_of_nested_loops_start_in_their_own_slot() -> None:
    with trl.Context("i", "j") as ctx:
        (i, I), (j, J) = ctx.dims
        x = trl.tensor((8,), domain=(i, j)).named("x")
        y = (x * 2 + 1).named("y")
        x[0, 0] = trl.ones((8,)).named("start")
        x[i + 1, 0] = y[i, J - 1]
        x[i, j + 1] = y
        ctx.output("y", y[I - 1, J - 1])
    program = ctx.compile({I: 3, J: 4}, trl.Options(executor="xla"))
    lowered = program.executable.xla_program
    assert lowered is not None
    (home,) = lowered.layout.merges.values()  # x is read without a choice between three buffers
    assert home.buffer.axes == () and len(home.buffer.tensors) == 2
    assert program.execute(seed=0)["y"].tolist() == [2.0**13 - 1] * 8


def test_all_kernels_of_a_loop_read_the_latest_value_outside_its_buffer() -> None:
    program = trl.algorithms.clipped_ppo("CartPole-v1", hidden=(4,), epochs=2, minibatches=2)
    executable = program.compile({"B": 2, "I": 2, "T": 4}, trl.Options(executor="xla")).executable
    assert executable.xla_program is not None
    latest = executable.xla_program.layout.latest
    others = {op for (op, _), found in latest.items() for name in found if f"v{op}_" not in name}
    assert len(others) == 3  # the policy, the environment's step and the critic read the state


def test_accumulated_values_are_read_from_their_buffer() -> None:
    with trl.Context("i", "u") as ctx:
        (i, I), (u, U) = ctx.dims
        x = trl.data(np.array([[3.0, 1.0], [2.0, 5.0]], np.float32), domain=(i, u))
        w = trl.data(np.ones(2, np.float32), domain=(u,))
        least = (x * w).min(over=u)  # after u = 0 it may still change
        ctx.output("least", least)
        ctx.output("gradient", trl.grad(least, w))
    program = ctx.compile({I: 2, U: 2}, trl.Options(vectorize=False, executor="xla"))
    assert program.execute(seed=0)["gradient"].tolist() == [2.0, 1.0]
