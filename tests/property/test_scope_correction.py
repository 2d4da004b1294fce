"""Overhead correction on random tracks: added time is removed at the event that added it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np

from tests.property.test_scope import FIRST, NAMES, RUNS, counted, devices, lane
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.calibration.calibration import ANNOTATION, API, CALL, Calibration, Cost
from timerl_nb.scope.calibration.overhead_correction import correct_overhead
from timerl_nb.scope.storage.event_format import NAME_BITS, Kind, Library


def traced(lane: Lane, draw: Random) -> Lane:
    """Return the track with tracer records for some ended calls of an API without wrappers."""
    calls, found = list[tuple[int, int]](), list[int]()
    for k, (_, top, kind, _) in enumerate(lane.edges.tolist()):
        if kind == Kind.CALL_ENTER:
            calls.append((k, top))
        elif kind == Kind.CALL_EXIT:
            enter, top = calls.pop()
            if top >> NAME_BITS == Library.API and draw.random() < 0.5:
                found += enter, k
    return replace(lane, traced=np.array(sorted(found), np.int64))


def test_what_was_added_leaves_where_an_edge_has_it() -> None:
    """Compares, event by event in integers, with the corrected table; device time is shared by place."""
    names = (*NAMES, "copy")
    for seed in range(FIRST, FIRST + RUNS):
        draw = Random(seed)
        costs = {
            kind: Cost(2 * draw.randrange(5), 2 * draw.randrange(5))
            for kind in (CALL, ANNOTATION, f"{API}matmul", f"{API}sin")
        }
        silent = {CALL: draw.randrange(3), ANNOTATION: draw.randrange(3)}
        lanes = tuple(traced(lane(draw), draw) for _ in range(draw.randint(1, 3)))
        recording = Recording(lanes, names)
        begin, end = devices(draw)
        measured = counted(recording, begin, end)
        to_take = Counter[tuple[str, str, str]]()
        for one in recording.lanes:
            place, off = ("", "", "python"), False
            phase = operation = 0
            calls: list[int] = []
            by_tracer = set(one.traced.tolist())
            for k, (_, top, kind, depth) in enumerate(one.edges.tolist()):
                if kind == Kind.PASSED:
                    to_take[place] += top * silent[(CALL, ANNOTATION)[depth]]
                called = calls[-1] if kind == Kind.CALL_EXIT else top
                if kind == Kind.CALL_ENTER:
                    calls.append(top)
                elif kind == Kind.CALL_EXIT:
                    calls.pop()
                phase = top if kind in (4, 5) else phase
                operation = top if kind in (2, 3) else operation
                off = kind == Kind.OFF if kind in (Kind.OFF, Kind.ON) else off
                on = "unobserved" if off else Library(calls[-1] >> NAME_BITS if calls else 0).name
                seen = (0, 0) if off else (phase, operation)
                before, place = place, (names[seen[0]], names[seen[1]], on.lower())
                if kind > Kind.PHASE_EXIT:
                    continue
                sort = ANNOTATION if kind >= Kind.OPERATION_ENTER else CALL
                if k in by_tracer:
                    sort = f"{API}{names[called & ((1 << NAME_BITS) - 1)]}"
                    if sort not in costs:
                        continue
                enters = kind % 2 == 0
                to_take[before] += int(costs[sort].outside if enters else costs[sort].inside) // 2
                to_take[place] += int(costs[sort].inside if enters else costs[sort].outside) // 2
        found = correct_overhead(recording, Calibration("given", costs, silent), measured)
        spent, left = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
        for cell, ns in measured.cells.items():
            spent[cell.phase, cell.operation, cell.library] += ns
        for cell, ns in found.breakdown.cells.items():
            left[cell.phase, cell.operation, cell.library] += ns
            assert 0 <= ns <= measured.cells[cell] or ns == 0, seed
        assert left == Counter({k: max(0, ns - to_take[k]) for k, ns in spent.items()}), seed
        # overhead is either removed or reported
        taken = found.total.measured - found.total.corrected
        assert taken + found.unplaced == to_take.total(), seed
        assert sum(one.corrected for one in found.by("operation").values()) == left.total()
