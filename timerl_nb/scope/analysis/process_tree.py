"""Process tree of a recording, with the time breakdown of each process.

Source: RL-Scope, section 3.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from timerl_nb.base.text_formatting import align_columns, format_ns_as_ms
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.scope.analysis.thread_timelines import Lanes, Process, Readable, lanes_of
from timerl_nb.scope.analysis.time_breakdown import Breakdown, overlap_of
from timerl_nb.scope.device_activity.clock_alignment import HostClock
from timerl_nb.scope.storage.event_format import JOINS, NAME_MASK, PER_HOST, RENEWED, STARTS, Kind

_LONGEST: Final = 60  # maximum number of characters for a process in a table
_START: Final = re.compile(rf"{STARTS}(\d+) (.*)", re.DOTALL)
_JOIN: Final = re.compile(rf"{JOINS}(\d+)")


@dataclass(frozen=True)
class Moment:
    """A time in a thread.

    Attributes:
        process, thread: ids.
        ts: nanoseconds of CLOCK_MONOTONIC.
    """

    process: int
    thread: int
    ts: int


@dataclass(frozen=True)
class Branch:
    """A process with its children.

    Attributes:
        process: the process.
        name: name given by the parent (as in `multiprocessing.Process`), or "".
        started: start by a thread of the parent; None if unrecorded.
        joined: end of the first wait for the process; None if unrecorded.
        time: time breakdown of its threads.
        children: child processes in order of start.
    """

    process: Process
    name: str
    started: Moment | None
    joined: Moment | None
    time: Breakdown
    children: tuple[Branch, ...]

    def __iter__(self) -> Iterator[Branch]:
        """Iterate over the process and all its descendants."""
        yield self
        for child in self.children:
            yield from child

    @property
    def waiting(self) -> int:
        """Nanoseconds of waits in its threads."""
        return self.time.by("library").get(("waiting",), 0)


@dataclass(frozen=True)
class ProcessTree:
    """All processes of a recording.

    Attributes:
        roots: processes without a recorded parent.
        hosts: clocks of the other hosts, with their accuracy.
    """

    roots: tuple[Branch, ...]
    hosts: tuple[HostClock, ...] = ()

    def __iter__(self) -> Iterator[Branch]:
        for root in self.roots:
            yield from root

    def __str__(self) -> str:
        rows = [("process", "ms", "waiting", "phases")]
        for root in self.roots:
            rows.extend(_rows(root, ""))
        return "\n".join([*align_columns(rows, left=(0, 3)), *map(str, self.hosts)])

    __repr__ = __str__


@explain_call_errors
def processes(recording: Lanes | Readable) -> ProcessTree:
    """Return the process tree of a recording, with the time breakdown of each process.

    Args:
        recording: a recording.

    Raises:
        CallError: `recording` is not a recording.

    Example:
        >>> with trl.scope.record() as recording:
        ...     total = sum(range(100))
        >>> tree = trl.scope.processes(recording)
        >>> [len(root.children) for root in tree.roots]
        [0]
    """
    recording = lanes_of(recording)
    starts, names, joins = _marks(recording)
    known = {one.number for one in recording.processes}
    below: dict[int, list[Process]] = {}
    for one in recording.processes:
        below.setdefault(one.parent if one.parent in known else 0, []).append(one)

    def branch(one: Process) -> Branch:
        started = starts.get(one.number)
        if started is not None:  # the child may begin before its parent writes the mark
            started = replace(started, ts=min(started.ts, one.begin))
        elif one.forked_by:
            started = Moment(one.parent, one.forked_by, one.begin)
        lanes = tuple(lane for lane in recording.lanes if lane.process == one.number)
        time = overlap_of(replace(recording, lanes=lanes))
        children = tuple(map(branch, below.get(one.number, ())))
        name, joined = names.get(one.number, ""), _first(joins.get(one.number, ()), started)
        return Branch(one, name, started, joined, time, children)

    return ProcessTree(tuple(map(branch, below.get(0, ()))), recording.hosts)


def _first(joins: Sequence[Moment], started: Moment | None) -> Moment | None:
    """Return the first join of a process, preferably by its parent."""
    other = -1 if started is None else started.process
    return min(joins, key=lambda one: (one.process != other, one.ts), default=None)


def _marks(
    recording: Lanes,
) -> tuple[Mapping[int, Moment], Mapping[int, str], Mapping[int, Sequence[Moment]]]:
    """Return start, name and joins of each process, from the marks of the recording."""
    starts: dict[int, list[tuple[Moment, str]]] = {}
    joins: dict[int, list[Moment]] = {}
    telling = np.array([bool(_START.match(x) or _JOIN.match(x)) for x in recording.names])
    for lane in recording.lanes:
        host = lane.process // PER_HOST * PER_HOST
        edges = lane.edges[lane.edges["kind"] == Kind.MARK]
        for ts, top, _, _ in edges[telling[edges["top"] & NAME_MASK]].tolist():
            moment, said = Moment(lane.process, lane.thread, ts), recording.names[top & NAME_MASK]
            if found := _START.fullmatch(said):
                starts.setdefault(host + int(found[1]), []).append((moment, found[2]))
            elif found := _JOIN.fullmatch(said):
                joins.setdefault(host + int(found[1]), []).append(moment)
    return _by_number(recording, starts, joins)


def _by_number(
    recording: Lanes,
    starts: Mapping[int, list[tuple[Moment, str]]],
    joins: Mapping[int, list[Moment]],
) -> tuple[Mapping[int, Moment], Mapping[int, str], Mapping[int, Sequence[Moment]]]:
    """Convert ids of the system in marks to the recording's process numbers.

    The system reuses ids, and after `os.execv` a process continues as another one.
    """
    alike: dict[int, list[Process]] = {}
    for one in recording.processes:
        host = one.number // PER_HOST * PER_HOST
        alike.setdefault(host + one.number % RENEWED, []).append(one)
    begun: dict[int, Moment] = {}
    names: dict[int, str] = {}
    joined: dict[int, Sequence[Moment]] = {}
    for number, ones in alike.items():
        left = sorted(starts.get(number, ()), key=lambda pair: pair[0].ts)
        ends = [one.begin for one in ones[1:]]
        since = 0
        for one, until in zip(ones, [*ends, None], strict=True):
            renewed = one.number % PER_HOST >= RENEWED
            goes_on = renewed and one.parent % RENEWED == number % PER_HOST
            if left and not goes_on and (until is None or left[0][0].ts < until):
                begun[one.number], names[one.number] = left.pop(0)
            joined[one.number] = [
                x
                for x in joins.get(number, ())
                if x.ts >= since and (until is None or x.ts < until)
            ]
            since = one.begin if until is None else until
    return begun, names, joined


def _rows(branch: Branch, indent: str) -> Iterator[tuple[str, str, str, str]]:
    one, total = branch.process, branch.time.total
    phases = (
        f"{phase} {format_ns_as_ms(ns)} ms"
        for (phase,), ns in branch.time.by("phase").items()
        if phase
    )
    called = " ".join(filter(None, (branch.name, one.command)))
    if len(called) > _LONGEST:
        called = f"{called[:_LONGEST]}…"
    share = f"{branch.waiting / total:.1%}" if total else "-"
    yield f"{indent}{one.label} {called}", format_ns_as_ms(total), share, ", ".join(phases)
    for child in branch.children:
        yield from _rows(child, f"{indent}  ")
