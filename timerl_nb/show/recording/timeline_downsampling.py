"""Tracks and devices of a recording in a time window, downsampled to the width of the page.

Each track has prefix sums at every 16th event. A column's value is the difference of two prefix sums, plus
the events between them, so the cost is independent of the length of the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError
from timerl_nb.base.text_formatting import format_count, format_ns_as_ms
from timerl_nb.scope.analysis.blocked_time import with_waits
from timerl_nb.scope.analysis.stack_frames import KINDS
from timerl_nb.scope.analysis.state_intervals import WORDS, pieces
from timerl_nb.scope.analysis.thread_timelines import Lane, Lanes
from timerl_nb.scope.storage.event_format import NAME_MASK
from timerl_nb.show.recording.device_downsampling import DeviceSums
from timerl_nb.show.view_model import View, amounts, ints

TrackName = Literal["phase", "operation", "library"]
TRACKS: Final[tuple[TrackName, ...]] = ("phase", "operation", "library")
FEW: Final = 2_000  # number of events in a window up to which each is drawn
MOST_LANES: Final = 12
MOST_DEVICES: Final = 8
WIDEST: Final = 4_096  # maximal number of columns
_BLOCK: Final = 16  # events per prefix sum


@dataclass(frozen=True, eq=False)
class Spans:
    """Topmost entries of a track in order; empty if there are too many.

    Attributes:
        name: for each, an index into the window's names; 0 for no entry.
    """

    begin: Array
    end: Array
    name: Array


@dataclass(frozen=True, eq=False)
class Track:
    """One track of a thread.

    Attributes:
        shares: by kind and column, the kind's fraction of the column, from 0 to 255.
        spans: the single entries.
    """

    kind: TrackName
    shares: Array
    spans: Spans


@dataclass(frozen=True, eq=False)
class StretchLane:
    """Thread in a time window: its position in the recording, and its tracks."""

    lane: int
    tracks: tuple[Track, ...]


@dataclass(frozen=True, eq=False)
class StretchDevice:
    """Device in a time window: its position in the recording, and its activity.

    Attributes:
        shares: by kind of `SORTS` and column, as in a track.
        spans: the operations of all streams; empty if there are too many.
        operations: for each of these, the annotated operation that launched it, by kind of the track; -1 if
            unknown.
    """

    device: int
    shares: Array
    spans: Spans
    operations: Array


@dataclass(frozen=True, eq=False)
class StretchView(View):
    """Tracks in a time window, in nanoseconds since the start of the recording.

    Attributes:
        width: the number of columns.
        names: the names of spans; the first is "".
    """

    view = "stretch"

    begin: float
    end: float
    width: int
    lanes: tuple[StretchLane, ...]
    devices: tuple[StretchDevice, ...]
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{format_count(len(self.lanes), 'lane')} over {format_ns_as_ms(self.end - self.begin)} ms"


class LaneSums:
    """Prefix sums of one thread's tracks.

    Args:
        kinds: for phases and operations, the kind of each name by its number.
        sizes: the number of kinds of each track.
        origin: the time that counts as 0.
    """

    def __init__(
        self, lane: Lane, kinds: Mapping[TrackName, Array], sizes: Sequence[int], origin: int
    ) -> None:
        self._lane = lane
        count = len(lane.edges)
        self.ts = np.empty(count + 1, np.int64)
        self.ts[:-1] = lane.edges["ts"]
        self.ts[-1] = lane.end
        self.ts -= origin
        self._codes = [np.empty(count, np.uint8) for _ in TRACKS]
        blocks = -(-count // _BLOCK)
        self._sums = [np.zeros((blocks + 1, size)) for size in sizes]
        # for each block, the last event of the track before it
        self._before = [np.full(blocks + 1, -1, np.int64) for _ in TRACKS]
        at = 0
        for piece in pieces(lane):
            part = slice(at, at + len(piece.ts))
            spent = np.diff(self.ts[at : part.stop + 1])
            row = np.arange(len(spent)) // _BLOCK
            rows, first = int(row[-1]) + 1, at // _BLOCK + 1  # pieces begin with blocks
            columns = kinds["phase"][piece.phase], kinds["operation"][piece.operation], piece.on
            for code, sums, column, size in zip(
                self._codes, self._sums, columns, sizes, strict=True
            ):
                code[part] = column
                found = np.bincount(row * size + column, spent, rows * size).reshape(rows, size)
                sums[first : first + rows] = found
            for track, before in zip(TRACKS, self._before, strict=True):
                said = np.where(
                    _is_track_edge(piece.kind, track), np.arange(at, part.stop), before[first - 1]
                )
                held = np.maximum.accumulate(said)
                before[first : first + rows] = np.append(held[_BLOCK - 1 : -1 : _BLOCK], held[-1])
            at = part.stop
        for sums in self._sums:
            np.cumsum(sums, axis=0, out=sums)

    def kind_fractions(self, moments: Array) -> list[Array]:
        """Return, by track, the fraction of each kind between consecutive moments."""
        last = len(self.ts) - 2
        at = np.clip(np.searchsorted(self.ts[:-1], moments, side="right") - 1, 0, last)
        block = at // _BLOCK
        inside = np.minimum(block[:, None] * _BLOCK + np.arange(_BLOCK), last)
        until = np.minimum(self.ts[inside + 1], moments[:, None])
        spent = np.maximum(until - self.ts[inside], 0).astype(np.float64)
        spent[:, 1:][inside[:, 1:] == inside[:, :-1]] = 0  # the last event counts once
        wide = np.maximum(np.diff(moments), 1)[:, None]
        found: list[Array] = []
        for code, sums in zip(self._codes, self._sums, strict=True):
            size = sums.shape[1]
            place = np.arange(len(moments))[:, None] * size + code[inside]
            part = np.bincount(place.ravel(), spent.ravel(), len(moments) * size)
            done = sums[block] + part.reshape(len(moments), size)
            share = np.rint(np.diff(done, axis=0) / wide * 255)
            found.append(np.ascontiguousarray(share.T, np.uint8).ravel())
        return found

    def operations(self, moments: Array) -> Array:
        """Return the operation's kind at each of some moments."""
        at = np.searchsorted(self.ts[:-1], moments, side="right") - 1
        return self._codes[TRACKS.index("operation")][np.maximum(at, 0)]

    def edges_between(self, begin: float, end: float) -> slice:
        """Return the range of events that overlap a time window."""
        ends = np.array([begin, end]).astype(np.int64)  # other types would convert all of `ts`
        first, last = np.searchsorted(self.ts[:-1], ends, side="right")
        return slice(max(int(first) - 1, 0), int(last))

    def spans(self, track: int, part: slice) -> tuple[Array, Array, Array]:
        """Return the start and end of each entry, and the `top` of its event; 0 for no entry."""
        edges, start = self._lane.edges, part.start // _BLOCK * _BLOCK
        inside = start + np.flatnonzero(
            _is_track_edge(edges["kind"][start : part.stop], TRACKS[track])
        )
        before = self._before[track][start // _BLOCK]
        known = inside if before < 0 else np.append(before, inside)
        begin = self.ts[known]
        end = np.append(begin[1:], self.ts[-1])[: len(begin)]
        top = np.where(edges["depth"][known] > 0, edges["top"][known], 0)
        return begin, end, top


class Stretches:
    """Source of time windows of a recording's tracks and devices.

    Args:
        phases, operations: the names shown separately; all others share the last kind of a track.

    Attributes:
        devices: the traced devices, by process and number.
    """

    def __init__(self, lanes: Lanes, phases: Sequence[str], operations: Sequence[str]) -> None:
        self._lanes = [with_waits(lane, lanes.names) for lane in lanes.lanes]
        self._names = lanes.names
        self.origin = min((int(one.edges["ts"][0]) for one in self._lanes), default=0)
        self.end = max((one.end for one in self._lanes), default=self.origin) - self.origin
        shown: Mapping[TrackName, Sequence[str]] = {"phase": phases, "operation": operations}
        self._kinds: Mapping[TrackName, Array] = {
            track: _kinds(lanes.names, known) for track, known in shown.items()
        }
        self._sizes = (len(phases) + 2, len(operations) + 2, len(WORDS))
        self._sums: dict[int, LaneSums] = {}
        traced = {
            (one.process, k)
            for one in lanes.devices.traced_windows
            for k in range(len(one.devices))
            if any(lane.process == one.process for lane in self._lanes)
        }
        self.devices = tuple(DeviceSums(lanes.devices, *key, self.origin) for key in sorted(traced))
        self._busiest = sorted(
            range(len(self._lanes)), key=lambda k: (-len(self._lanes[k].edges), k)
        )

    def view(
        self,
        begin: float = 0.0,
        end: float | None = None,
        width: int = 600,
        process: int | None = None,
        most: int = MOST_LANES,
    ) -> StretchView:
        """Return a time window of the tracks with the most events, and of the busiest devices.

        Args:
            begin, end: the window in nanoseconds; by default the whole recording.
            width: the number of columns.
            process: show only the tracks and devices of this process id.
            most: the maximal number of tracks.

        Raises:
            OptionError: the window is empty or too wide.
        """
        end = float(max(self.end, 1)) if end is None else end
        if not (0 <= begin < end and end - begin >= 1 and 1 <= width <= WIDEST):
            raise OptionError(
                f"the window from {begin:,.0f} to {end:,.0f} ns in {width} columns is invalid.",
                hint=f"choose begin >= 0, end >= begin + 1 ns, and 1 to {WIDEST} columns.",
            )
        chosen = [k for k in self._busiest if process is None or self._lanes[k].process == process]
        moments = np.rint(np.linspace(begin, end, width + 1)).astype(np.int64)
        table: dict[str, int] = {"": 0}
        lanes = tuple(self._lane(k, begin, end, moments, table) for k in sorted(chosen[:most]))
        mine = [k for k, one in enumerate(self.devices) if process in (None, one.process)]
        ranked = sorted(mine, key=lambda k: -len(self.devices[k]))[:MOST_DEVICES]
        devices = tuple(self._device(k, begin, end, moments, table) for k in sorted(ranked))
        return StretchView(begin, end, width, lanes, devices, tuple(table))

    def _lane_sums(self, k: int) -> LaneSums:
        sums = self._sums.get(k)
        if sums is None:
            lane = self._lanes[k]
            sums = self._sums[k] = LaneSums(lane, self._kinds, self._sizes, self.origin)
        return sums

    def _device(
        self, k: int, begin: float, end: float, moments: Array, table: dict[str, int]
    ) -> StretchDevice:
        sums = self.devices[k]
        ran = sums.operations_between(begin, end, FEW)
        operations = np.full(len(ran.begin), -1)
        for lane in np.unique(ran.lane[ran.lane >= 0]).tolist():
            mine = ran.lane == lane
            operations[mine] = self._lane_sums(lane).operations(ran.launched[mine])
        spans = self._build_spans(ran.begin, ran.end, ran.name, table)
        return StretchDevice(k, sums.busy_fractions(moments), spans, ints(operations))

    def _lane(
        self, k: int, begin: float, end: float, moments: Array, table: dict[str, int]
    ) -> StretchLane:
        sums = self._lane_sums(k)
        part = sums.edges_between(begin, end)
        few = part.stop - part.start <= FEW
        tracks: list[Track] = []
        for number, shares in enumerate(sums.kind_fractions(moments)):
            spans = self._spans(sums, number, part, table) if few else _NO_SPANS
            tracks.append(Track(TRACKS[number], shares, spans))
        return StretchLane(k, tuple(tracks))

    def _spans(self, sums: LaneSums, track: int, part: slice, table: dict[str, int]) -> Spans:
        begin, end, top = sums.spans(track, part)
        return self._build_spans(begin, end, top & NAME_MASK, table)

    def _build_spans(self, begin: Array, end: Array, name: Array, table: dict[str, int]) -> Spans:
        names = [self._names[one] for one in name.tolist()]
        numbers = [table.setdefault(name, len(table)) for name in names]
        return Spans(amounts(begin), amounts(end), ints(numbers))


def _is_track_edge(kind: Array, track: TrackName) -> Array:
    """Return a mask of the events that belong to a track."""
    enter, leave = KINDS["call" if track == "library" else track]
    return (kind == enter) | (kind == leave)


_NO_SPANS: Final = Spans(amounts([]), amounts([]), ints([]))


def _kinds(names: Sequence[str], known: Sequence[str]) -> Array:
    """Map the number of each name to its kind: 0 for no name, 1 and above for known names, the last one for
    others.
    """
    found = np.full(len(names), len(known) + 1, np.uint8)
    found[0] = 0
    places = {name: k for k, name in enumerate(known, 1)}
    for number, name in enumerate(names):
        if name in places:
            found[number] = places[name]
    return found
