"""Memory of a whole run of any length: repeated turns are drawn once, with their number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.memory_timeline import Segment
from timerl_nb.compiler.memory.steady_state.extrapolated_timeline import AnyTimeline, FoldedTimeline
from timerl_nb.show.view_model import amounts, shown

COLUMNS: Final = 1024  # columns of all segments together, about as many as a screen has


@dataclass(frozen=True, eq=False)
class Stretch:
    """Consecutive executed points of a run.

    Attributes:
        first, last: their times in the whole run; `last` is exclusive.
        bytes: float64 (n,), the maximal live bytes in each of n parts of about equal length.
        turns: the number of equal iterations of the outermost loop that these points represent; the next
            segment follows the last of them. 0 if the next segment follows directly.
        more: the growth of live bytes over all these turns.
    """

    first: int
    last: int
    bytes: Array
    turns: int
    more: int

    @shown
    def note(self) -> str:
        """The label of a gap, "" without one."""
        return f"× {format_count(self.turns, 'turn')}" if self.turns else ""

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, eq=False)
class WholeRun:
    """Live bytes of a run, from its first executed point to its last.

    Attributes:
        points: the number of executed points.
        first, last: the times of the turn that the view draws in detail; `last` is exclusive.
    """

    points: int
    stretches: tuple[Stretch, ...]
    first: int
    last: int

    @classmethod
    def from_plan(cls, plan: MemoryPlan, times: Array) -> WholeRun | None:
        """Return the whole run of a plan; None if it has no more points than the turn drawn in detail.

        Args:
            plan: the memory plan.
            times: the times of the points of that turn, ascending.
        """
        line = plan.timeline()
        points = line.segments[-1].end
        if points <= len(times):
            return None
        first, last = (int(times[0]), int(times[-1]) + 1) if len(times) else (0, 0)
        return cls(points, stretches(line), first, last)


def stretches(line: AnyTimeline) -> tuple[Stretch, ...]:
    """Return the segments of a timeline to draw: all of it, or one period of repeated turns."""
    parts = list(_parts(line))
    total = sum(last - first for first, last, *_ in parts)
    found: list[Stretch] = []
    for first, last, turns, more in parts:
        columns = min(last - first, max(1, COLUMNS * (last - first) // total))
        starts = np.linspace(first, last, columns, endpoint=False).astype(int)
        most = line.bytes_at(line.peak_times(starts, last))
        found.append(Stretch(first, last, amounts(most), turns, more))
    return tuple(found)


def _parts(line: AnyTimeline) -> Iterator[tuple[int, int, int, int]]:
    """Yield the start and end of consecutive segments, with the turns and growth defined by `Stretch`."""
    end = line.segments[-1].end
    found = next((one for one in line.segments if one.repeats > 2), None)
    if found is None or not isinstance(line, FoldedTimeline) or not line.turns:
        yield from [(0, end, 0, 0)] if end else []
        return
    period, more = _period(line, found)
    steady = _widen_segment(line, found, period, more)
    behind = steady.start + steady.length
    if steady.start:
        yield 0, steady.start, 0, 0
    grown = int(more[-1]) * steady.repeats
    yield steady.start, behind, line.turns * steady.repeats, grown
    # the extreme of a growing segment is at its end
    rest = steady.end - steady.length * bool(more.any())
    if rest < end:
        yield rest, end, 0, 0


def _period(line: AnyTimeline, segment: Segment) -> tuple[Array, Array]:
    """Return the live bytes in the first period of a segment, and their growth per period."""
    start, length = segment.start, segment.length
    first = line.bytes_between(start, start + length)
    last = line.bytes_between(segment.end - length, segment.end)
    return first, (last - first) // (segment.repeats - 1)


def _widen_segment(line: AnyTimeline, segment: Segment, period: Array, more: Array) -> Segment:
    """Extend a segment by surrounding periods with the same live bytes."""
    start, length, end = segment.start, segment.length, segment.end
    ahead, behind = period - more, period + segment.repeats * more
    while start >= length and np.array_equal(line.bytes_between(start - length, start), ahead):
        start, ahead = start - length, ahead - more
    while np.array_equal(line.bytes_between(end, end + length), behind):
        end, behind = end + length, behind + more
    return Segment(start, length, (end - start) // length)
