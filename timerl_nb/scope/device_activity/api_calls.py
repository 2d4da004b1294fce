"""Insertion of traced calls of a device's interface into the timelines of the calling threads.

Each call must lie between two call events of the timeline. A call across an event, by more than the
accuracy of the clocks, contradicts the timeline; it is left out and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind

_FAR: Final = 1 << 61


@dataclass(frozen=True, eq=False)
class Merged:
    """Timeline with inserted calls.

    Attributes:
        lane: the timeline.
        begin: start of each call in the timeline; for a nested call, the start of the enclosing
            one.
        nested: number of calls inside of another inserted call.
        misfits: number of calls in contradiction to the timeline or to each other.
        outside: number of calls in unrecorded time.
    """

    lane: Lane
    begin: Array
    nested: int
    misfits: int
    outside: int


def merge_calls(lane: Lane, begin: Array, end: Array, top: Array, width: int) -> Merged:
    """Insert calls into a timeline; calls with a wrapper are already there and are skipped.

    Args:
        lane: the timeline.
        begin, end: nanoseconds of CLOCK_MONOTONIC.
        top: `top` field of the events.
        width: maximum overlap with a call event in nanoseconds; the call is cut there.
    """
    order = np.lexsort((-end, begin))
    begin, end, top = begin[order], end[order], top[order].astype(np.int64)
    reach = np.concatenate([[-_FAR], np.maximum.accumulate(end)])[:-1]
    again = np.zeros(len(begin), bool)
    again[1:] = (begin[1:] == begin[:-1]) & (end[1:] == end[:-1])
    nested = (end <= reach) & ((begin < reach) | again)
    crossing = (begin < reach) & ~nested
    outer = np.flatnonzero(~nested & ~crossing)
    k, cut, moved, until = _locate_calls(lane, begin[outer], end[outer])
    starts = begin.copy()
    starts[outer] = moved
    if len(outer):
        starts[nested] = starts[outer[np.searchsorted(outer, np.flatnonzero(nested)) - 1]]
    begin, end, top = moved, until, top[outer]

    edges, ts = lane.edges, lane.edges["ts"].astype(np.int64)
    offs = np.flatnonzero((edges["kind"] == Kind.OFF) | (edges["kind"] == Kind.ON))
    offs = np.concatenate([[-1], offs])  # a timeline begins observed
    at = offs[np.searchsorted(ts[offs[1:]], begin, side="right")]
    hidden = (at >= 0) & (edges["kind"][at] == Kind.OFF)
    outside = hidden | (begin < ts[0]) | (begin > end)
    misfits = ~outside & (cut > width)
    below = np.where(k < 0, 0, edges["top"][k]).astype(np.int64)
    depth = np.where(k < 0, 0, edges["depth"][k]).astype(np.int64)
    # Calls within the same library are not recorded, so an existing call has itself below.
    known = (below >> NAME_BITS == top >> NAME_BITS) | _there(edges, begin, top)
    new = ~outside & ~misfits & ~known

    made = np.zeros(2 * int(new.sum()), EDGE)
    made["ts"][0::2], made["ts"][1::2] = begin[new], end[new]
    made["kind"][1::2] = Kind.CALL_EXIT
    made["top"][0::2], made["top"][1::2] = top[new], below[new]
    made["depth"][0::2] = np.minimum(depth[new] + 1, 0xFFFF)
    made["depth"][1::2] = depth[new]
    place = np.zeros(len(made), np.int64)
    place[0::2] = np.searchsorted(ts, begin[new], side="right")
    place[1::2] = np.maximum(place[0::2], np.searchsorted(ts, end[new], side="left"))
    back = np.zeros(len(order), np.int64)
    back[order] = starts
    before = lane.traced + np.searchsorted(place, lane.traced, side="right")
    traced = np.sort(np.append(before, place + np.arange(len(place))))
    return Merged(
        replace(lane, edges=np.insert(edges, place, made), traced=traced),
        back,
        int(nested.sum()),
        int(crossing.sum() + misfits.sum()),
        int(outside.sum()),
    )


def _locate_calls(lane: Lane, begin: Array, end: Array) -> tuple[Array, Array, Array, Array]:
    """Find the position of calls in a timeline.

    Returns:
        For each call: the index of the call event before it (-1 for none), the cut in nanoseconds,
        and its start and end after the cut.
    """
    ts = lane.edges["ts"].astype(np.int64)
    calls = np.concatenate([[-1], np.flatnonzero(lane.edges["kind"] <= Kind.CALL_EXIT)])
    since = np.where(calls < 0, -_FAR, ts[calls])
    until = np.append(since[1:], lane.end)
    here = np.searchsorted(since, begin, side="right") - 1  # last call event at that time
    cut = np.maximum(end - until[here], 0)
    # A call with a start slightly before an event is moved after the event if less has to be cut.
    ahead = np.searchsorted(since, until[here], side="right") - 1
    early = since[ahead] - begin
    cut_ahead = np.maximum(early, end - until[ahead])
    later = (early > 0) & (end >= since[ahead]) & (cut_ahead < cut)
    k, cut = np.where(later, ahead, here), np.where(later, cut_ahead, cut)
    return calls[k], cut, np.maximum(begin, since[k]), np.minimum(end, until[k])


def _there(edges: Array, begin: Array, top: Array) -> Array:
    """Return whether the timeline has an entry event of the same call at its start."""
    entered = edges[edges["kind"] == Kind.CALL_ENTER]
    first = np.searchsorted(entered["ts"], begin.astype(np.uint64), side="left")
    last = np.searchsorted(entered["ts"], begin.astype(np.uint64), side="right")
    found = np.zeros(len(begin), bool)
    for k in np.flatnonzero(last > first):
        found[k] = (entered["top"][first[k] : last[k]] == top[k]).any()
    return found
