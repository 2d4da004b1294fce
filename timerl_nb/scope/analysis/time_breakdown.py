"""Time breakdown of a recording by phase, operation, library and device use.

Every nanosecond of a thread is attributed to its open phase, operation and library, and to the
state of the devices in traced windows (RL-Scope, section 3.3). Phase, operation and
library are constant between two events; device time comes from prefix sums. The cost is therefore
linear in the number of events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, Literal, get_args

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.base.text_formatting import align_columns, format_ns_as_ms
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.scope.analysis.blocked_time import with_waits
from timerl_nb.scope.analysis.state_intervals import (
    PIECE,
    UNOBSERVED,
    WORDS,
    Piece,
    pieces,
    without_gaps,
)
from timerl_nb.scope.analysis.thread_timelines import Lane, Lanes, Readable, lanes_of
from timerl_nb.scope.device_activity.busy_time import NEVER, Busy
from timerl_nb.scope.device_activity.device_operations import Devices
from timerl_nb.scope.storage.event_format import NAME_BITS, Kind, Library

Column = Literal["phase", "operation", "library", "used", "thread"]
COLUMNS: Final = get_args(Column)
_FAR: Final = np.array([1 << 61])
_ALWAYS: Final = Busy.from_intervals(-_FAR, _FAR)


class Used(IntEnum):
    """Use of CPU and devices in a time interval.

    `CPU`: only the thread runs. `BOTH`: the thread and a device run. `GPU`: the thread waits and a
    device runs. `UNTRACED`: no device trace is available.

    Example:
        >>> trl.scope.Used.GPU.name
        'GPU'
    """

    CPU = 0
    BOTH = 1
    GPU = 2
    UNTRACED = 3  # the thread's time without a device trace


@dataclass(frozen=True)
class Cell:
    """Key of a time breakdown.

    Attributes:
        phase, operation: names; "" for none.
        library: category of the innermost call, "python" without a call, or "unobserved" in
            disabled blocks.
        used: use of CPU and devices.

    Example:
        >>> cell = trl.scope.Cell("collection", "inference", "backend", trl.scope.Used.CPU)
        >>> cell.operation
        'inference'
    """

    phase: str
    operation: str
    library: str
    used: Used


def check_columns(columns: Sequence[str], *, threads: bool = True) -> None:
    """Check the names of columns.

    Args:
        columns: names of columns.
        threads: whether "thread" is a valid column.

    Raises:
        OptionError: a column does not exist.
    """
    for column in columns:
        if column not in COLUMNS or (column == "thread" and not threads):
            known = [one for one in COLUMNS if threads or one != "thread"]
            raise OptionError(
                f"the column {column!r} does not exist.", hint=one_of(str(column), known)
            )


@dataclass(frozen=True)
class Breakdown:
    """Time breakdown of a recording, in nanoseconds; `str` returns a table.

    The cells sum up to the wall time of all threads.

    Attributes:
        cells: nanoseconds by `Cell`.
        unplaced: nanoseconds of kernels and copies without a known launch; only for `by="launch"`,
            not in `cells`.
        threads: cells of each thread, by its name and number. Threads with the most time in
            operations come first.

    Example:
        >>> cell = trl.scope.Cell("", "inference", "backend", trl.scope.Used.CPU)
        >>> breakdown = trl.scope.Breakdown({cell: 2_000_000})
        >>> breakdown.by("operation", "library")
        {('inference', 'backend'): 2000000}
        >>> breakdown.total
        2000000
    """

    cells: Mapping[Cell, int]
    unplaced: int = 0
    threads: Mapping[str, Mapping[Cell, int]] = field(default_factory=dict, compare=False)

    @property
    def total(self) -> int:
        """Sum of all nanoseconds."""
        return sum(self.cells.values())

    def by(self, *columns: Column) -> dict[tuple[str | Used, ...], int]:
        """Return nanoseconds by the values of some columns, in descending order.

        Args:
            columns: "phase", "operation", "library", "used" or "thread"; see `Cell`.

        Raises:
            OptionError: a column does not exist.
        """
        check_columns(columns)
        found: dict[tuple[str | Used, ...], int] = {}
        parts = self.threads if "thread" in columns else {"": self.cells}
        for thread, cells in parts.items():
            for cell, ns in cells.items():
                key = tuple(
                    thread if column == "thread" else getattr(cell, column) for column in columns
                )
                found[key] = found.get(key, 0) + ns
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    def __add__(self, other: Breakdown) -> Breakdown:
        threads = {
            name: _sum(self.threads.get(name, {}), other.threads.get(name, {}))
            for name in dict.fromkeys((*self.threads, *other.threads))
        }
        return Breakdown(_sum(self.cells, other.cells), self.unplaced + other.unplaced, threads)

    def threads_text(self) -> str:
        """Return a table of each thread's time by library."""
        libraries = [word for word in WORDS if any(c.library == word for c in self.cells)]
        rows: list[tuple[str, ...]] = [("thread", "ms", "in operations", *libraries)]
        for name, cells in self.threads.items():
            total, inside = sum(cells.values()), sum(ns for c, ns in cells.items() if c.operation)
            of = [sum(ns for c, ns in cells.items() if c.library == word) for word in libraries]
            rows.append((name, *(format_ns_as_ms(ns) for ns in (total, inside, *of))))
        return "\n".join(align_columns(rows, left=(0,)))

    def __str__(self) -> str:
        total, used = self.total, self.by("operation", "library", "used")
        there = sorted({cell.used for cell in self.cells})
        columns = there if there != [Used.UNTRACED] else []
        rows: list[tuple[str, ...]] = [
            ("operation", "library", "ms", "share", *(_WORDS[one] for one in columns))
        ]
        for key, ns in self.by("operation", "library").items():
            parts = [used.get((*key, one), 0) for one in columns]
            rows.append(
                (str(key[0]) or "-", str(key[1]), *_ms(ns), f"{ns / total:.1%}", *_ms(*parts))
            )
        first = f"{format_ns_as_ms(total)} ms{'' if columns else '; no device data'}"
        lost = [f"{format_ns_as_ms(self.unplaced)} ms of device operations without a known launch"]
        lines = [first, *align_columns(rows, left=(0, 1)), *(lost if self.unplaced else [])]
        if len(self.threads) > 1:
            lines += ["", self.threads_text()]
        return "\n".join(lines)

    __repr__ = __str__


def _sum(first: Mapping[Cell, int], second: Mapping[Cell, int]) -> Mapping[Cell, int]:
    keys = dict.fromkeys((*first, *second))
    return {key: first.get(key, 0) + second.get(key, 0) for key in keys}


_WORDS: Final = {
    Used.CPU: "CPU ms",
    Used.BOTH: "CPU+GPU ms",
    Used.GPU: "GPU ms",
    Used.UNTRACED: "untraced ms",
}


def _ms(*ns: int) -> list[str]:
    return [format_ns_as_ms(one) for one in ns]


@explain_call_errors
def overlap_of(
    recording: Lanes | Readable, busy: Busy | None = None, by: Literal["time", "launch"] = "time"
) -> Breakdown:
    """Return the time breakdown of a recording.

    Args:
        recording: a recording.
        busy: busy time of devices, known at all times. Default: the devices of each thread's
            process, known in traced windows only.
        by: attribution of device time. "time" uses the state of the thread at the same time, as in
            RL-Scope. "launch" uses the state at the launch of the kernel. It counts only kernels
            launched by the thread, and for overlapping kernels the earliest one.

    Raises:
        OptionError: `by` is neither "time" nor "launch".
        CallError: `recording` is not a recording.

    Example:
        >>> with trl.scope.record(exact=True) as recording:
        ...     with trl.scope.operation("inference"):
        ...         total = sum(range(100))
        >>> breakdown = trl.scope.overlap_of(recording)
        >>> sorted(breakdown.by("operation"))
        [('',), ('inference',)]
    """
    recording = lanes_of(recording)
    if by not in ("time", "launch"):
        raise OptionError(
            f"by={by!r} is neither 'time' nor 'launch'.", hint=one_of(str(by), ["time", "launch"])
        )
    found: dict[Cell, int] = {}
    threads: dict[str, dict[Cell, int]] = {}
    names, devices = recording.names, recording.devices
    seen = {
        p: seen_of(devices, devices.process == p, p)
        for p in {x.process for x in devices.traced_windows}
    }
    for number, recorded in enumerate(recording.lanes):
        lane = with_waits(recorded, names)
        if busy is not None:
            there, known = busy, _ALWAYS
        else:
            there, known = seen.get(lane.process, (NEVER, NEVER))
        launched = None
        if by == "launch":
            ran = seen_of(devices, devices.lane == number, lane.process, parts=True)[0]
            there, launched = ran, devices.launched[ran.of_which]
        own = threads.setdefault(_title(lane, len({one.process for one in recording.lanes})), {})
        for (phase, operation, on, used), ns in _stretches(lane, there, known, launched).items():
            cell = Cell(names[phase], names[operation], WORDS[on], Used(used))
            found[cell] = found.get(cell, 0) + ns
            own[cell] = own.get(cell, 0) + ns
    unplaced = 0
    if by == "launch":
        for process, (_, windows) in seen.items():
            lost = (devices.lane < 0) & (devices.process == process)
            ends = windows.busy_before(devices.end[lost]) - windows.busy_before(devices.begin[lost])
            unplaced += int(ends.sum())
    ranked = sorted(
        threads.items(), key=lambda pair: -sum(ns for c, ns in pair[1].items() if c.operation)
    )
    return Breakdown(found, unplaced, dict(ranked))


def _title(lane: Lane, processes: int) -> str:
    number = f"{lane.process}/{lane.thread}" if processes > 1 else f"{lane.thread}"
    return f"{lane.name or 'thread'} ({number})"


def seen_of(
    devices: Devices, which: Array, process: int, *, parts: bool = False
) -> tuple[Busy, Busy]:
    """Return the busy time of device operations, and the traced time of a process.

    Args:
        devices: device operations.
        which: mask of the rows of `devices`.
        process: id of the process.
        parts: whether each busy interval belongs to one row (`of_which`); overlaps belong to the
            earliest row.
    """
    windows = [(one.begin, one.end) for one in devices.traced_windows if one.process == process]
    begin, end = np.array(windows, np.int64).reshape(-1, 2).T
    known, rows = Busy.from_intervals(begin, end), np.flatnonzero(which)
    made = (Busy.from_intervals_in_parts if parts else Busy.from_intervals)(
        devices.begin[rows], devices.end[rows]
    )
    there = made.intersect(known)
    return replace(there, of_which=rows[there.of_which]), known


def _stretches(
    lane: Lane, busy: Busy, known: Busy, launched: Array | None
) -> dict[tuple[int, ...], int]:
    """Return nanoseconds of a timeline by (phase, operation, library, used).

    Args:
        lane: the timeline.
        busy: busy time of devices.
        known: traced time.
        launched: launch times of the busy intervals for attribution by launch; None for attribution
            by time.
    """
    found = Counter[tuple[int, ...]]()
    starts = [int(t) for t in lane.edges["ts"][PIECE::PIECE]]
    moved = None if launched is None else _Moved(lane, busy, launched)
    for piece, end in zip(pieces(lane), [*starts, lane.end], strict=False):
        moments = np.append(piece.ts, end)
        spent, shared, seen = np.diff(
            [moments, busy.busy_before(moments), known.busy_before(moments)]
        )
        if moved is not None:
            spent, seen, shared = moved.subtract(piece, moments, spent, seen, shared)
        keys = piece.phase, piece.operation, piece.on
        for (*key, on), (unseen, alone, beside) in _sum_by_key(
            keys, spent - seen, seen - shared, shared
        ):
            with_device = Used.GPU if on == Library.WAITING else Used.BOTH
            parts = (Used.UNTRACED, unseen), (Used.CPU, alone), (with_device, beside)
            found.update({(*key, on, used): ns for used, ns in parts if ns})
    if moved is not None:
        found.update(dict(moved.cells()))
    return {key: ns for key, ns in found.items() if ns}


class _Moved:
    """Device time attributed to the launch of the kernels.

    Args:
        lane: the timeline.
        busy: busy intervals of kernels launched by this thread, inside of traced windows.
        launched: launch time of each interval.
    """

    def __init__(self, lane: Lane, busy: Busy, launched: Array) -> None:
        self._busy = busy
        edges = lane.edges
        self._edge = np.searchsorted(edges["ts"], launched.astype(np.uint64), side="right") - 1
        last = edges[self._edge]  # a launch with its own event belongs to the state before it
        enters = (last["kind"] == Kind.CALL_ENTER) & (last["ts"] == launched)
        library = last["top"] >> NAME_BITS
        self._edge -= enters & ((library == Library.API) | (library == Library.WAITING))
        self._done = 0
        count = len(launched)
        self._cell = np.zeros((3, count), np.int64)
        self._ns = np.zeros((2, count), np.int64)  # row 0: the thread works, row 1: it waits

    def subtract(
        self, piece: Piece, moments: Array, spent: Array, seen: Array, shared: Array
    ) -> tuple[Array, Array, Array]:
        """Return the times of each event's interval without device time.

        Returns:
            Nanoseconds in total, traced, and shared with a device.
        """
        here = (self._edge >= self._done) & (self._edge < self._done + len(piece.ts))
        edge = self._edge[here] - self._done
        self._cell[:, here] = piece.phase[edge], piece.operation[edge], piece.on[edge]
        self._done += len(piece.ts)
        first = np.searchsorted(self._busy.end, moments[0], side="right")
        some = slice(first, np.searchsorted(self._busy.begin, moments[-1], side="left"))
        begin = np.maximum(self._busy.begin[some], moments[0])
        end = np.minimum(self._busy.end[some], moments[-1])
        at, until = (np.searchsorted(piece.ts, x, side="right") - 1 for x in (begin, end))
        waits = piece.on == Library.WAITING
        for row, which in enumerate((~waits & (piece.on != UNOBSERVED), waits)):
            # time up to each event, and up to a position between two events
            sums = np.concatenate([[0], np.cumsum(np.where(which, spent, 0))])
            self._ns[row, some] += sums[until] + which[until] * (end - piece.ts[until])
            self._ns[row, some] -= sums[at] + which[at] * (begin - piece.ts[at])
        gone = np.where(piece.on == UNOBSERVED, 0, shared)
        return spent - gone, seen - gone, shared - gone

    def cells(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield the device time by the state at the launch."""
        keys = tuple(self._cell)
        for (*key, on), sums in _sum_by_key(keys, *self._ns) if self._cell.size else ():
            for used, ns in zip((Used.BOTH, Used.GPU), sums, strict=True):
                yield (*key, on, used), ns


def _sum_by_key(
    keys: Sequence[Array], *columns: Array
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the sums of integer columns by keys."""
    code, rows = without_gaps(*keys)
    # sums are below 2**53, so floating-point numbers are exact
    sums = (np.bincount(code, x, len(rows)).astype(np.int64).tolist() for x in columns)
    yield from zip(rows, zip(*sums, strict=True), strict=True)
