"""Comparison of two recordings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.cli import main
from timerl_nb.scope.analysis.recording_comparison import FEWEST, Difference
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.stack_frames import frames
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind, Library

NAMES = ("", "act", "learn", "save", "matmul")
CALL = Library.BACKEND << NAME_BITS | 4
Row = tuple[int, int, Kind, int]


def acts(*took: int, name: int = 1, calls: int = 1, inside: int = 10) -> Recording:
    """Return repeated operations of fixed duration, with calls inside, and 5 ns between them."""
    rows, now = list[Row](), 100
    for ns in took:
        rows.append((now, name, Kind.OPERATION_ENTER, 1))
        for k in range(calls):
            rows.append((now + (inside + 10) * k + 1, CALL, Kind.CALL_ENTER, 1))
            rows.append((now + (inside + 10) * k + inside + 1, 0, Kind.CALL_EXIT, 0))
        rows.append((now + ns, 0, Kind.OPERATION_EXIT, 0))
        now += ns + 5
    return recording(rows, now)


def recording(rows: list[Row], end: int) -> Recording:
    return Recording((Lane(7, 8, "", np.array(rows, EDGE), end),), NAMES)


def by_name(first: Recording, second: Recording) -> dict[str, Difference]:
    return {one.operation: one for one in first.compare(second).operations}


def test_the_same_operations_stand_beside_each_other() -> None:
    first, second = acts(*[100] * 10), acts(*[150] * 20)
    found = first.compare(second)
    assert found.operations == (
        Difference("act", (10, 20), (1_000, 3_000), (10, 20), 50.0, 50.0, 50.0),
        Difference("", (0, 0), (50, 100), (0, 0), None, None, None),
    )
    assert found.grew == ("act",) and found.only == ((), ())
    assert second.compare(first).grew == ()
    text = repr(found).splitlines()
    assert text[3].split()[:6] == ["act", "10", "20", "0.001", "0.003", "+0.050"]
    assert text[5] == "slower without more transitions: act"
    assert text[6].startswith("bottleneck of a: act / python as measured; no correction: ")


@pytest.mark.parametrize(
    ("second", "grew"),
    [
        (acts(*[106] * 10), True),
        (acts(*[105] * 10), False),  # by at most 5 %
        (acts(*[150] * 10, calls=2), False),  # as did the transitions
        (acts(*[150] * (FEWEST - 1)), False),  # too few for a verdict
        (acts(*[10_000, *[80] * 19]), False),  # one outlier
    ],
)
def test_time_grew_though_transitions_did_not(second: Recording, grew: bool) -> None:
    assert (acts(*[100] * 10).compare(second).grew == ("act",)) == grew
    assert acts(*[100] * 10, calls=0).compare(acts(*[150] * 10, calls=0)).grew == ()


def test_what_is_in_one_alone_and_what_is_too_rare() -> None:
    found = acts(*[100] * 3).compare(acts(*[100] * 9, name=2))
    assert found.only == (("act",), ("learn",))
    assert "only in a: act" in str(found) and "only in b: learn" in str(found)
    assert all(one.longer is one.low is None for one in found.operations)
    rare = by_name(acts(*[100] * (FEWEST - 1)), acts(*[120] * FEWEST))["act"]
    assert (rare.longer, rare.low, rare.high) == (20.0, None, None)


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    draw, held, wide = Random(1), 0, 0.0
    for _ in range(100):
        first, second = (
            acts(*[round(mean + draw.expovariate(1 / 300)) for _ in range(60)])
            for mean in (1_000, 1_100)
        )
        one = by_name(first, second)["act"]
        assert one.low is not None and one.high is not None
        held, wide = held + (one.low <= 100 <= one.high), wide + one.high - one.low
    assert held >= 87  # 95, minus four deviations
    assert 170 < wide / 100 < 260  # four deviations of the difference, 55
    many = by_name(acts(*[100, 300] * 3_000), acts(*[110, 310] * 3_001))["act"]
    assert many.longer == 10.0 and many.low is not None and -10 < many.low < 10


def inner(draw: Random) -> Iterator[tuple[Kind, int, int]]:
    """Nested operations, and some unobserved blocks."""
    opened = list[int]()
    for _ in range(200):
        what = draw.random()
        if what < 0.4 and len(opened) < 5:
            opened.append(draw.randrange(1, 4))
            yield Kind.OPERATION_ENTER, opened[-1], len(opened)
        elif what < 0.8 and opened:
            opened.pop()
            yield Kind.OPERATION_EXIT, opened[-1] if opened else 0, len(opened)
        elif what > 0.95:
            yield Kind.OFF, 0, 0
            yield Kind.ON, 0, 0


def test_the_times_are_those_of_the_table() -> None:
    draw = Random(2)
    for _ in range(20):
        rows, now = list[Row](), 1
        for kind, top, depth in inner(draw):
            now += draw.randrange(50)
            rows.append((now, top, kind, depth))
        made = recording(rows, now + 9)
        own = frames(made.lanes[0], "operation")
        hidden = made.table().by("library").get(("unobserved",), 0)
        blocks = [(a, b) for a, b in pairwise(rows) if a[2] == Kind.OFF]
        assert hidden == sum(b[0] - a[0] for a, b in blocks)
        found = made.compare(made)
        for one in found.operations:
            if one.operation:
                mine = own.top == NAMES.index(one.operation)
                assert one.ns == (int(own.own[mine].sum()),) * 2 and one.times[0] == mine.sum()
        assert sum(one.ns[0] for one in found.operations) == made.table().total - hidden
        assert found.grew == ()


def test_the_bottleneck_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls of 30 ns, 25 of them overhead; 40 ns are Python's."""
    dear = trl.scope.Calibration("by hand", {"call": trl.scope.Cost(25, 0)})
    monkeypatch.setattr("timerl_nb.scope.analysis.recording_comparison.in_run", lambda _: dear)
    found = acts(*[100] * 8, calls=2, inside=30).compare(acts(*[100] * 8, name=2))
    moved, stays = found.bottlenecks
    assert (moved.measured, moved.corrected) == (("act", "backend"), ("act", "python"))
    assert moved.moves and not stays.moves and stays.corrected == ("learn", "python")
    assert str(found).splitlines()[-2:] == [
        "bottleneck of a: act / backend as measured, act / python after correction",
        "bottleneck of b: learn / python, as measured and after correction",
    ]


def test_two_recordings_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, times in (("a", 20), ("b", 30)):
        with trl.scope.record(tmp_path / name):
            for _ in range(times):
                with trl.scope.operation("work"):
                    time.sleep(0)
    first, second = (trl.scope.read(tmp_path / name) for name in "ab")
    one = by_name(first, second)["work"]
    assert one.times == one.transitions == (20, 30)
    assert one.low is not None and one.high is not None and one.low < one.high
    for k, read in enumerate((first, second)):
        assert one.ns[k] == read.table().by("operation")[("work",)]
    assert main(["scope", "compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert out == f"{first.compare(second)}\n" and out.count("0 pairs of a recorded") == 2
