"""Intervals of calls, operations and phases, reconstructed from the events of a timeline."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.device_activity.busy_time import Busy
from timerl_nb.scope.storage.event_format import INHERITED, MISSED_OPERATION, NAME_MASK, Kind

Stack = Literal["phase", "operation", "call"]
KINDS: Final = {
    "phase": (Kind.PHASE_ENTER, Kind.PHASE_EXIT),
    "operation": (Kind.OPERATION_ENTER, Kind.OPERATION_EXIT),
    "call": (Kind.CALL_ENTER, Kind.CALL_EXIT),
}


@dataclass(frozen=True, eq=False)
class Frames:
    """Intervals of one stack in order of entry; times in nanoseconds of CLOCK_MONOTONIC.

    Attributes:
        top: `top` field of the entry event.
        begin, end: entries still open at the end of the timeline end there.
        depth: stack depth including the entry, from 1 on.
        own: exclusive nanoseconds, without disabled blocks.
    """

    top: Array
    begin: Array
    end: Array
    depth: Array
    own: Array


def frames(lane: Lane, stack: Stack) -> Frames:
    """Return the intervals of one stack of a timeline, in O(n log n).

    An entry at depth d ends at the next event back to depth d - 1. After a stable sort of the
    events by depth, both are neighbours, so there is no loop over events.
    """
    enter, leave = KINDS[stack]
    edges = lane.edges
    edges = edges[(edges["kind"] == enter) | (edges["kind"] == leave)]
    moments = np.append(edges["ts"].astype(np.int64), lane.end)
    is_enter, depth = edges["kind"] == enter, edges["depth"].astype(np.int64)
    entered = np.flatnonzero(is_enter)
    if not len(entered):
        none = np.zeros(0, np.int64)
        return Frames(none, none, none, none, none)
    level = np.where(is_enter, depth, depth + 1)  # depth of the entered or left frame
    order = np.argsort(level, kind="stable")
    after = np.append(order[1:], len(edges))
    is_last = np.append(np.diff(level[order]) != 0, True)
    ends = np.zeros(len(edges), np.int64)
    # a frame without an end event ends with the timeline
    ends[order] = np.where(is_last, len(edges), after)
    # frame on top after an event: the entered one, or the last one entered at its depth
    order = np.argsort(depth, kind="stable")
    seen = np.where(is_enter[order], np.arange(len(edges)), 0)
    on_top = np.zeros(len(edges), np.int64)
    on_top[order] = order[np.maximum.accumulate(seen)]
    number = np.maximum(np.cumsum(is_enter) - 1, 0)  # index of the last entered frame
    spent = np.diff(moments) - np.diff(unobserved_intervals(lane).busy_before(moments))
    spent = np.where(depth > 0, spent, 0)
    own = np.bincount(number[on_top], spent, len(entered)).astype(np.int64)
    return Frames(
        edges["top"][entered].astype(np.int64),
        moments[entered],
        moments[ends[entered]],
        depth[entered],
        own,
    )


def count_entries(lane: Lane, stack: Stack) -> Counter[int]:
    """Count the entries of each operation or phase, including disabled blocks.

    Inherited phases of other threads do not count.
    """
    tops = frames(lane, stack).top
    names, counts = np.unique(tops[tops < INHERITED] & NAME_MASK, return_counts=True)
    found = Counter[int](dict(zip(names.tolist(), counts.tolist(), strict=True)))
    if stack == "operation":
        for (name, left, _), count in lane.missed.items():
            found[name] += count if left == MISSED_OPERATION else 0
    return +found


def unobserved_intervals(lane: Lane) -> Busy:
    """Return the disabled intervals of a timeline."""
    edges = lane.edges[(lane.edges["kind"] == Kind.OFF) | (lane.edges["kind"] == Kind.ON)]
    moments = np.append(edges["ts"].astype(np.int64), lane.end)
    off = np.flatnonzero(edges["kind"] == Kind.OFF)
    return Busy.from_intervals(moments[off], moments[off + 1])
