"""Time breakdowns compared with a nanosecond-by-nanosecond count on random tracks."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import numpy as np
import pytest

from timerl_nb.base.errors import OptionError
from timerl_nb.scope.analysis.critical_path import critical_chain
from timerl_nb.scope.analysis.library_transitions import transitions
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.analysis.time_breakdown import Breakdown, Cell, Used, overlap_of
from timerl_nb.scope.device_activity.busy_time import NEVER, Busy
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, SENDS, Kind, Library

RUNS = int(os.environ.get("TIMERL_FUZZ", "100"))
FIRST = int(os.environ.get("TIMERL_SEED", "0")) * 10**6
NAMES = ("", "collect", "learn", "act", "step", "update", "matmul", "sin")


def lane(draw: Random) -> Lane:
    """Calls, operations and phases that begin and end, instants, and unobserved time."""
    stacks: dict[int, list[int]] = {0: [], 2: [], 4: []}
    rows: list[tuple[int, int, int, int]] = []
    at, off = draw.randrange(5), False
    for _ in range(draw.randrange(1, 60)):
        at += draw.choice([0, 0, 1, 1, 2, 7])
        if draw.random() < 0.08:
            off = not off
            rows.append((at, 0, Kind.OFF if off else Kind.ON, 0))
        elif draw.random() < 0.08:
            rows.append((at, draw.randrange(len(NAMES)), Kind.MARK, 0))
        elif draw.random() < 0.08:
            rows.append((at, draw.randrange(1, 9), Kind.PASSED, draw.randrange(2)))
        else:
            which = draw.choice(list(stacks))
            stack = stacks[which]
            leaves = len(stack) == 4 or (bool(stack) and draw.random() < 0.5)
            if leaves:
                stack.pop()
            else:
                name = draw.randrange(1, len(NAMES))
                stack.append(name if which else draw.randrange(1, 5) << NAME_BITS | name)
            rows.append((at, stack[-1] if stack else 0, which + leaves, len(stack)))
    rows = [(ts + 1, top, kind, depth) for ts, top, kind, depth in rows]  # 0 means "not written"
    edges = np.array(rows, EDGE)
    return Lane(1, draw.randrange(9), "", edges, int(edges["ts"][-1]) + draw.randrange(9))


def devices(draw: Random) -> tuple[np.ndarray, np.ndarray]:
    """Intervals that touch, overlap, contain each other, or are empty."""
    begin = np.array([draw.randrange(120) for _ in range(draw.randrange(8))], np.int64)
    return begin, begin + np.array([draw.choice([0, 1, 3, 20]) for _ in begin], np.int64)


def counted(recording: Recording, begin: np.ndarray, end: np.ndarray) -> Breakdown:
    """Count nanosecond by nanosecond."""
    found = Counter[Cell]()
    for one in recording.lanes:
        phase = operation = call = 0
        off, k = False, 0
        for t in range(int(one.edges["ts"][0]), one.end):
            while k < len(one.edges) and one.edges["ts"][k] <= t:
                kind, top = int(one.edges["kind"][k]), int(one.edges["top"][k])
                phase = top if kind in (4, 5) else phase
                operation = top if kind in (2, 3) else operation
                call = top >> NAME_BITS if kind in (0, 1) else call
                off = kind == Kind.OFF if kind in (Kind.OFF, Kind.ON) else off
                k += 1
            used = Used.CPU
            if any(b <= t < e for b, e in zip(begin, end, strict=True)):
                used = Used.GPU if call == Library.WAITING and not off else Used.BOTH
            on = "unobserved" if off else Library(call).name.lower()
            names = ("", "") if off else (NAMES[phase], NAMES[operation])
            found[Cell(*names, on, used)] += 1
    return Breakdown(dict(found))


@pytest.mark.parametrize("piece", [3, 1 << 20])
def test_every_nanosecond_is_where_it_was(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("time_breakdown", "state_intervals"):
        monkeypatch.setattr(f"timerl_nb.scope.analysis.{module}.PIECE", piece)
    for seed in range(FIRST, FIRST + RUNS):
        draw = Random(seed)
        recording = Recording(tuple(lane(draw) for _ in range(draw.randint(1, 3))), NAMES)
        begin, end = devices(draw)
        found = overlap_of(recording, Busy.from_intervals(begin, end))
        assert found.cells == counted(recording, begin, end).cells, seed
        # each nanosecond counts exactly once
        wall = sum(one.end - int(one.edges["ts"][0]) for one in recording.lanes)
        assert found.total == wall == sum(found.by("operation", "library").values())
        assert sum(found.by("phase").values()) == wall
        parts = [
            overlap_of(Recording((one,), NAMES), Busy.from_intervals(begin, end))
            for one in recording.lanes
        ]
        assert sum(parts, Breakdown({})).cells == found.cells
        enters = Counter[tuple[str, str, str]]()
        for one in recording.lanes:
            operation = call = 0
            off = False
            for _, top, kind, _ in one.edges.tolist():
                if kind == Kind.CALL_ENTER:
                    left, to = (Library(x).name.lower() for x in (call, top >> NAME_BITS))
                    enters["" if off else NAMES[operation], left, to] += 1
                call = top >> NAME_BITS if kind in (0, 1) else call
                operation = top if kind in (2, 3) else operation
                off = kind == Kind.OFF if kind in (Kind.OFF, Kind.ON) else off
        assert transitions(recording) == dict(enters)


def test_a_lane_cut_at_any_time_adds_up() -> None:
    for seed in range(FIRST, FIRST + RUNS // 4):
        draw = Random(seed)
        one = lane(draw)
        begin, end = devices(draw)
        busy = Busy.from_intervals(begin, end)
        whole = overlap_of(Recording((one,), NAMES), busy)
        moments = sorted(draw.sample(range(one.end + 1), min(3, one.end)))
        marks = np.array([(t, 0, Kind.MARK, 0) for t in moments if t > one.edges["ts"][0]], EDGE)
        edges = np.concatenate([one.edges, marks])
        edges = edges[np.argsort(edges["ts"], kind="stable")]
        cut = Lane(one.process, one.thread, one.name, edges, one.end)
        assert overlap_of(Recording((cut,), NAMES), busy).cells == whole.cells


def test_busy_stretches_are_disjoint_and_touch_no_other() -> None:
    busy = Busy.from_intervals(np.array([5, 1, 2, 9, 7, 20]), np.array([7, 3, 3, 9, 8, 25]))
    assert busy.begin.tolist() == [1, 5, 20] and busy.end.tolist() == [3, 8, 25]
    assert busy.busy_before(np.array([0, 1, 2, 3, 6, 8, 19, 22, 99])).tolist() == [
        0,
        0,
        1,
        2,
        3,
        5,
        5,
        7,
        10,
    ]
    assert Busy.from_intervals(np.array([4]), np.array([4])).busy_before(
        np.array([9])
    ).tolist() == [0]
    assert NEVER.busy_before(np.array([9])).tolist() == [0]


def test_nothing_recorded_took_no_time() -> None:
    assert overlap_of(Recording((), NAMES)).total == 0 and transitions(Recording((), NAMES)) == {}
    one = Lane(1, 1, "", np.array([(5, 3, Kind.OPERATION_ENTER, 1)], EDGE), 5)
    assert overlap_of(Recording((one,), NAMES)).cells == {}


def test_the_table_names_what_took_most_first() -> None:
    rows = [
        (1, 3, Kind.OPERATION_ENTER, 1),
        (11, Library.BACKEND << NAME_BITS | 6, Kind.CALL_ENTER, 1),
        (41, 0, Kind.CALL_EXIT, 0),
    ]
    one = Lane(1, 1, "", np.array(rows, EDGE), 61)
    assert str(overlap_of(Recording((one,), NAMES))) == "\n".join(
        [
            "0.000 ms; no device data",
            "operation  library     ms  share",
            "act        backend  0.000  50.0%",
            "act        python   0.000  50.0%",
        ]
    )


def test_the_chain_of_a_phase_has_no_gaps_and_works_where_its_threads_do() -> None:
    names = (*NAMES, SENDS)
    chains = Counter[str]()
    for seed in range(FIRST, FIRST + RUNS):
        draw = Random(seed)
        lanes = []
        for thread in range(draw.randint(1, 4)):
            one = lane(draw)
            edges = one.edges.copy()
            edges["top"][(edges["kind"] == Kind.MARK) & (edges["ts"] % 2 == 0)] = len(NAMES)
            lanes.append(Lane(1, thread, "", edges, one.end))
        recording = Recording(tuple(lanes), names)
        for phase in ("collect", "learn"):
            try:
                links = critical_chain(recording, phase, -1).links
            except OptionError:
                continue
            entered = max(
                int(ts)
                for one in lanes
                for ts, top, kind, _ in one.edges.tolist()
                if kind == Kind.PHASE_ENTER and names[top] == phase and ts < one.end
            )
            assert links[0].begin <= entered, seed
            for link, after in zip(links, [*links[1:], None], strict=True):
                chains[link.kind] += 1
                assert link.begin < link.end and (after is None or link.end == after.begin), seed
                one = lanes[link.thread]
                for t in range(link.begin, link.end):
                    on, off = 0, False
                    for ts, top, kind, _ in one.edges.tolist():
                        if ts <= t:
                            on = top >> NAME_BITS if kind in (0, 1) else on
                            off = kind == Kind.OFF if kind in (Kind.OFF, Kind.ON) else off
                    waits = on == Library.WAITING and not off
                    is_there = int(one.edges["ts"][0]) <= t
                    assert (waits or not is_there) == (link.kind != "works"), (seed, link, t)
    assert set(chains) >= {"works", "waits", "wakes"}
