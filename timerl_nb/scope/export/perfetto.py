"""Export to Perfetto as a Chrome trace: slices, counters, and arrows from launches to kernels."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.chrome_trace import event, write_events
from timerl_nb.base.errors import OptionError, warn
from timerl_nb.scope.analysis.blocked_time import with_waits
from timerl_nb.scope.analysis.stack_frames import frames, unobserved_intervals
from timerl_nb.scope.analysis.state_intervals import HIDDEN, WORDS
from timerl_nb.scope.analysis.thread_timelines import Lane, Lanes
from timerl_nb.scope.device_activity.busy_time import NEVER, Busy
from timerl_nb.scope.device_activity.device_operations import Sort
from timerl_nb.scope.storage.event_format import NAME_BITS, NAME_MASK

MOST: Final = 200_000  # default maximum number of slices
_PARTS: Final = 1_000  # number of samples per counter
_SORTS: Final = tuple(one.name.lower() for one in Sort)
_CATEGORIES: Final = ("phase", "operation", *WORDS, *_SORTS, "traced")
_CALLS: Final = _CATEGORIES.index(WORDS[0])
_HIDDEN: Final = _CATEGORIES.index(HIDDEN)
_RAN: Final = _CATEGORIES.index(_SORTS[0])


# A slice: name (index into the names), category (index into `_CATEGORIES`), and the launching
# timeline with the launch time, -1 if unknown.
_SLICE: Final = np.dtype(
    [(one, np.int64) for one in ("begin", "end", "name", "category", "launched_by", "launched")]
)


@dataclass(frozen=True, eq=False)
class _Track:
    """Slices of a thread or a stream, sorted by start time, then longest first.

    Args:
        process: number of the process.
        title: label of the track.
        lane: index of the thread's timeline; -1 for a stream.
        slices: rows of `_SLICE`.
    """

    process: int
    title: str
    lane: int
    slices: Array

    def restrict(self, begin: int, end: int) -> _Track:
        """Return the slices in a time window, cut and sorted."""
        first, last = self.slices["begin"], self.slices["end"]
        some = self.slices[(first < end) & ((last > begin) | (first >= begin))]
        some["begin"] = np.maximum(some["begin"], begin)
        some["end"] = np.minimum(some["end"], end)
        return replace(self, slices=some[np.lexsort((-some["end"], some["begin"]))])


def _slices(*columns: Array | int) -> Array:
    """Return slices from columns; missing last columns are -1."""
    made = np.full(len(np.atleast_1d(columns[0])), -1, _SLICE)
    for name, column in zip(_SLICE.names or (), columns, strict=False):
        made[name] = column
    return made


@dataclass(frozen=True)
class _Counter:
    """Values of a process's counter over time."""

    process: int
    name: str
    moments: Array
    values: Array


def perfetto(
    recording: Lanes,
    path: str | os.PathLike[str],
    begin: float | None = None,
    end: float | None = None,
    most: int = MOST,
) -> Path:
    """Write a recording as a Chrome trace and return its path; see `Recorded.perfetto`."""
    path = user_path(path)
    if not path.name.lower().endswith((".json", ".json.gz")):
        raise OptionError(
            f"{path.name!r} does not end in .json or .json.gz.",
            hint=f"write to {path.with_suffix('.json.gz').name!r}.",
        )
    lanes = [with_waits(lane, recording.names) for lane in recording.lanes]
    devices = recording.devices
    origin = min((int(one.edges["ts"][0]) for one in lanes), default=0)
    last = (
        max([origin, *(one.end for one in lanes), *devices.end.max(initial=0, keepdims=True)]) + 1
    )
    since = origin if begin is None else origin + _ns(begin)
    until = int(last) if end is None else origin + _ns(end)
    if most < 1:
        raise OptionError(f"most={most} is not positive.", hint="pass 1 or more.")
    if not origin <= since < until:
        raise OptionError(
            f"the time window from {0 if begin is None else begin} to {'the end' if end is None else end} is not in the recording of "
            f"{(last - origin) / 1e9:,.3f} seconds.",
            hint="pass 0 <= begin < end, in seconds.",
        )
    rows, counters = list[_Track](), list[_Counter]()
    moments = np.linspace(since, until, min(_PARTS, until - since) + 1).astype(np.int64)
    names = [*recording.names, *_CATEGORIES]
    called: dict[int, Array] = {}
    for number, lane in enumerate(lanes):
        row, busy = _thread(lane, number, len(recording.names))
        rows.append(row.restrict(since, until))
        called[lane.process] = called.get(lane.process, 0) + _shares(busy, moments)
    for process, shares in called.items():
        counters.append(_Counter(process, "threads in calls", moments[:-1], shares))
    titles = {one.number: f"{one.command} ({one.label})" for one in recording.processes}
    for process, title, made, busy in _devices(recording, len(recording.names)):
        titles[process] = title
        rows += [row.restrict(since, until) for row in made]
        if busy is not NEVER:
            counters.append(_Counter(process, "busy", moments[:-1], _shares(busy, moments)))
    kept, left = _longest(rows, most)
    about = {
        "recording": str(getattr(recording, "source", None) or ""),
        "0 is, in nanoseconds of CLOCK_MONOTONIC": str(origin),
        "slices": str(sum(len(row.slices) for row in kept)),
        "slices left out, the shortest": str(left),
    }
    written = write_events(path, _events(kept, counters, titles, names, recording, origin), about)
    if left:
        warn(
            f"the {left:,} shortest slices are left out of {path.name}.",
            hint="write a shorter time window: `begin` and `end` in seconds (`--begin`, `--end`), or increase `most` in "
            "`recording.perfetto`.",
        )
    return written


def _ns(seconds: float) -> int:
    return round(seconds * 1e9) if math.isfinite(seconds) else -1


def _thread(lane: Lane, number: int, names: int) -> tuple[_Track, Busy]:
    """Return the slices of a thread, and the time with open calls."""
    calls, hidden = frames(lane, "call"), unobserved_intervals(lane)
    parts = list[Array]()
    for category, stack in enumerate(("phase", "operation")):
        made = frames(lane, stack)
        parts.append(_slices(made.begin, made.end, made.top & NAME_MASK, category))
    parts.append(_slices(hidden.begin, hidden.end, names + _HIDDEN, _HIDDEN))
    sort, name = (calls.top >> NAME_BITS) + _CALLS, calls.top & NAME_MASK
    parts.append(_slices(calls.begin, calls.end, np.where(name > 0, name, names + sort), sort))
    title = f"{lane.name or 'thread'} ({lane.thread})"
    row = _Track(lane.process, title, number, np.concatenate(parts))
    outer = calls.depth == 1
    return row, Busy.from_intervals(calls.begin[outer], calls.end[outer])


def _devices(recording: Lanes, names: int) -> Iterator[tuple[int, str, list[_Track], Busy]]:
    """Yield the devices of each process.

    Each has a process number (Perfetto shows it as a process), a label, tracks and its busy time.
    """
    devices = recording.devices
    known = [lane.process for lane in recording.lanes]
    number = max([0, *known, *(one.number for one in recording.processes)])
    for process in sorted({one.process for one in devices.traced_windows}):
        windows = [one for one in devices.traced_windows if one.process == process]
        of = devices.process == process
        named = {k: name for one in windows for k, name in enumerate(one.devices)}
        for device in sorted({*named, *np.unique(devices.device[of]).tolist()}):
            number += 1
            begin, end = np.array([(one.begin, one.end) for one in windows], np.int64).T
            last = len(_CATEGORIES) - 1
            rows = [_Track(number, "traced", -1, _slices(begin, end, names + last, last))]
            here = of & (devices.device == device)
            for stream in np.unique(devices.stream[here]).tolist():
                at = np.flatnonzero(here & (devices.stream == stream))
                columns = "begin", "end", "name", "sort", "lane", "launched"
                ran = _slices(*(getattr(devices, one)[at] for one in columns))
                ran["category"] += _RAN
                rows.append(_Track(number, f"stream {stream}", -1, ran))
            title = f"device {device} of {process}: {named.get(device, 'of unknown name')}"
            yield number, title, rows, Busy.from_intervals(devices.begin[here], devices.end[here])


def _shares(busy: Busy, moments: Array) -> Array:
    return np.diff(busy.busy_before(moments)) / np.maximum(np.diff(moments), 1)


def _longest(rows: Sequence[_Track], most: int) -> tuple[list[_Track], int]:
    """Return the `most` longest slices (the outer ones first) and the number of others."""
    ns = np.concatenate(
        [np.zeros(0, np.int64), *(x.slices["end"] - x.slices["begin"] for x in rows)]
    )
    if len(ns) <= most:
        return list(rows), 0
    stays = np.zeros(len(ns), bool)
    stays[np.argsort(-ns, kind="stable")[:most]] = True
    parts = np.split(stays, np.cumsum([len(row.slices) for row in rows])[:-1])
    kept = [replace(x, slices=x.slices[part]) for x, part in zip(rows, parts, strict=True)]
    return kept, len(ns) - most


def _events(
    rows: Sequence[_Track],
    counters: Sequence[_Counter],
    titles: dict[int, str],
    names: Sequence[str],
    recording: Lanes,
    origin: int,
) -> Iterator[dict[str, Any]]:
    """Yield the trace events: names of processes and tracks, slices, arrows from launches to kernels, counters."""
    for process in dict.fromkeys(row.process for row in rows):
        title = titles.get(process, f"process {process}")
        yield event("M", "process_name", (process, 0), args={"name": title})
    tracks, flows = count(1), count(1)
    calls: dict[tuple[int, int], tuple[int, int]] = {}  # by timeline and begin: the track of a call
    for row in rows:
        slices: list[tuple[int, ...]] = row.slices.tolist()
        levels = _levels(slices)
        places = [(row.process, next(tracks)) for _ in range(max(levels, default=0) + 1)]
        for k, place in enumerate(places):
            title = row.title if k == 0 else f"{row.title}, overlapping"
            yield event("M", "thread_name", place, args={"name": title})
        for level, (begin, end, name, category, lane, launched) in zip(levels, slices, strict=True):
            place, said = places[level], names[name]
            op_ids = recording.op_ids.get(said) if category == 1 else None
            more = {} if op_ids is None else {"args": {"op_ids": op_ids}}
            ts, duration = (begin - origin) / 1e3, (end - begin) / 1e3
            yield event("X", said, place, ts, duration, cat=_CATEGORIES[category], **more)
            if row.lane >= 0 and _CALLS <= category < _HIDDEN:
                calls[row.lane, begin] = place
            source = calls.get((lane, launched))
            if source is not None and launched <= begin:
                flow = {"cat": "launch", "id": next(flows)}
                yield event("s", "launch", source, (launched - origin) / 1e3, **flow)
                yield event("f", "launch", place, ts, bp="e", **flow)
    for one in counters:
        for moment, value in zip(one.moments.tolist(), one.values.tolist(), strict=True):
            args = {"value": round(value, 6)}
            yield event("C", one.name, (one.process, 0), (moment - origin) / 1e3, args=args)


def _levels(slices: Sequence[tuple[int, ...]]) -> list[int]:
    """Return, for each slice, the first track level on which it nests properly."""
    opened, found = list[list[int]](), list[int]()
    for begin, end, *_ in slices:
        level = next((k for k, ends in enumerate(opened) if _fits(ends, begin, end)), len(opened))
        if level == len(opened):
            opened.append([])
        opened[level].append(end)
        found.append(level)
    return found


def _fits(ends: list[int], begin: int, end: int) -> bool:
    """Remove ended slices from a track's open ones; return whether a slice nests in the rest."""
    while ends and ends[-1] <= begin:
        ends.pop()
    return not ends or ends[-1] >= end
