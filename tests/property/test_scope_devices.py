"""Device time, by time and by launch, compared with a nanosecond count on random tracks."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from random import Random

import numpy as np
import pytest

from tests.property.test_scope import FIRST, NAMES, RUNS, lane
from timerl_nb.base.errors import OptionError
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.analysis.time_breakdown import Breakdown, Cell, Used, overlap_of
from timerl_nb.scope.device_activity.api_calls import merge_calls
from timerl_nb.scope.device_activity.busy_time import Busy
from timerl_nb.scope.device_activity.device_operations import Devices, Sort, TracedWindow
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind, Library


def drawn(draw: Random) -> Recording:
    """Tracks of two processes; kernels overlap, touch, are empty, or begin before their launch."""
    lanes = [replace(lane(draw), process=draw.randint(1, 2)) for _ in range(draw.randint(1, 3))]
    windows: list[TracedWindow] = []
    for process in (1, 2):
        at = draw.randrange(30)
        for _ in range(draw.randrange(3)):
            end = at + draw.choice([0, 5, 40, 200])
            windows.append(TracedWindow(process, "made up", at, end, ("gpu",), "", 0, 0))
            at = end + draw.choice([0, 3, 20])
    rows: list[tuple[int, ...]] = []
    for _ in range(draw.randrange(12)):
        begin = draw.randrange(120)
        owner = draw.randrange(-1, len(lanes))
        process = lanes[owner].process if owner >= 0 else draw.randint(1, 2)
        launched = max(1, begin + draw.choice([-40, -5, -1, 0, 2, 30])) if owner >= 0 else -1
        end = begin + draw.choice([0, 1, 3, 20, 60])
        rows.append(
            (begin, end, 1, 0, draw.randrange(3), Sort.KERNEL, process, 1, 0, owner, launched)
        )
    rows.sort()
    columns = np.array(rows, np.int64).reshape(-1, 11).T
    return Recording(tuple(lanes), NAMES, devices=Devices(*columns, windows=tuple(windows)))


def states(one: Lane) -> list[tuple[int, int, int, bool]]:
    """Return the state at each moment: phase, operation, library, and whether it is observed."""
    phase = operation = call = k = 0
    off, found = False, []
    edges = one.edges.tolist()
    for t in range(one.end + 200):
        while k < len(edges) and edges[k][0] <= t:
            _, top, kind, _ = edges[k]
            phase = top if kind in (4, 5) else phase
            operation = top if kind in (2, 3) else operation
            call = top >> NAME_BITS if kind in (0, 1) else call
            off = kind == Kind.OFF if kind in (Kind.OFF, Kind.ON) else off
            k += 1
        found.append((phase, operation, call, off))
    return found


def calling(one: Lane, launched: int) -> tuple[int, int, int, bool]:
    """Return the caller of a launch: the current state, without a device call that begins then."""
    edges = [edge for edge in one.edges.tolist() if edge[0] <= launched]
    if edges and edges[-1][0] == launched and edges[-1][2] == Kind.CALL_ENTER:
        if edges[-1][1] >> NAME_BITS in (Library.API, Library.WAITING):
            edges.pop()
    return states(replace(one, edges=np.array(edges, EDGE)))[launched]


def counted(recording: Recording, by: str) -> Breakdown:
    """Count nanosecond by nanosecond."""
    found = Counter[Cell]()
    devices = recording.devices
    columns = [getattr(devices, one.name) for one in fields(devices) if one.name != "windows"]
    rows = [*zip(*(column.tolist() for column in columns), strict=True)]
    lost = 0
    for number, one in enumerate(recording.lanes):
        windows = [w for w in devices.windows if w.process == one.process]
        held = states(one)
        for t in range(int(one.edges["ts"][0]), one.end):
            phase, operation, call, off = held[t]
            words = NAMES[phase], NAMES[operation], Library(call).name.lower()
            if off:
                words = "", "", "unobserved"
            known = any(w.begin <= t < w.end for w in windows)
            running = [row for row in rows if row[0] <= t < row[1]]
            if by == "time":
                running = [row for row in running if row[6] == one.process]
            else:
                running = [row for row in running if row[9] == number]
            if not known or not running:
                found[Cell(*words, Used.CPU if known else Used.UNTRACED)] += 1
                continue
            if by == "launch" and not off:
                phase, operation, on, hidden = calling(one, min(running)[10])
                words = NAMES[phase], NAMES[operation], Library(on).name.lower()
                if hidden:
                    words = "", "", "unobserved"
            used = Used.GPU if call == Library.WAITING and not off else Used.BOTH
            found[Cell(*words, used)] += 1
    for row in rows if by == "launch" else ():
        windows = [w for w in devices.windows if w.process == row[6]]
        for t in range(row[0], row[1]):
            lost += row[9] < 0 and any(w.begin <= t < w.end for w in windows)
    return Breakdown(dict(found), lost)


@pytest.mark.parametrize("piece", [3, 1 << 20])
@pytest.mark.parametrize("by", ["time", "launch"])
def test_every_nanosecond_of_devices_is_where_it_was(
    by: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("time_breakdown", "state_intervals"):
        monkeypatch.setattr(f"timerl_nb.scope.analysis.{module}.PIECE", piece)
    moved = 0
    runs = RUNS // (4 if piece == 3 else 2)
    for seed in range(FIRST, FIRST + runs):
        recording = drawn(Random(seed))
        found = overlap_of(recording, by=by)  # type: ignore[arg-type]
        assert found == counted(recording, by), seed
        # each nanosecond of each track counts exactly once
        for number, one in enumerate(recording.lanes):
            alone = replace(
                recording,
                lanes=(one,),
                devices=replace(
                    recording.devices,
                    lane=np.where(recording.devices.lane == number, 0, -1),
                ),
            )
            assert overlap_of(alone, by=by).total == one.end - int(one.edges["ts"][0])  # type: ignore[arg-type]
        moved += found.cells != overlap_of(recording).cells
    assert moved == 0 if by == "time" else moved > runs // 10


def test_parts_are_of_the_interval_that_began_first() -> None:
    begin, end = np.array([5, 0, 0, 9, 3, 20, 4]), np.array([8, 4, 4, 9, 30, 22, 4])
    parts = Busy.from_intervals_in_parts(begin, end)
    assert [
        *zip(parts.begin.tolist(), parts.end.tolist(), parts.of_which.tolist(), strict=True)
    ] == [
        (0, 4, 1),
        (4, 30, 4),
    ]
    within = parts.intersect(Busy.from_intervals(np.array([1, 3, 6, 29]), np.array([2, 5, 6, 40])))
    assert [
        *zip(within.begin.tolist(), within.end.tolist(), within.of_which.tolist(), strict=True)
    ] == [
        (1, 2, 1),
        (3, 4, 1),
        (4, 5, 4),
        (29, 30, 4),
    ]


def test_time_of_which_nobody_saw_devices_says_so() -> None:
    recording = drawn(Random(3))
    unseen = replace(recording, devices=Devices.empty())
    assert {cell.used for cell in overlap_of(unseen).cells} == {Used.UNTRACED}
    assert str(overlap_of(unseen)).splitlines()[0].endswith("; no device data")
    assert str(unseen.devices) == "devices: no data\n  no device was traced"
    nowhere = TracedWindow(1, "JAX's profiler", 0, 900, (), "JAX sees no GPU", 0, 0)
    none = replace(recording, devices=Devices.empty((nowhere,)))
    assert overlap_of(none) == overlap_of(unseen)
    assert str(none.devices).endswith("process 1, JAX's profiler: JAX sees no GPU")
    windows = tuple(replace(nowhere, process=p, devices=("gpu",)) for p in (1, 2))
    seen = replace(recording, devices=Devices.empty(windows))
    used = {cell.used for cell in overlap_of(seen).cells}
    assert used == {Used.CPU} and "CPU ms" in str(overlap_of(seen)).splitlines()[1]
    with pytest.raises(OptionError, match="by='when' is neither 'time' nor 'launch'"):
        overlap_of(recording, by="when")  # type: ignore[arg-type]


API, WAITS = Library.API << NAME_BITS | 1, Library.WAITING << NAME_BITS | 2


Call = tuple[int, int, int]


def placed(one: Lane, calls: list[Call], width: int) -> tuple[list[Call], list[int]]:
    """Merge calls one by one: which are new and their position; count nested, misfitting and outside ones."""
    stack = [(int(ts), int(top), int(kind)) for ts, top, kind, _ in one.edges.tolist() if kind <= 1]
    kept, counts, reach, before = [], [0, 0, 0], -1000, None
    for call in sorted(calls, key=lambda call: (call[0], -call[1])):
        begin, end, top = call
        if (end <= reach and begin < reach) or before == (begin, end):
            counts[0] += 1
            continue
        before = begin, end
        crosses, reach = begin < reach, max(reach, end)
        if crosses:
            counts[1] += 1
            continue
        # of the segment it begins in and the next one, choose the one that cuts less off
        bounds = [-1000, *dict.fromkeys(ts for ts, _, _ in stack)]
        stretches = [*zip(bounds, [*bounds[1:], one.end], strict=True)]
        here = max(k for k, (since, _) in enumerate(stretches) if since <= begin)
        options = [stretches[here]]
        options += [x for x in stretches[here + 1 : here + 2] if x[0] <= end]
        cut, since, until = min(
            ((max(a - begin, end - b, 0), max(begin, a), min(end, b)) for a, b in options),
            key=lambda option: option[0],
        )
        hidden = states(one)[max(since, 0)][3]
        if hidden or since < one.edges["ts"][0] or since > until:
            counts[2] += 1
        elif cut > width:
            counts[1] += 1
        else:
            under = [top for ts, top, _ in stack if ts <= since]
            again = any((ts, its, kind) == (since, top, 0) for ts, its, kind in stack)
            if (under[-1] if under else 0) >> NAME_BITS != top >> NAME_BITS and not again:
                kept.append((since, until, top))
    return kept, counts


def test_calls_of_devices_lie_in_their_lanes() -> None:
    new = 0
    for seed in range(FIRST, FIRST + RUNS):
        draw = Random(seed)
        one, width = lane(draw), draw.choice([0, 1, 3])
        calls = []
        for _ in range(draw.randrange(8)):
            begin = draw.randrange(one.end + 5)
            calls.append((begin, begin + draw.choice([0, 0, 1, 2, 5]), draw.choice([API, WAITS])))
        columns = np.array(calls, np.int64).reshape(-1, 3).T
        found = merge_calls(one, *columns, width)
        kept, counts = placed(one, calls, width)
        assert [found.nested, found.misfits, found.outside] == counts, seed
        edges = found.lane.edges
        assert len(edges) == len(one.edges) + 2 * len(kept), seed
        assert (np.diff(edges["ts"].astype(np.int64)) >= 0).all()
        # the state at each moment is unchanged, except for the new calls
        held, before = states(found.lane), states(one)
        for t in range(one.end):
            inside = [top for begin, end, top in kept if begin <= t < end]
            phase, operation, call, off = before[t]
            call = inside[0] >> NAME_BITS if inside else call
            assert held[t] == (phase, operation, call, off), (seed, t)
        enters = Counter((ts, top) for ts, top, kind, _ in edges.tolist() if kind == 0)
        had = Counter((ts, top) for ts, top, kind, _ in one.edges.tolist() if kind == 0)
        assert enters - had == Counter((begin, top) for begin, _, top in kept)
        height = 0
        for _, _, kind, depth in edges.tolist():
            if kind <= 1:
                height += 1 - 2 * kind
                assert depth == height, seed
        again = merge_calls(found.lane, *columns, width)
        assert again.lane.edges.tobytes() == edges.tobytes(), seed
        new += len(kept)
    assert new > RUNS // 2
