"""Predicted live bytes over schedule time, from the schedule and the lifetimes.

All times and last readers are piecewise quasi-affine, so NumPy computes and sorts them for all points
in one step. The prediction is independent of the loop nest and the executors. So comparing it with the
allocations of a run tests both.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import BoundsError
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.memory.liveness.last_uses import Lifetime
from timerl_nb.compiler.memory.liveness.value_lifetimes import (
    ValueLiveRanges,
    enter,
    series,
    value_live_ranges,
)
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock

GATHERED: Final = "gathered operands"  # name of the holder of gathered operands
_NEVER: Final[Array] = np.zeros(0, np.int64)
_MOST: Final = 1 << 53  # sums of a few such sizes fit into int64


@dataclass(frozen=True)
class Holder:
    """Bytes held by one tensor, in `points` values."""

    tensor: str
    nbytes: int
    points: int

    def __str__(self) -> str:
        return f"{self.tensor}: {self.nbytes:,} bytes in {self.points} values"


@dataclass(frozen=True)
class Segment:
    """A stretch of executed points, repeated several times.

    Attributes:
        start: the first time.
        length: the number of points in one stretch.
        repeats: the number of repetitions.
    """

    start: int
    length: int
    repeats: int

    @property
    def end(self) -> int:
        """The time after the last point."""
        return self.start + self.length * self.repeats


@dataclass(frozen=True)
class Timeline:
    """Live bytes at each executed point, in order of execution.

    Attributes:
        time: the number of each executed point.
        bytes: live bytes on the device during each point.
        host: bytes of swapped values on the host.
        spans: the live ranges of each lifetime.
        transient: bytes of gathered operands.
        outer: the dimension of the outermost loop, or None.
        turn: the value of `outer` at each point; -1 outside the loop.
    """

    time: Array
    bytes: Array
    host: Array
    spans: tuple[Span, ...]
    transient: Array
    outer: str | None
    turn: Array

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The executed points in order, as repeated stretches; here a single segment."""
        return (Segment(0, len(self.time), 1),)

    def bytes_between(self, first: int, last: int) -> Array:
        """Return the live bytes from time `first` up to, but excluding, `last`."""
        return self.bytes[first:last]

    def peak_times(self, starts: Array, end: int) -> Array:
        """Return the first time of the peak within each interval between consecutive starts.

        Args:
            starts: ascending times.
            end: the end of the last interval.
        """
        parts = np.split(self.bytes[starts[0] : end], starts[1:] - starts[0])
        return starts + [part.argmax() for part in parts]

    def bytes_at(self, times: Array) -> Array:
        """Return the live bytes at some times."""
        return self.bytes[times]

    def held_at(self, times: Array) -> Mapping[str, Array]:
        """Return the live bytes at some times for each tensor, and for gathered operands."""
        held = {**self.by_tensor, GATHERED: self.transient}
        return {name: values[times] for name, values in held.items()}

    def turn_at(self, time: int) -> int:
        """Return the value of the outermost loop's dimension at a time; -1 outside the loop."""
        return int(self.turn[time])

    def ends(self, turns: int) -> Array:
        """Return the number of executed points after 0, 1, … `turns` outermost iterations."""
        done = np.maximum.accumulate(self.turn)
        return np.searchsorted(done, np.arange(-1, turns), side="right")

    @property
    def in_turns(self) -> Array:
        """Number of executed points per iteration of the outermost loop.

        Without an outermost loop, the single entry counts the whole run.
        """
        inside = self.turn[self.turn >= 0]
        return np.bincount(inside) if len(inside) else np.array([len(self.turn)])

    @property
    def most_in_turn(self) -> int:
        """The greatest number of executed points in an iteration."""
        return int(self.in_turns.max())

    def main_peak(self, *, shared: bool) -> tuple[int, int]:
        """Return the peak of main memory in bytes, and its time.

        Args:
            shared: whether the device uses main memory.
        """
        total = self.bytes + self.host if shared else self.host
        return (int(total.max()), int(total.argmax())) if len(total) else (0, 0)

    @property
    def peak(self) -> int:
        """The peak of live bytes on the device."""
        return int(self.bytes.max(initial=0))

    @property
    def host_peak(self) -> int:
        """The peak of bytes of swapped values on the host."""
        return int(self.host.max(initial=0))

    @property
    def peak_time(self) -> int:
        return int(self.bytes.argmax()) if len(self.bytes) else 0

    @cached_property
    def by_tensor(self) -> Mapping[str, Array]:
        """Live bytes of each tensor on the device over time."""
        found: dict[str, Array] = {}
        for span in self.spans:
            for (name, nbytes), moves in zip(span.tensors, span.moves, strict=True):
                one = nbytes * span.count_on_device(len(self.time), moves=moves)
                found[name] = found[name] + one if name in found else one
        return found

    @property
    def holders(self) -> tuple[Holder, ...]:
        """The holders of the bytes at the peak, the largest first."""
        return self.holders_at(self.peak_time)

    def holders_at(self, time: int) -> tuple[Holder, ...]:
        """Return the holders of the live bytes at a time, the largest first."""
        found: list[Holder] = []
        for span in self.spans:
            count = int(((span.birth_times <= time) & (span.dies >= time)).sum())
            if count:
                absent = sum(away.count_at(time) for away in span.away)
                for (name, nbytes), moves in zip(span.tensors, span.moves, strict=True):
                    held = count - absent * moves
                    if held:
                        found.append(Holder(name, nbytes * held, held))
        if len(self.transient) and self.transient[time]:
            found.append(Holder(GATHERED, int(self.transient[time]), 1))
        return _sort_holders(found)

    def waiting_at(self, time: int) -> tuple[Holder, ...]:
        """Return the holders of the bytes on the host at a time, the largest first."""
        found: list[Holder] = []
        for span in self.spans:
            since, until = span.hosted
            held = int(((since <= time) & (until >= time)).sum())
            for (name, nbytes), moves in zip(span.tensors, span.moves, strict=True):
                if held and moves:
                    found.append(Holder(name, nbytes * held, held))
        return _sort_holders(found)


def _sort_holders(holders: list[Holder]) -> tuple[Holder, ...]:
    return tuple(sorted(holders, key=lambda h: (-h.nbytes, h.tensor)))


@dataclass(frozen=True)
class Absence:
    """Absences of one lifetime's values from the device, one entry per gap.

    Attributes:
        nbytes: the swapped bytes per point.
        codes: the value of each gap, as a number.
        used: the time of the use before the gap. The value is copied to the host after it.
        gone: the first time without the value on the device.
        back: the first time with the value on the device again. If `back <= gone`, the value stays.
    """

    nbytes: int
    codes: Array
    used: Array
    gone: Array
    back: Array

    @property
    def turns(self) -> int:
        """Number of moves from the device to the host."""
        return int((self.back > self.gone).sum())

    def change(self, length: int) -> Array:
        """Return the bytes absent from the device at every time."""
        return series(self.gone, self.kept_off, self.nbytes, length)

    @property
    def kept_off(self) -> Array:
        """The last time of each absence. It precedes the first if the value stays."""
        return np.maximum(self.gone, self.back) - 1

    def count_at(self, time: int) -> int:
        return int(((self.gone <= time) & (self.back > time)).sum())


@dataclass(frozen=True)
class Span:
    """Live ranges of one lifetime's values, and the bytes of each tensor's value.

    Attributes:
        tensors: the name and the bytes of each tensor.
        lives: the live ranges.
        moves: whether each tensor is swapped.
        away: the absences of the swapped tensors.
        hosted: the first and last time of each value on the host.
    """

    tensors: tuple[tuple[str, int], ...]
    lives: ValueLiveRanges
    moves: tuple[bool, ...] = ()
    away: tuple[Absence, ...] = ()
    hosted: tuple[Array, Array] = (_NEVER, _NEVER)

    @property
    def points(self) -> Array:
        return self.lives.points

    @property
    def birth_times(self) -> Array:
        return self.lives.born

    @property
    def dies(self) -> Array:
        return self.lives.dies

    @property
    def last_use_times(self) -> Array:
        return self.lives.last

    def count_on_device(self, length: int, *, moves: bool) -> Array:
        """Return the number of a tensor's values on the device at every time."""
        count = series(self.birth_times, self.dies, 1, length)
        for away in self.away if moves else ():
            count = count - away.change(length) // away.nbytes
        return count


def predict(
    clock: Clock,
    lifetimes: Sequence[Lifetime],
    sizes: Mapping[Tensor, int],
    tensors: Mapping[Tensor, str],
    gathered: Mapping[str, int],
    away: Mapping[str, Sequence[Absence]],
    moves: Container[Tensor],
) -> Timeline:
    """Return the timeline of a schedule.

    Args:
        clock: the order of all points.
        lifetimes: the lifetimes of all tensors.
        sizes: bytes of one value (or block) of each tensor.
        tensors: the name of each tensor.
        gathered: bytes of each statement's gathered operands.
        away: the absences of swapped values, by lifetime.
        moves: the swapped tensors.
    """
    total = len(clock)
    change, host = np.zeros(total + 1, np.int64), np.zeros(total, np.int64)
    spans: list[Span] = []
    for life in lifetimes:
        lives = value_live_ranges(clock, life)
        named = tuple((tensors[t], sizes[t]) for t in life.tensors)
        gaps = tuple(away.get(life.name, ()))
        moving = tuple(t in moves for t in life.tensors)
        hosted = (_NEVER, _NEVER)
        if gaps:
            codes = clock.codes(life.domain, lives.points)
            hosted = _host_intervals(gaps, codes, lives.dies, total)
            host += series(*hosted, gaps[0].nbytes, total)
        spans.append(Span(named, lives, moving, gaps, hosted))
        enter(change, lives.born, lives.dies, _representable(named))
        for gap in gaps:
            enter(change, gap.gone, gap.kept_off, -gap.nbytes)
    live = np.cumsum(change[:total])
    transient = np.zeros(total, np.int64)
    for name, nbytes in gathered.items():
        transient[clock.ranks[name]] += nbytes
    outer, turn = clock.turns
    return Timeline(np.arange(total), live + transient, host, tuple(spans), transient, outer, turn)


def _representable(named: Sequence[tuple[str, int]]) -> int:
    """Return the sum of the tensors' bytes, which must be representable in 64 bits."""
    if (total := sum(n for _, n in named)) < _MOST:
        return total
    name, nbytes = max(named, key=lambda one: one[1])
    raise BoundsError(
        f"one value of {name} has {nbytes:,} bytes, and sizes must be less than 2**53.",
        hint="pass smaller bounds.",
    )


def _host_intervals(
    gaps: Sequence[Absence], codes: Array, dies: Array, length: int
) -> tuple[Array, Array]:
    """Return the time of each swapped value on the host, from its first gap to its end."""
    values = np.concatenate([gap.codes for gap in gaps])
    copied = np.concatenate([gap.used + 1 for gap in gaps])
    distinct, which = np.unique(values, return_inverse=True)
    first = np.full(len(distinct), length, np.int64)
    np.minimum.at(first, which, copied)
    order = np.argsort(codes)
    places = order[np.searchsorted(codes, distinct, sorter=order)]
    return first, dies[places]
