"""Merging of device traces with the timelines of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.device_activity.api_calls import merge_calls
from timerl_nb.scope.device_activity.device_operations import Devices, TracedWindow, library_of
from timerl_nb.scope.device_activity.trace_data import Trace
from timerl_nb.scope.storage.event_format import NAME_BITS, RENEWED


def merge_traces(
    lanes: Sequence[Lane], traces: Sequence[Trace], table: dict[str, int]
) -> tuple[tuple[Lane, ...], Devices]:
    """Insert traced calls into the timelines, and collect the device operations.

    Args:
        lanes: timelines.
        traces: traces in CLOCK_MONOTONIC.
        table: name table; names of the traces are added.

    Returns:
        The timelines with inserted calls, and the device operations with their launches.
    """
    found, parts, windows = list(lanes), list[dict[str, Array]](), list[TracedWindow]()
    for number, trace in enumerate(traces):
        names = np.array([table.setdefault(name, len(table)) for name in trace.names], np.int64)
        library = np.array([library_of(name) for name in trace.names], np.int64)
        called, ran = trace.called, trace.ran
        top = (library << NAME_BITS | names)[called["name"]]
        lane, begin = np.full(len(called), -1), called["begin"].copy()
        nested = misfits = elsewhere = 0
        for at, one in enumerate(found):
            since = int(one.edges["ts"][0]) if one.thread >= RENEWED else 0
            is_mine = (called["thread"] == one.thread % RENEWED) & (called["begin"] >= since)
            # an earlier thread may have had the same id
            mine = np.flatnonzero(is_mine & (lane < 0) & (called["begin"] <= _until(found, one)))
            if one.process != trace.window.process or not len(mine):
                continue
            made = merge_calls(one, begin[mine], called["end"][mine], top[mine], trace.window.width)
            found[at], begin[mine], lane[mine] = made.lane, made.begin, at
            nested, misfits = nested + made.nested, misfits + made.misfits
            elsewhere += made.outside
        # The launch of an operation is the outermost call with its correlation.
        known = np.flatnonzero(called["correlation"] > 0)
        known = known[
            np.lexsort((-called["end"][known], begin[known], called["correlation"][known]))
        ]
        at = np.searchsorted(called["correlation"][known], ran["correlation"])
        launch = np.append(known, -1)[at]
        is_launched = np.append(called["correlation"], -1)[launch] == ran["correlation"]
        is_launched &= np.append(lane, -1)[launch] >= 0
        alike = "begin", "end", "device", "stream", "sort", "correlation"
        columns = {one: ran[one].astype(np.int64) for one in alike} | {"name": names[ran["name"]]}
        for name, value in (("window", number), ("process", trace.window.process)):
            columns[name] = np.full(len(ran), value)
        for name, column in (("lane", lane), ("launched", begin)):
            columns[name] = np.full(len(ran), -1)
            columns[name][is_launched] = column[launch[is_launched]]
        ahead = columns["launched"][is_launched] - columns["begin"][is_launched]
        windows.append(
            replace(
                trace.window,
                early=int((ahead > 0).sum()),
                earliest=int(ahead.max(initial=0)),
                nested=nested,
                misfits=misfits,
                elsewhere=elsewhere + int((lane < 0).sum()),
            )
        )
        parts.append(columns)
    if not parts:
        return tuple(found), Devices.empty()
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(whole["begin"], kind="stable")
    columns = {name: column[order] for name, column in whole.items()}
    return tuple(found), Devices(**columns, windows=tuple(windows))


def _until(lanes: Sequence[Lane], lane: Lane) -> float:
    """Return the start of the next thread with the same id of the system."""
    later = [
        int(one.edges["ts"][0])
        for one in lanes
        if one.process == lane.process
        and one.thread > lane.thread
        and one.thread % RENEWED == lane.thread % RENEWED
    ]
    return min(later, default=float("inf"))
