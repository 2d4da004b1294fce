"""Waits outside of all wrapped calls, shown as calls of the category "waiting".

The recorder detects them by the thread's CPU time and its time in the run queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.scope.analysis.thread_timelines import BLOCKED, Lane
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind, Library


def with_waits(lane: Lane, names: Sequence[str]) -> Lane:
    """Return a timeline with its waits in Python code as calls of the category "waiting".

    Args:
        lane: the timeline.
        names: names of the recording, including `BLOCKED`.
    """
    if not lane.blocked.size:
        return lane
    edges, ts = lane.edges, lane.edges["ts"].astype(np.int64)
    begin, end = lane.blocked
    # an event at the same time was written together with the wait
    place = np.maximum(np.searchsorted(ts, end, side="left"), 1)
    begin = np.maximum(begin, ts[place - 1])
    calls = np.where(edges["kind"] <= Kind.CALL_EXIT, np.arange(1, len(edges) + 1), 0)
    call = np.maximum.accumulate(calls)[place - 1] - 1  # last call event before each wait, or -1
    below = np.where(call < 0, 0, edges["top"][call])
    depth = np.where(call < 0, 0, edges["depth"][call])
    some = (below >> NAME_BITS == Library.PYTHON) & (begin < end)
    begin, end, place, below, depth = (x[some] for x in (begin, end, place, below, depth))
    made = np.zeros(2 * len(begin), EDGE)
    made["ts"][0::2], made["ts"][1::2] = begin, end
    made["kind"][1::2] = Kind.CALL_EXIT
    made["top"][0::2] = Library.WAITING << NAME_BITS | names.index(BLOCKED)
    made["top"][1::2] = below
    made["depth"][0::2], made["depth"][1::2] = np.minimum(depth + 1, 0xFFFF), depth
    place = np.repeat(place, 2)
    waiting = insert_edges(lane, place, made)
    traced = np.sort(np.append(waiting.traced, place + np.arange(len(place))))
    return replace(waiting, traced=traced, blocked=np.zeros((2, 0), np.int64))


def insert_edges(lane: Lane, place: Array, made: Array) -> Lane:
    """Return a timeline with additional events.

    Args:
        lane: the timeline.
        place: for each new event, the index of the old event after it; sorted.
        made: the new events.
    """
    moved = lane.traced + np.searchsorted(place, lane.traced, side="right")
    return replace(lane, edges=np.insert(lane.edges, place, made), traced=moved)
