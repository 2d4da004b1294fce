"""Memory layouts: random live ranges are disjoint, and random programs find every value in its slot."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.frozen import PROGRAMS
from tests.property.drawn import Drawn
from tests.property.programs import chain, programs
from tests.property.test_programs import BLOCKS, RUNS, VARIANTS, chosen, sampled
from tests.reinforce import reinforce
from tests.replay import Replay
from timerl_nb.compiler.memory.liveness.slot_live_ranges import LiveRanges
from timerl_nb.compiler.memory.placement.buffer_layout import Home
from timerl_nb.compiler.memory.placement.ring_sizes import Axis, fit, have_disjoint_slots, ring
from timerl_nb.compiler.memory.steady_state.extrapolated_plan import layout_of


@st.composite
def ranges(draw: st.DrawFn) -> LiveRanges:
    """Values over (i, t) with random order of birth and lifetime; some are written twice."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 40)))
    points = np.argwhere(np.ones(shape))
    again = draw(st.lists(st.integers(0, len(points) - 1), max_size=6))
    order = draw(st.sampled_from(["up", "down", "any"]))
    points = np.concatenate([points, points[np.array(again, np.int64)]])
    if order == "any":
        points = points[draw(st.permutations(range(len(points))))]
    points = points[::-1] if order == "down" else points
    born = np.arange(len(points)) * draw(st.sampled_from([1, 3]))
    longest = draw(st.sampled_from([0, 2, 9, 60]))
    ages = draw(st.lists(st.integers(0, longest), min_size=len(born), max_size=len(born)))
    return LiveRanges(points, born, born + np.array(ages, np.int64))


def meet(one: LiveRanges, axes: tuple[Axis, ...]) -> bool:
    """Return whether a slot is overwritten before the last read of its value, by enumeration."""
    held: dict[tuple[int, ...], int] = {}
    for row, born, last in zip(one.coordinates, one.born, one.last, strict=True):
        place = tuple(int(axis.place(row[axis.coordinate])) for axis in axes)
        if held.get(place, -1) > born:
            return True
        held[place] = max(held.get(place, -1), int(last))
    return False


@given(ranges(), st.dictionaries(st.integers(0, 1), st.integers(0, 4)))
def test_live_values_are_kept_apart(one: LiveRanges, moving: dict[int, int]) -> None:
    axes = fit(one, (0, 1), moving)
    once = len({tuple(row) for row in one.coordinates}) == len(one.coordinates)
    if once:  # otherwise a value could conflict with itself, and no slot would help
        assert not meet(one, axes)
        assert prod(axis.size for axis in axes) >= one.most_at_once
    assert have_disjoint_slots(axes, [one]) != meet(one, axes)
    extents = np.ptp(one.coordinates, 0) + 1
    for axis, least, size in zip(axes, one.coordinates.min(0), extents, strict=True):
        assert axis.size <= size and (axis.ring or axis.first == least)


@given(ranges(), st.integers(0, 1))
def test_a_ring_is_as_short_as_can_be(one: LiveRanges, along: int) -> None:
    others = [Axis(1 - along, int(one.coordinates[:, 1 - along].max()) + 1, 0, ring=False)]
    found = ring(one, others, along)
    longest = int(np.ptp(one.coordinates[:, along]))
    fitting = [k for k in range(1, longest + 1) if not meet(one, (*others, Axis(along, k)))]
    if found is not None:
        assert found.size == fitting[0]
    else:  # larger sizes below the number of live values are skipped
        assert all(k > 8 for k in fitting[:1])


@sampled(RUNS // 2)
@given(st.one_of(programs(), programs(4, last=chain)), st.sampled_from(VARIANTS + BLOCKS))
def test_every_value_is_where_it_is_looked_for(drawn: Drawn, options: dict[str, Any]) -> None:
    memory = drawn.ctx.compile(drawn.bounds, chosen(drawn, options)).memory
    if not memory.swaps.all:
        assert not list(Replay(layout_of(memory)).wrong())


@pytest.mark.some_of("name", 10)
@pytest.mark.filterwarnings("ignore::timerl_nb.base.errors.TimeRLWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_frozen_programs_find_theirs(name: str) -> None:
    try:
        memory = PROGRAMS[name].compile("xla").memory
    except trl.errors.TimeRLError:
        return  # refusals are tested elsewhere
    if not memory.pdg.dims.dynamic and not memory.swaps.all:
        assert not list(Replay(layout_of(memory)).wrong())


@pytest.mark.parametrize("window", [None, 4])
def test_a_place_too_few_is_caught(window: int | None) -> None:
    memory = reinforce(window, hidden=(4,)).compile({"B": 2, "I": 3, "T": 10}).memory
    several = [b for b in layout_of(memory).buffers.values() if prod(b.slot_counts) > 1]
    assert several
    for buffer in several:
        (*outer, axis) = buffer.axes
        fewer = replace(buffer, axes=(*outer, replace(axis, size=axis.size - 1, ring=True)))

        def smaller(home: Home, buffer: Any = buffer, fewer: Any = fewer) -> Home:
            return replace(home, buffer=fewer) if home.buffer == buffer else home

        layout = layout_of(memory)
        layout.homes = {t: tuple(map(smaller, homes)) for t, homes in layout.homes.items()}
        layout.merges = {merge: smaller(home) for merge, home in layout.merges.items()}
        assert list(Replay(layout).wrong()), buffer
