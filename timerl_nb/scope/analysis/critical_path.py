"""Critical path of a phase: chain of work and waits, across threads and processes.

If a thread waits, the chain continues in the thread with the last wake-up (send, notification or
thread end) before the end of the wait. The recording does not store the matching of wake-ups and
waits, so this is an assumption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.base.text_formatting import align_columns, format_ns_as_ms
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.scope.analysis.blocked_time import with_waits
from timerl_nb.scope.analysis.process_tree import Moment, processes
from timerl_nb.scope.analysis.stack_frames import frames
from timerl_nb.scope.analysis.state_intervals import pieces
from timerl_nb.scope.analysis.thread_timelines import Lane, Lanes, Readable, lanes_of
from timerl_nb.scope.storage.event_format import INHERITED, NAME_MASK, SENDS, Kind, Library


@dataclass(frozen=True)
class Link:
    """Segment of a critical path.

    Attributes:
        process, thread: ids of the running or waiting thread.
        begin, end: nanoseconds of CLOCK_MONOTONIC.
        kind: "works" (the thread runs), "waits" (the cause is unknown), "wakes" (between the
            wake-up and the end of the wait) or "starts" (between the start of the process and its
            first event).
    """

    process: int
    thread: int
    begin: int
    end: int
    kind: Literal["works", "waits", "wakes", "starts"]


@dataclass(frozen=True)
class Chain:
    """Critical path of a phase: segments without gaps from its start to its end."""

    links: tuple[Link, ...]

    def by_thread(self) -> dict[tuple[int, int, str], int]:
        """Return nanoseconds by process, thread and kind of segment, in descending order."""
        found: dict[tuple[int, int, str], int] = {}
        for link in self.links:
            key = link.process, link.thread, link.kind
            found[key] = found.get(key, 0) + link.end - link.begin
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    def __str__(self) -> str:
        total = self.links[-1].end - self.links[0].begin
        rows = [("process", "thread", "", "ms", "share")]
        for (process, thread, kind), ns in self.by_thread().items():
            rows.append((str(process), str(thread), kind, format_ns_as_ms(ns), f"{ns / total:.1%}"))
        return "\n".join(align_columns(rows, left=(2,)))

    __repr__ = __str__


@explain_call_errors
def critical_chain(recording: Lanes | Readable, phase: str, occurrence: int = 0) -> Chain:
    """Return the critical path of a phase, across threads and processes.

    Args:
        recording: a recording.
        phase: name of the phase.
        occurrence: index of the occurrence, over all threads in order of start; -1 for the last
            one.

    Raises:
        OptionError: the phase or the occurrence does not exist.
        CallError: `recording` is not a recording.

    Example:
        >>> with trl.scope.record() as recording:
        ...     with trl.scope.phase("collection"):
        ...         total = sum(range(100))
        >>> chain = trl.scope.critical_chain(recording, "collection")
        >>> [link.kind for link in chain.links]
        ['works']
    """
    recording = lanes_of(recording)
    entered = [
        (recording.names[top], begin, end, k)
        for k, lane in enumerate(recording.lanes)
        for made in (frames(lane, "phase"),)
        for top, begin, end in zip(
            *(x.tolist() for x in (made.top, made.begin, made.end)), strict=True
        )
        if end > begin and top < INHERITED
    ]
    found = sorted(times for name, *times in entered if name == phase)
    if not found:
        known = sorted({name for name, *_ in entered})
        raise OptionError(
            f"the phase {phase!r} does not exist.",
            hint=one_of(phase, known)
            if known
            else "add trl.scope.phase(...) around parts of the program.",
        )
    if not -len(found) <= occurrence < len(found):
        raise OptionError(
            f"phase {phase!r} has {len(found)} occurrences, but occurrence={occurrence}.",
            hint="count from 0, or use -1 for the last occurrence.",
        )
    begin, end, k = found[occurrence]
    return Chain(tuple(reversed([*_walk_back(recording, k, begin, end)])))


def _walk_back(recording: Lanes, k: int, begin: int, end: int) -> Iterator[Link]:
    """Yield the links of the critical path, the latest first, from `end` of timeline `k` back to `begin`.

    Times are nanoseconds.
    """
    names = recording.names
    lanes = [_Waits(with_waits(lane, names), names) for lane in recording.lanes]
    at = {(one.lane.process, one.lane.thread): number for number, one in enumerate(lanes)}
    started: Mapping[int, Moment | None] = {
        one.process.number: one.started for one in processes(recording)
    }
    now = end
    while now > begin:
        one = lanes[k]
        process, thread = one.lane.process, one.lane.thread
        if now <= one.first:  # before the first event of the thread
            by = started.get(process)
            maker = None if by is None else at.get((by.process, by.thread))
            if by is None or maker is None or by.ts >= now:
                yield Link(process, thread, begin, now, "waits")
                return
            yield Link(process, thread, max(by.ts, begin), now, "starts")
            k, now = maker, by.ts
            continue
        waited = one.wait_before(now)
        if waited is None or waited[1] < now:  # the thread works up to this time
            since = max(one.first if waited is None else waited[1], begin)
            yield Link(process, thread, since, now, "works")
            now = since
            continue
        woken = _woken_by(lanes, k, waited[0], now)
        if woken is None:
            yield Link(process, thread, max(waited[0], begin), now, "waits")
            now = waited[0]
        else:
            k, ts = woken
            yield Link(process, thread, max(ts, begin), now, "wakes")
            now = ts


def _woken_by(lanes: list[_Waits], k: int, since: int, now: int) -> tuple[int, int] | None:
    """Return the thread with the last wake-up during a wait, and its time; None if there is none."""
    found = [
        (ts, number)
        for number, one in enumerate(lanes)
        if number != k and (ts := one.sent_before(now)) is not None and ts > since
    ]
    if not found:
        return None
    ts, number = max(found)
    return number, ts


class _Waits:
    """Waits of a thread, and its wake-ups of other threads."""

    def __init__(self, lane: Lane, names: tuple[str, ...]) -> None:
        self.lane, self.first = lane, int(lane.edges["ts"][0])
        self._names = names

    @cached_property
    def _wait_intervals(self) -> tuple[Array, Array]:
        waits = np.concatenate([piece.on == Library.WAITING for piece in pieces(self.lane)])
        changes = np.flatnonzero(np.diff(np.concatenate([[False], waits, [False]])))
        moments = np.append(self.lane.edges["ts"].astype(np.int64), self.lane.end)[changes]
        return moments[::2], moments[1::2]

    @cached_property
    def _sends(self) -> Array:
        edges = self.lane.edges
        name = self._names.index(SENDS) if SENDS in self._names else -1
        sends = (edges["kind"] == Kind.MARK) & ((edges["top"] & NAME_MASK) == name)
        return np.append(edges["ts"][sends].astype(np.int64), self.lane.end)

    def wait_before(self, now: int) -> tuple[int, int] | None:
        """Return the last wait with a start before `now`, cut at `now`; None if there is none."""
        begins, ends = self._wait_intervals
        k = int(np.searchsorted(begins, now)) - 1
        return None if k < 0 else (int(begins[k]), int(min(ends[k], now)))

    def sent_before(self, now: int) -> int | None:
        """Return the time of the last wake-up, or of the thread's end, before `now`, or None."""
        k = int(np.searchsorted(self._sends, now)) - 1
        return None if k < 0 else int(self._sends[k])
