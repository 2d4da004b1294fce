"""A recording as a Chrome trace, to be looked at in Perfetto: stacks as slices, counters, and flows from launch to kernel."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.chrome_trace import event, write_events
from timerl_nb.errors import OptionError, warn
from timerl_nb.scope.busy import NEVER, Busy
from timerl_nb.scope.devices import Sort
from timerl_nb.scope.edges import NAME_BITS, NAME_MASK
from timerl_nb.scope.frames import frames, unobserved
from timerl_nb.scope.lanes import Lane, Lanes
from timerl_nb.scope.pieces import HIDDEN, WORDS

MOST: Final = 200_000  # slices
_PARTS: Final = 1_000  # that counters are told in
_SORTS: Final = tuple(one.name.lower() for one in Sort)
_CATEGORIES: Final = ("phase", "operation", *WORDS, *_SORTS, "traced")
_CALLS: Final = _CATEGORIES.index(WORDS[0])
_HIDDEN: Final = _CATEGORIES.index(HIDDEN)
_RAN: Final = _CATEGORIES.index(_SORTS[0])


@dataclass(frozen=True, eq=False)
class _Row:
    """Slices of a thread or a stream, those that began first, then the longest ahead.

    Args:
        lane: of a thread, which it is among the recording's; else -1.
        name: a number among the recording's names.
        category: among `_CATEGORIES`.
        launched_by, launched: the lane that launched it, and when; -1 where that is not known.
    """

    process: int
    title: str
    lane: int
    begin: Array
    end: Array
    name: Array
    category: Array
    launched_by: Array
    launched: Array

    def rows(self, which: Array) -> _Row:
        """Some of the slices."""
        columns = "begin", "end", "name", "category", "launched_by", "launched"
        return replace(self, **{one: getattr(self, one)[which] for one in columns})

    def within(self, begin: int, end: int) -> _Row:
        """What of it lies in a stretch, in order."""
        some = (self.begin < end) & ((self.end > begin) | (self.begin >= begin))
        row = self.rows(np.flatnonzero(some))
        row = replace(row, begin=np.maximum(row.begin, begin), end=np.minimum(row.end, end))
        return row.rows(np.lexsort((-row.end, row.begin)))


@dataclass(frozen=True)
class _Counter:
    """What a counter of a process says from each of some moments on."""

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
    """Write a recording as a Chrome trace; returns the file: see `Recorded.perfetto`."""
    path = Path(path)
    if not path.name.lower().endswith((".json", ".json.gz")):
        raise OptionError(
            f"a Chrome trace is JSON, not {path.name!r}.",
            hint=f"write it as {path.with_suffix('.json.gz').name!r}, or .json.",
        )
    lanes, devices = recording.lanes, recording.devices
    origin = min((int(one.edges["ts"][0]) for one in lanes), default=0)
    last = (
        max([origin, *(one.end for one in lanes), *devices.end.max(initial=0, keepdims=True)]) + 1
    )
    since = origin if begin is None else origin + _ns(begin)
    until = int(last) if end is None else origin + _ns(end)
    if most < 1:
        raise OptionError(f"most={most} slices say nothing.", hint="give 1 or more.")
    if not origin <= since < until:
        raise OptionError(
            f"there is no stretch from {0 if begin is None else begin} to {'the end' if end is None else end} in a recording of "
            f"{(last - origin) / 1e9:,.3f} seconds.",
            hint="begin with 0 or later, and end after that, both in seconds.",
        )
    rows, counters = list[_Row](), list[_Counter]()
    moments = np.linspace(since, until, min(_PARTS, until - since) + 1).astype(np.int64)
    names = [*recording.names, *_CATEGORIES]
    called: dict[int, Array] = {}
    for number, lane in enumerate(lanes):
        row, busy = _thread(lane, number, len(recording.names))
        rows.append(row.within(since, until))
        called[lane.process] = called.get(lane.process, 0) + _shares(busy, moments)
    for process, shares in called.items():
        counters.append(_Counter(process, "threads in calls", moments[:-1], shares))
    titles = {one.number: f"{one.command} ({one.number})" for one in recording.processes}
    for process, title, made, busy in _devices(recording, len(recording.names)):
        titles[process] = title
        rows += [row.within(since, until) for row in made]
        if busy is not NEVER:
            counters.append(_Counter(process, "busy", moments[:-1], _shares(busy, moments)))
    kept, left = _longest(rows, most)
    about = {
        "recording": str(getattr(recording, "source", None) or ""),
        "0 is, in nanoseconds of CLOCK_MONOTONIC": str(origin),
        "slices": str(sum(len(row.begin) for row in kept)),
        "slices left out, the shortest": str(left),
    }
    written = write_events(path, _events(kept, counters, titles, names, recording, origin), about)
    if left:
        warn(
            f"the {left:,} shortest slices are left out of {path.name}.",
            hint="write a shorter stretch, by `begin` and `end` in seconds, or more of them: `most`.",
        )
    return written


def _ns(seconds: float) -> int:
    return round(seconds * 1e9) if math.isfinite(seconds) else -1


def _thread(lane: Lane, number: int, names: int) -> tuple[_Row, Busy]:
    """Its slices, and when some call was open."""
    calls, hidden = frames(lane, "call"), unobserved(lane)
    columns: list[tuple[Array, ...]] = []
    for category, stack in enumerate(("phase", "operation")):
        made = frames(lane, stack)
        columns.append(
            (made.begin, made.end, made.top & NAME_MASK, np.full(len(made.top), category))
        )
    none = np.full(len(hidden.begin), _HIDDEN)
    columns.append((hidden.begin, hidden.end, none + names, none))
    category = (calls.top >> NAME_BITS) + _CALLS
    name = calls.top & NAME_MASK
    columns.append((calls.begin, calls.end, np.where(name > 0, name, names + category), category))
    begin, end, name, category = (np.concatenate(x) for x in zip(*columns, strict=True))
    unknown = np.full(len(begin), -1)
    title = f"{lane.name or 'thread'} ({lane.thread})"
    row = _Row(lane.process, title, number, begin, end, name, category, unknown, unknown)
    outer = calls.depth == 1
    return row, Busy.of(calls.begin[outer], calls.end[outer])


def _devices(recording: Lanes, names: int) -> Iterator[tuple[int, str, list[_Row], Busy]]:
    """Of each device of a process: a number as if it were a process, what it is called, its rows, and when it was busy."""
    devices = recording.devices
    known = [lane.process for lane in recording.lanes]
    number = max([0, *known, *(one.number for one in recording.processes)])
    for process in sorted({one.process for one in devices.traced}):
        windows = [one for one in devices.traced if one.process == process]
        of = devices.process == process
        named = {k: name for one in windows for k, name in enumerate(one.devices)}
        for device in sorted({*named, *np.unique(devices.device[of]).tolist()}):
            number += 1
            begin, end = np.array([(one.begin, one.end) for one in windows], np.int64).T
            none, last = np.full(len(begin), -1), np.full(len(begin), len(_CATEGORIES) - 1)
            rows = [_Row(number, "traced", -1, begin, end, last + names, last, none, none)]
            here = of & (devices.device == device)
            for stream in np.unique(devices.stream[here]).tolist():
                at = np.flatnonzero(here & (devices.stream == stream))
                rows.append(
                    _Row(
                        number,
                        f"stream {stream}",
                        -1,
                        devices.begin[at],
                        devices.end[at],
                        devices.name[at],
                        devices.sort[at] + _RAN,
                        devices.lane[at],
                        devices.launched[at],
                    )
                )
            title = f"device {device} of {process}: {named.get(device, 'of unknown name')}"
            yield number, title, rows, Busy.of(devices.begin[here], devices.end[here])


def _shares(busy: Busy, moments: Array) -> Array:
    return np.diff(busy.before(moments)) / np.maximum(np.diff(moments), 1)


def _longest(rows: Sequence[_Row], most: int) -> tuple[list[_Row], int]:
    """The longest slices, of as long ones the outer, and how many others there are."""
    ns = np.concatenate([np.zeros(0, np.int64), *(row.end - row.begin for row in rows)])
    if len(ns) <= most:
        return list(rows), 0
    stays = np.zeros(len(ns), bool)
    stays[np.argsort(-ns, kind="stable")[:most]] = True
    parts = np.split(stays, np.cumsum([len(row.begin) for row in rows])[:-1])
    kept = [row.rows(np.flatnonzero(part)) for row, part in zip(rows, parts, strict=True)]
    return kept, len(ns) - most


def _events(
    rows: Sequence[_Row],
    counters: Sequence[_Counter],
    titles: dict[int, str],
    names: Sequence[str],
    recording: Lanes,
    origin: int,
) -> Iterator[dict[str, Any]]:
    for process in dict.fromkeys(row.process for row in rows):
        title = titles.get(process, f"process {process}")
        yield event("M", "process_name", (process, 0), args={"name": title})
    tracks, flows = count(1), count(1)
    calls: dict[
        tuple[int, int], tuple[int, int]
    ] = {}  # what began when in a lane: where it is drawn
    for row in rows:
        columns = (row.begin, row.end, row.name, row.category, row.launched_by, row.launched)
        slices: list[tuple[int, ...]] = list(zip(*(x.tolist() for x in columns), strict=True))
        levels = _levels(slices)
        places = [(row.process, next(tracks)) for _ in range(max(levels, default=0) + 1)]
        for k, place in enumerate(places):
            title = row.title if k == 0 else f"{row.title}, beside it"
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
    """Of each slice, in order, the first track in which it lies within what is open there, or beside it."""
    opened, found = list[list[int]](), list[int]()
    for begin, end, *_ in slices:
        level = next((k for k, ends in enumerate(opened) if _fits(ends, begin, end)), len(opened))
        if level == len(opened):
            opened.append([])
        opened[level].append(end)
        found.append(level)
    return found


def _fits(ends: list[int], begin: int, end: int) -> bool:
    """Whether a slice lies within what is open of a track behind what has ended, which is forgotten."""
    while ends and ends[-1] <= begin:
        ends.pop()
    return not ends or ends[-1] >= end
