"""Live bytes over schedule time, without running: from the schedule and the lifetimes alone.

Every point's time and every value's end are affine, so all of them are computed at once with NumPy
and sorted. The loop AST and the executors are not asked: that the ledger of a run agrees is a test
of both.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.memory.liveness.last_uses import Lifetime
from timerl_nb.compiler.memory.liveness.value_lifetimes import Lives, enter, lives_of, series
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock

GATHERED: Final = "gathered operands"  # who holds what a kernel is given for one point alone
_NEVER: Final[Array] = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Holder:
    """Who holds how many bytes."""

    tensor: str
    nbytes: int
    points: int

    def __str__(self) -> str:
        return f"{self.tensor}: {self.nbytes:,} bytes in {self.points} values"


@dataclass(frozen=True)
class Segment:
    """Executed points, `length` of them from the time `start` on, that are made `repeats` times."""

    start: int
    length: int
    repeats: int

    @property
    def end(self) -> int:
        """The time behind the last of them."""
        return self.start + self.length * self.repeats


@dataclass(frozen=True)
class Timeline:
    """Live bytes while each executed point runs, in execution order.

    `time` counts executed points; `bytes` are live bytes on the device during each, `host` those of
    swapped values on the host; `turn` is the value of the dimension `outer` that the outermost loop
    runs along, -1 outside that loop.
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
        """What runs, in order; a whole that is known point by point is one segment."""
        return (Segment(0, len(self.time), 1),)

    def bytes_between(self, first: int, last: int) -> Array:
        """Live bytes from one time on to another, which is not among them."""
        return self.bytes[first:last]

    def peak_times(self, starts: Array, end: int) -> Array:
        """When most is live first: from each of some rising times on to the next, and to an end behind them."""
        parts = np.split(self.bytes[starts[0] : end], starts[1:] - starts[0])
        return starts + [part.argmax() for part in parts]

    def bytes_at(self, times: Array) -> Array:
        """Live bytes at some times."""
        return self.bytes[times]

    def held_at(self, times: Array) -> Mapping[str, Array]:
        """The same of each tensor, and of gathered operands."""
        held = {**self.by_tensor, GATHERED: self.transient}
        return {name: values[times] for name, values in held.items()}

    def turn_at(self, time: int) -> int:
        """The value of the dimension that the outermost loop runs along; -1 outside that loop."""
        return int(self.turn[time])

    def ends(self, turns: int) -> Array:
        """The number of executed points that are done after 0, 1, … `turns` turns of the outer loop."""
        done = np.maximum.accumulate(self.turn)
        return np.searchsorted(done, np.arange(-1, turns), side="right")

    @property
    def in_turns(self) -> Array:
        """How many points are executed in each turn of the outermost loop; in all where none is one."""
        inside = self.turn[self.turn >= 0]
        return np.bincount(inside) if len(inside) else np.array([len(self.turn)])

    @property
    def most_in_turn(self) -> int:
        """The most of them."""
        return int(self.in_turns.max())

    def main_peak(self, *, shared: bool) -> tuple[int, int]:
        """The most bytes of main memory that there are at once, and when.

        Args:
            shared: the device's memory is the same.
        """
        total = self.bytes + self.host if shared else self.host
        return (int(total.max()), int(total.argmax())) if len(total) else (0, 0)

    @property
    def peak(self) -> int:
        """The greatest number of live bytes on the device."""
        return int(self.bytes.max(initial=0))

    @property
    def host_peak(self) -> int:
        """The greatest number of bytes that swapped values take on the host."""
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
        """Who holds the bytes at the peak, the largest first."""
        return self.holders_at(self.peak_time)

    def holders_at(self, time: int) -> tuple[Holder, ...]:
        """Who holds the live bytes at a time, the largest first."""
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
        """Whose copies take bytes on the host at a time, the largest first."""
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
class Away:
    """When values of one lifetime are not on the device, one entry per gap.

    Attributes:
        nbytes: the bytes of one point's values that move.
        codes: the value of each gap, as a number.
        used: the time of the use before the gap; the values are copied to the host behind it.
        gone: from this time on they are off the device,
        back: and from this one they are there again; a gap with `back <= gone` keeps them there.
    """

    nbytes: int
    codes: Array
    used: Array
    gone: Array
    back: Array

    @property
    def turns(self) -> int:
        """How often a value leaves the device."""
        return int((self.back > self.gone).sum())

    def change(self, length: int) -> Array:
        """The bytes that are off the device at every time."""
        return series(self.gone, self.kept_off, self.nbytes, length)

    @property
    def kept_off(self) -> Array:
        """The last time of each gap; before its first where the value stays."""
        return np.maximum(self.gone, self.back) - 1

    def count_at(self, time: int) -> int:
        return int(((self.gone <= time) & (self.back > time)).sum())


@dataclass(frozen=True)
class Span:
    """When the values of one lifetime live, and the bytes of each tensor's value.

    `moves` says which tensors are `away` between some uses, `hosted` from when until when each of
    their values is on the host.
    """

    tensors: tuple[tuple[str, int], ...]
    lives: Lives
    moves: tuple[bool, ...] = ()
    away: tuple[Away, ...] = ()
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
        """How many values of a tensor are on the device at every time."""
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
    away: Mapping[str, Sequence[Away]],
    moves: Container[Tensor],
) -> Timeline:
    """The timeline of a schedule.

    Args:
        sizes: bytes of one value (or block) of each tensor.
        tensors: what tensors are called.
        gathered: bytes of operands that a statement materialises while it runs.
        away: by lifetime, when its values are not on the device.
        moves: the tensors that this concerns.
    """
    total = len(clock)
    change, host = np.zeros(total + 1, np.int64), np.zeros(total, np.int64)
    spans: list[Span] = []
    for life in lifetimes:
        lives = lives_of(clock, life)
        named = tuple((tensors[t], sizes[t]) for t in life.tensors)
        gaps = tuple(away.get(life.name, ()))
        moving = tuple(t in moves for t in life.tensors)
        hosted = (_NEVER, _NEVER)
        if gaps:
            codes = clock.codes(life.domain, lives.points)
            hosted = _host_intervals(gaps, codes, lives.dies, total)
            host += series(*hosted, gaps[0].nbytes, total)
        spans.append(Span(named, lives, moving, gaps, hosted))
        enter(change, lives.born, lives.dies, sum(n for _, n in named))
        for gap in gaps:
            enter(change, gap.gone, gap.kept_off, -gap.nbytes)
    live = np.cumsum(change[:total])
    transient = np.zeros(total, np.int64)
    for name, nbytes in gathered.items():
        transient[clock.ranks[name]] += nbytes
    outer, turn = clock.turns
    return Timeline(np.arange(total), live + transient, host, tuple(spans), transient, outer, turn)


def _host_intervals(
    gaps: Sequence[Away], codes: Array, dies: Array, length: int
) -> tuple[Array, Array]:
    """When values are on the host: each from the first of its gaps to its end."""
    values = np.concatenate([gap.codes for gap in gaps])
    copied = np.concatenate([gap.used + 1 for gap in gaps])
    distinct, which = np.unique(values, return_inverse=True)
    first = np.full(len(distinct), length, np.int64)
    np.minimum.at(first, which, copied)
    order = np.argsort(codes)
    places = order[np.searchsorted(codes, distinct, sorter=order)]
    return first, dies[places]
