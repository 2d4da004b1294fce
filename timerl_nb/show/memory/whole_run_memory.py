"""The memory of a whole run, however long: what repeats is drawn once, and how often is said."""

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

COLUMNS: Final = 1024  # parts that all stretches have together, as many as a screen has columns


@dataclass(frozen=True, eq=False)
class Stretch:
    """Executed points of a run, one after another, of which nothing is left out.

    Attributes:
        first, last: their times, counted over the whole run; `last` is not among them.
        bytes: float64 (n,), the most that is live in each of n parts of them, all about as long.
        turns: of the outermost loop, all alike, for which these points stand: what follows begins
            behind the last of them. 0 where it follows at once.
        more: bytes that are live more behind all of these turns than at their beginning.
    """

    first: int
    last: int
    bytes: Array
    turns: int
    more: int

    @shown
    def note(self) -> str:
        """What is said where something is left out; empty where nothing is."""
        return f"× {format_count(self.turns, 'turn')}" if self.turns else ""

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, eq=False)
class WholeRun:
    """The live bytes of a run, from its first executed point to its last.

    Attributes:
        points: how many executed points there are.
        first, last: the times of the turn that is drawn beside it, `last` not among them.
    """

    points: int
    stretches: tuple[Stretch, ...]
    first: int
    last: int

    @classmethod
    def from_plan(cls, plan: MemoryPlan, times: Array) -> WholeRun | None:
        """That of a plan; None where it has no more points than the turn that is drawn.

        Args:
            times: of the points of that turn, rising.
        """
        line = plan.timeline()
        points = line.segments[-1].end
        if points <= len(times):
            return None
        first, last = (int(times[0]), int(times[-1]) + 1) if len(times) else (0, 0)
        return cls(points, stretches(line), first, last)


def stretches(line: AnyTimeline) -> tuple[Stretch, ...]:
    """What is to be drawn of a timeline: all of it, or what repeats once."""
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
    """Times from which on and up to which there is nothing left out; see `Stretch` for what follows."""
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
    # what grows is greatest, or least, where it ends
    rest = steady.end - steady.length * bool(more.any())
    if rest < end:
        yield rest, end, 0, 0


def _period(line: AnyTimeline, segment: Segment) -> tuple[Array, Array]:
    """Live bytes in the first of the periods of a segment, and what each adds to them."""
    start, length = segment.start, segment.length
    first = line.bytes_between(start, start + length)
    last = line.bytes_between(segment.end - length, segment.end)
    return first, (last - first) // (segment.repeats - 1)


def _widen_segment(line: AnyTimeline, segment: Segment, period: Array, more: Array) -> Segment:
    """A segment with those periods around it in which as much is live."""
    start, length, end = segment.start, segment.length, segment.end
    ahead, behind = period - more, period + segment.repeats * more
    while start >= length and np.array_equal(line.bytes_between(start - length, start), ahead):
        start, ahead = start - length, ahead - more
    while np.array_equal(line.bytes_between(end, end + length), behind):
        end, behind = end + length, behind + more
    return Segment(start, length, (end - start) // length)
