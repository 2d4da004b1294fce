"""View-model of a recording: processes, operations by library, transitions, and tracks.

The sums are those of `Recording.table()` per process; the widget adds up the visible ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from timerl_nb.base.text_formatting import align_columns, format_ns_as_ms
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.scope import Breakdown, Recording, processes
from timerl_nb.scope.analysis.process_tree import Branch
from timerl_nb.scope.analysis.stack_frames import Stack, count_entries
from timerl_nb.scope.analysis.state_intervals import WORDS
from timerl_nb.scope.recording.annotations import GUESSED
from timerl_nb.scope.recording.recorder import INTERLEAVED
from timerl_nb.scope.storage.event_format import NAME_MASK, Kind
from timerl_nb.show.colours import GREY, SERIES, TENSORS, tensor_colour
from timerl_nb.show.recording.device_downsampling import SORTS
from timerl_nb.show.recording.timeline_downsampling import Stretches, StretchView
from timerl_nb.show.view_model import View

MOST_OPERATIONS: Final = 60  # operations shown separately; the rest is one group
MOST_PHASES: Final = 20
_DRAWN: Final = 600  # columns of a track in a static picture
_MOST_NAMES: Final = 30  # operations listed per device


@dataclass(frozen=True)
class ScopeProcess:
    """Process in tree order: children follow their parent, at `depth` levels below the root.

    Attributes:
        begin, end: nanoseconds since the start of the recording; None for a killed or running process.
    """

    number: int
    parent: int
    depth: int
    command: str
    threads: int
    begin: int
    end: int | None


@dataclass(frozen=True)
class ScopeTransition:
    """Number of calls from one library into another."""

    left: str
    to: str
    count: int


@dataclass(frozen=True)
class ScopeOperation:
    """Operation, the unit of the time breakdown; the name "" is time outside all operations.

    Attributes:
        is_guessed: whether the recorder inferred it without an annotation.
        count: the number of entries.
        op_ids: for the launch of a compiled program, the operations that run there.
    """

    name: str
    is_guessed: bool
    count: int
    transitions: tuple[ScopeTransition, ...]
    op_ids: tuple[int, ...]
    colour: str


@dataclass(frozen=True)
class ScopePhase:
    """Phase; the name "" is time outside all phases."""

    name: str
    count: int
    colour: str


@dataclass(frozen=True)
class ScopeTime:
    """Nanoseconds of one combination of process, phase, operation and library.

    Attributes:
        used: "cpu"; "both" if a device was busy meanwhile; "gpu" if the thread waited for a device;
            "untraced" without device tracing.
    """

    process: int
    phase: int
    operation: int
    library: str
    used: str
    ns: int


@dataclass(frozen=True)
class ScopeLane:
    """Thread: the position of its process, and its number of events."""

    process: int
    thread: int
    name: str
    edges: int


@dataclass(frozen=True)
class ScopeRan:
    """Device operations with one name."""

    sort: str
    name: str
    count: int
    ns: int


@dataclass(frozen=True)
class ScopeDevice:
    """Device as traced by one process: the position of the process, and the number of the device.

    Attributes:
        looked: traced nanoseconds.
        busy: nanoseconds of these in which an operation ran.
        ran: the longest operations first; overlapping streams can exceed `busy`.
    """

    process: int
    number: int
    name: str
    looked: int
    busy: int
    ran: tuple[ScopeRan, ...]


@dataclass(frozen=True)
class ScopeKey:
    """Legend entry: the colour and the Plotly hatch pattern of a library or of a kind of device operation."""

    name: str
    colour: str
    hatch: str


LIBRARY_KEYS: Final = tuple(
    ScopeKey(*one)
    for one in zip(
        WORDS,
        (SERIES[0], SERIES[1], SERIES[2], SERIES[5], SERIES[4], GREY),
        ("", "/", "\\", "|", "-", "x"),
        strict=True,
    )
)
SORT_KEYS: Final = tuple(
    ScopeKey(*one)
    for one in zip(
        SORTS, (SERIES[3], SERIES[6], TENSORS[4], GREY), ("", "\\", "|", "x"), strict=True
    )
)


@dataclass(frozen=True, eq=False)
class ScopeView(View):
    """Time breakdown of a recording.

    Attributes:
        total: nanoseconds of all threads.
        end: nanoseconds from the start to the end.
        times: their sum is `total`, the largest first.
        lanes: the threads in the order of the recording.
        devices: the traced devices.
        sorts: the kinds of device operations, and untraced time.
        overview: the timeline of the whole recording.
        remark: limits of the recording, such as untraced devices.
    """

    view = "scope"

    total: int
    end: int
    processes: tuple[ScopeProcess, ...]
    phases: tuple[ScopePhase, ...]
    operations: tuple[ScopeOperation, ...]
    libraries: tuple[ScopeKey, ...]
    sorts: tuple[ScopeKey, ...]
    times: tuple[ScopeTime, ...]
    lanes: tuple[ScopeLane, ...]
    devices: tuple[ScopeDevice, ...]
    overview: StretchView
    remark: str

    @classmethod
    def from_recording(cls, recording: Recording) -> ScopeView:
        """Return the view of a recording."""
        return with_stretches(recording)[0]

    def __str__(self) -> str:
        rows = [("operation", "times", "library", "ms", "share")]
        sums: dict[tuple[int, str], int] = {}
        for one in self.times:
            key = one.operation, one.library
            sums[key] = sums.get(key, 0) + one.ns
        for (k, library), ns in sorted(sums.items(), key=lambda pair: -pair[1]):
            operation = self.operations[k]
            times = f"{operation.count:,}" if operation.count else ""
            share = f"{ns / self.total:.1%}"
            rows.append((operation.name or "-", times, library, format_ns_as_ms(ns), share))
        return "\n".join([f"{format_ns_as_ms(self.total)} ms", *align_columns(rows, left=(0, 2))])


def with_stretches(recording: Recording) -> tuple[ScopeView, Stretches]:
    """Return the view of a recording, and the source of time windows of its tracks.

    Raises:
        CallError: the argument is not a recording.
    """
    expect_type(recording, Recording, "a recording", "trl.scope.read(folder) gives one.")
    sums: dict[tuple[int, str, str, str, str], int] = {}
    shown: list[ScopeProcess] = []
    for process, table in _processes(recording):
        for cell, ns in table.cells.items():
            used = cell.used.name.lower()
            sums[len(shown), cell.phase, cell.operation, cell.library, used] = ns
        shown.append(process)
    phases = _Kinds({}, MOST_PHASES)
    operations = _Kinds({}, MOST_OPERATIONS)
    for (_, phase, operation, _, _), ns in sums.items():
        phases.sums[phase] = phases.sums.get(phase, 0) + ns
        operations.sums[operation] = operations.sums.get(operation, 0) + ns
    told: dict[tuple[int, int, int, str, str], int] = {}
    for (k, phase, operation, library, used), ns in sums.items():
        key = k, phases.place(phase), operations.place(operation), library, used
        told[key] = told.get(key, 0) + ns
    stretches = Stretches(recording, phases.named_kinds, operations.named_kinds)
    numbers = {process.number: k for k, process in enumerate(shown)}
    view = ScopeView(
        sum(sums.values()),
        stretches.end,
        tuple(shown),
        _phases(recording, phases),
        _operations(recording, operations),
        LIBRARY_KEYS,
        SORT_KEYS,
        tuple(
            ScopeTime(*key, ns)
            for key, ns in sorted(told.items(), key=lambda pair: (-pair[1], pair[0]))
        ),
        tuple(
            ScopeLane(numbers[one.process], one.thread, one.name, len(one.edges))
            for one in recording.lanes
        ),
        tuple(_devices(recording, stretches, numbers)),
        stretches.view(width=_DRAWN),
        _remark(recording, sums),
    )
    return view, stretches


class _Kinds:
    """Names shown separately: "" first, then those with the most time; the last entry groups the rest.

    Args:
        sums: nanoseconds by name.
    """

    def __init__(self, sums: dict[str, int], most: int) -> None:
        self.sums, self._most = sums, most

    @cached_property
    def named_kinds(self) -> list[str]:
        """The names shown separately, without ""."""
        ranked = sorted(self.sums.items(), key=lambda pair: (-pair[1], pair[0]))
        return [name for name, _ in ranked if name][: self._most]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(("", *self.named_kinds))}

    @property
    def names(self) -> tuple[str, ...]:
        """The names by position."""
        others = len(self.sums.keys() - self._indices.keys())
        return ("", *self.named_kinds, *((f"{others:,} others",) if others else ()))

    def place(self, name: str) -> int:
        return self._indices.get(name, len(self._indices))


def _processes(recording: Recording) -> Iterator[tuple[ScopeProcess, Breakdown]]:
    """Yield the processes with their times in tree order; processes known only from tracks come last."""
    origin = min((int(one.edges["ts"][0]) for one in recording.lanes), default=0)
    threads = Counter(lane.process for lane in recording.lanes)

    def list_descendants(branch: Branch, depth: int) -> Iterator[tuple[ScopeProcess, Breakdown]]:
        one, count = branch.process, threads.pop(branch.process.number, 0)
        called = ": ".join(filter(None, (one.host, branch.name, one.command)))
        times = one.begin - origin, None if one.end is None else one.end - origin
        yield ScopeProcess(one.number, one.parent, depth, called, count, *times), branch.time
        for child in branch.children:
            yield from list_descendants(child, depth + 1)

    for root in processes(recording).roots:
        yield from list_descendants(root, 0)
    for number, count in threads.items():
        own = tuple(lane for lane in recording.lanes if lane.process == number)
        table = replace(recording, lanes=own).table()
        yield ScopeProcess(number, 0, 0, "", count, 0, None), table


def _counts(recording: Recording, stack: Stack) -> Counter[str]:
    """Return the number of entries of each name, including those in disabled blocks."""
    found: Counter[str] = Counter()
    for lane in recording.lanes:
        for name, count in count_entries(lane, stack).items():
            found[recording.names[name]] += count
    return found


def _phases(recording: Recording, kinds: _Kinds) -> tuple[ScopePhase, ...]:
    counts = _counts(recording, "phase")
    return tuple(
        ScopePhase(name, counts[name], GREY if not name else tensor_colour(-k))
        for k, name in enumerate(kinds.names)
    )


def _operations(recording: Recording, kinds: _Kinds) -> tuple[ScopeOperation, ...]:
    counts, places = Counter[int](), Counter[tuple[int, str, str]]()
    for name, count in _counts(recording, "operation").items():
        counts[kinds.place(name)] += count
    for (name, left, to), count in recording.transitions().items():
        places[kinds.place(name), left, to] += count
    found: list[ScopeOperation] = []
    for k, name in enumerate(kinds.names):
        moves = [ScopeTransition(left, to, n) for (at, left, to), n in places.items() if at == k]
        colour = GREY if not name else tensor_colour(k - 1)
        is_guessed, op_ids = name.endswith(GUESSED), recording.op_ids.get(name, ())
        found.append(ScopeOperation(name, is_guessed, counts[k], tuple(moves), op_ids, colour))
    return tuple(found)


def _devices(
    recording: Recording, stretches: Stretches, numbers: Mapping[int, int]
) -> Iterator[ScopeDevice]:
    """Yield the busy time of each device, and its operations by total time; the rarest ones are combined."""
    devices = recording.devices
    for one in stretches.devices:
        name = next(
            window.devices[one.number]
            for window in devices.traced_windows
            if window.process == one.process and one.number < len(window.devices)
        )
        names = recording.names
        keys, code = np.unique(
            devices.sort[one.ran] * len(names) + devices.name[one.ran], return_inverse=True
        )
        took = np.bincount(code, devices.end[one.ran] - devices.begin[one.ran], len(keys))
        columns = keys.tolist(), np.bincount(code, minlength=len(keys)).tolist(), took.tolist()
        rows = [
            ScopeRan(SORTS[key // len(names)], names[key % len(names)], count, int(ns))
            for key, count, ns in zip(*columns, strict=True)
        ]
        rows.sort(key=lambda row: (-row.ns, row.sort, row.name))
        rest = rows[_MOST_NAMES:]
        del rows[_MOST_NAMES:]
        for sort in dict.fromkeys(row.sort for row in rest):
            count, ns = np.sum([(x.count, x.ns) for x in rest if x.sort == sort], 0).tolist()
            rows.append(ScopeRan(sort, "others", count, ns))
        yield ScopeDevice(numbers[one.process], one.number, name, one.looked, one.busy, tuple(rows))


def _remark(recording: Recording, sums: Iterable[tuple[int, str, str, str, str]]) -> str:
    """Return remarks about missing or uncertain data."""
    said = list[str]()
    if all(used == "untraced" for *_, used in sums):
        said.append("no device was traced: device times are unknown, not zero")
    left = Counter[str]()
    for lane in recording.lanes:
        edges = lane.edges[lane.edges["kind"] == Kind.MARK]
        for name, count in zip(
            *np.unique(edges["top"] & NAME_MASK, return_counts=True), strict=True
        ):
            left[recording.names[name]] += int(count)
    out = [
        f"{name.removeprefix(INTERLEAVED)} ({count:,} times)"
        for name, count in left.items()
        if name.startswith(INTERLEAVED)
    ]
    if out:
        said.append(f"closed out of order, and therefore drawn in several parts: {', '.join(out)}")
    return "; ".join(said)
