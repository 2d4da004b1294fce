"""Memory of a whole run: omissions are reported, and drawings equal the plan."""

from __future__ import annotations

import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.compiler.memory.memory_timeline import Segment
from timerl_nb.compiler.memory.steady_state.extrapolated_timeline import FoldedTimeline
from timerl_nb.show import MemoryView
from timerl_nb.show.memory.memory_view import WholeRun
from timerl_nb.show.memory.whole_run_memory import COLUMNS

TURNS = 100_000


def drawn(program: trl.Program) -> WholeRun:
    found = MemoryView.from_program(program).run
    assert found is not None
    return found


@pytest.fixture(scope="module")
def long() -> trl.Program:
    return reinforce(5, hidden=(4,)).compile({"B": 3, "I": TURNS, "T": 12})


@pytest.fixture(scope="module")
def same() -> trl.Program:
    """A long run without values carried between iterations."""
    with trl.Context("i", "t") as ctx:
        (i, turns), (t, _) = ctx.dims
        total = trl.tensor((3,), "f32", domain=(i,)).named("total")
        x = trl.tensor((3,), "f32", domain=(i, t)).named("x")
        total[0] = trl.data(np.ones(3, np.float32))
        x[i, 0] = total * 0.5
        x[i, t + 1] = (x[i, t] * 0.5).tanh()
        total[i + 1] = x.sum(over=t)
        ctx.output("total", total[turns - 1])
    return ctx.compile({"I": TURNS, "T": 12}, trl.Options(vectorize=False, lift=False))


def test_a_short_run_is_drawn_as_it_is() -> None:
    program = reinforce(5, hidden=(4,)).compile({"B": 3, "I": 4, "T": 12})
    line, run = program.memory.timeline(), drawn(program)
    (one,) = run.stretches
    assert (one.first, one.last, one.turns, one.note) == (0, len(line.time), 0, "")
    assert run.points == len(line.time) and one.bytes.tolist() == line.bytes.tolist()
    turn = MemoryView.from_program(program).turn
    assert (run.first, run.last) == (turn.ranks[0], turn.ranks[-1] + 1)


def test_a_run_of_one_turn_is_its_turn() -> None:
    program = reinforce(5, hidden=(4,)).compile({"B": 3, "I": 1, "T": 12})
    view = MemoryView.from_program(program)
    assert view.run is None or view.run.points > len(view.turn)


def test_what_repeats_is_drawn_once_and_the_peak_is_there(long: trl.Program) -> None:
    line, run = long.memory.timeline(), drawn(long)
    assert isinstance(line, FoldedTimeline) and run.points == len(line)
    ahead, steady, behind = run.stretches
    assert ahead.first == 0 and ahead.last == steady.first and behind.last == run.points
    assert steady.note == f"× {steady.turns:,} turns" and not ahead.note and not behind.note
    known = next(one for one in line.segments if one.repeats > 1)
    assert known.repeats <= steady.turns < TURNS
    # every iteration except the first and the last few is one of those
    assert steady.turns >= TURNS - 3 and len(steady) == known.length
    # outputs accumulate, so the last iteration is drawn, too
    kept = sum(s.unit for s in long.memory.stores.values() if s.most == TURNS)
    assert steady.more == kept * steady.turns
    assert behind.first == steady.first + (steady.turns - 1) * len(steady)
    for one in run.stretches:
        assert 0 < len(one.bytes) <= COLUMNS
        assert one.bytes.max() == line.bytes_between(one.first, one.last).max()
    assert max(one.bytes.max() for one in run.stretches) == long.memory.peak
    assert run.first <= line.peak_time < run.last  # the drawn iteration is that of the peak


def test_turns_that_leave_nothing_are_left_out_altogether(same: trl.Program) -> None:
    line, run = same.memory.timeline(), drawn(same)
    assert isinstance(line, FoldedTimeline)
    (steady,) = (one for one in run.stretches if one.turns)
    assert steady.more == 0
    length = sum(len(one) * max(one.turns, 1) for one in run.stretches)
    assert length == run.points
    for k, one in enumerate(run.stretches[1:]):
        before = run.stretches[k]
        assert one.first == before.first + len(before) * max(before.turns, 1)
    # each of them equals the drawn one
    for turn in (1, steady.turns // 2, steady.turns - 1):
        first = steady.first + turn * len(steady)
        live = line.bytes_between(first, first + len(steady))
        assert live.tolist() == line.bytes_between(steady.first, steady.last).tolist()
    assert Segment(steady.first, len(steady), steady.turns).end <= run.points


def test_pictures_and_figures_say_how_many_turns_are_left_out(long: trl.Program) -> None:
    run = drawn(long)
    (note,) = (one.note for one in run.stretches if one.note)
    assert f">{note}</text>" in MemoryView.from_program(long).to_svg()
    assert f">{note}</text>" in long.memory.to_svg()
    short = long.with_bounds({"I": 3})
    assert "turns</text>" not in MemoryView.from_program(short).to_svg()
    figure = trl.show.memory_timeline({"short": short, "long": long})
    assert [a.text for a in figure.layout.annotations if a.text == note] == [note]
    for axis, program in (("x", short), ("x2", long)):
        traces = [trace for trace in figure.data if trace.xaxis == axis]
        assert np.sum([trace.y for trace in traces], axis=0).max() == program.memory.peak
        assert all(np.array_equal(trace.x, traces[0].x) for trace in traces)
    times = [trace for trace in figure.data if trace.xaxis == "x2"][0].customdata
    assert times.max() == run.points and max(figure.layout.xaxis2.tickvals) < 10 * len(times)
