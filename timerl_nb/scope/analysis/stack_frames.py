"""What was open when: the frames of one of a lane's stacks, from edges that say only what is on top."""

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
    """Frames of one stack, in the order in which they were entered; nanoseconds of CLOCK_MONOTONIC.

    Attributes:
        top: what an edge says of what was entered.
        begin, end: what was open when the lane ended, ends with it.
        depth: of the stack with it, from 1 on.
        own: observed nanoseconds in which it was on top.
    """

    top: Array
    begin: Array
    end: Array
    depth: Array
    own: Array


def frames(lane: Lane, stack: Stack) -> Frames:
    """The frames of a stack of a lane, in O(n log n) without a loop.

    What is entered at a depth is left by the next edge to the depth before; of edges in the order of
    these depths, and else of time, the two are neighbours.
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
    level = np.where(is_enter, depth, depth + 1)  # what is entered, or left
    order = np.argsort(level, kind="stable")
    after = np.append(order[1:], len(edges))
    is_last = np.append(np.diff(level[order]) != 0, True)
    ends = np.zeros(len(edges), np.int64)
    ends[order] = np.where(is_last, len(edges), after)  # of what has no end: that of the lane
    # what is on top behind an edge: what it enters, or what was entered last at its depth
    order = np.argsort(depth, kind="stable")
    seen = np.where(is_enter[order], np.arange(len(edges)), 0)
    on_top = np.zeros(len(edges), np.int64)
    on_top[order] = order[np.maximum.accumulate(seen)]
    number = np.maximum(np.cumsum(is_enter) - 1, 0)  # of the frame that was entered last
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
    """How often each name of operations or phases was entered, also in disabled blocks.

    A phase is not entered in other threads it covers.
    """
    tops = frames(lane, stack).top
    names, counts = np.unique(tops[tops < INHERITED] & NAME_MASK, return_counts=True)
    found = Counter[int](dict(zip(names.tolist(), counts.tolist(), strict=True)))
    if stack == "operation":
        for (name, left, _), count in lane.missed.items():
            found[name] += count if left == MISSED_OPERATION else 0
    return +found


def unobserved_intervals(lane: Lane) -> Busy:
    """When nobody looked at a lane."""
    edges = lane.edges[(lane.edges["kind"] == Kind.OFF) | (lane.edges["kind"] == Kind.ON)]
    moments = np.append(edges["ts"].astype(np.int64), lane.end)
    off = np.flatnonzero(edges["kind"] == Kind.OFF)
    return Busy.from_intervals(moments[off], moments[off + 1])
