"""The timeline of a long run, put together from those of two short ones that are a period apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.errors import BoundsError
from timerl_nb.memory.timeline import GATHERED, Holder, Segment, Timeline
from timerl_nb.schedule.clock import MOST_POINTS


class Unlike(Exception):
    """The two runs differ by more than a period."""


def check(same: bool) -> None:
    """Raise where the two runs differ by more than a period."""
    if not same:
        raise Unlike


def parts(
    small: Array, large: Array, first: int, length: int, repeats: int
) -> tuple[Array, Array, Array, Array]:
    """Numbers of two short runs, in order -> those of a long one.

    Args:
        first, length: which of them are of the period that repeats, `repeats` times more than in the
            smaller run.

    Returns:
        those ahead of the period, of its first run, what each run of it adds, and those behind.
    """
    behind = first + length
    head = small[:first] + repeats * (large[:first] - small[:first])
    period = small[first:behind] + repeats * (large[first:behind] - small[first:behind])
    later = large[behind : behind + length]
    tail = small[behind:] + repeats * (large[behind + length :] - small[behind:])
    return head, period, later - large[first:behind], tail


def gone_on(small: Array, large: Array, first: int, length: int, repeats: int) -> Array:
    """All numbers of a long run, from those of two short ones; see `parts`."""
    head, period, more, tail = parts(small, large, first, length, repeats)
    runs = np.arange(repeats + 1).reshape(-1, *[1] * period.ndim)
    middle = (period + runs * more).reshape(-1, *period.shape[1:])
    return np.concatenate([head, middle, tail])


@dataclass(frozen=True)
class Moment:
    """A time of the whole run: times of the two short ones, and how its numbers follow from theirs.

    A number there is that of the smaller run and `repeats` times what the larger one has more; of a turn
    in the middle `behind` periods are gone, each of which adds what `later` has more than `large`.
    """

    small: int
    large: int
    later: int
    repeats: int
    behind: int

    def number(self, small: int, large: int, later: int) -> int:
        return small + self.repeats * (large - small) + self.behind * (later - large)


@dataclass(frozen=True)
class FoldedTimeline:
    """Live bytes over a long run; as `Timeline`, of which arrays are made on demand alone.

    Attributes:
        small, large: those of the two short runs.
        first, length: the executed points of the period that repeats, the same in both.
        repeats: how many more there are in the whole run than in the smaller one.
        turns: of the outer loop, in a period.
    """

    small: Timeline
    large: Timeline
    first: int
    length: int
    repeats: int
    turns: int

    @property
    def outer(self) -> str | None:
        return self.small.outer

    @property
    def host_peak(self) -> int:
        return 0

    def __len__(self) -> int:
        return len(self.small.time) + self.repeats * self.length

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What runs, in order: the first turns, the period that repeats, and the last turns."""
        behind = self.first + (self.repeats + 1) * self.length
        found = (
            Segment(0, self.first, 1),
            Segment(self.first, self.length, self.repeats + 1),
            Segment(behind, len(self) - behind, 1),
        )
        return tuple(segment for segment in found if segment.length)

    # --- in a straight line ------------------------------------------------------------------

    def _parts(self, small: Array, large: Array) -> tuple[Array, Array, Array, Array]:
        return parts(small, large, self.first, self.length, self.repeats)

    def between(self, first: int, last: int) -> Array:
        """Live bytes from one time on to another, which is not among them."""
        return self.bytes_at(np.arange(first, min(last, len(self))))

    def bytes_at(self, times: Array) -> Array:
        """Live bytes at some times."""
        return self._at(self.small.bytes, self.large.bytes, times)

    def held_at(self, times: Array) -> Mapping[str, Array]:
        """The same of each tensor, and of gathered operands."""
        lines = self.small, self.large
        small, large = ({**line.by_tensor, GATHERED: line.transient} for line in lines)
        return {name: self._at(small[name], large[name], times) for name in large}

    def turn_at(self, time: int) -> int:
        """The value of the dimension that the outermost loop runs along; -1 outside that loop."""
        return int(self._at(self.small.turn, self.large.turn, np.array([time]))[0])

    def _at(self, known: Array, larger: Array, time: Array) -> Array:
        """Numbers by time of the two short runs -> those of the whole one at some times."""
        # as many behind the period; nothing may run in it
        behind = np.clip((time - self.first) // max(1, self.length), 0, self.repeats + 1)
        small = time - np.minimum(behind, self.repeats) * self.length
        more = small + self.length * (behind > self.repeats)
        found = known[small] + self.repeats * (larger[more] - known[small])
        inside = (time >= self.first) & (behind <= self.repeats)
        at = small[inside]
        found[inside] += behind[inside] * (larger[at + self.length] - larger[at])
        return found

    def _expanded(self, small: Array, large: Array) -> Array:
        """Numbers by time, of the whole run.

        Raises:
            BoundsError: it is too long.
        """
        if len(self) > MOST_POINTS:
            raise BoundsError(
                f"the run executes {len(self):,} points: too many for arrays of them.",
                hint="look at `segments`, `peak` and `holders_at(time)`, or give smaller bounds.",
            )
        return gone_on(small, large, self.first, self.length, self.repeats)

    def moment(self, time: int) -> Moment:
        """What is known of a time of the whole run."""
        if time < self.first or not self.length:
            return Moment(time, time, time, self.repeats, 0)
        behind, inside = divmod(time - self.first, self.length)
        if behind <= self.repeats:
            at = self.first + inside
            return Moment(at, at, at + self.length, self.repeats, behind)
        small = time - self.repeats * self.length
        return Moment(small, small + self.length, small + self.length, self.repeats, 0)

    # --- as a timeline -----------------------------------------------------------------------

    @property
    def time(self) -> Array:
        return self._expanded(self.small.time, self.large.time)

    @property
    def bytes(self) -> Array:
        return self._expanded(self.small.bytes, self.large.bytes)

    @property
    def transient(self) -> Array:
        return self._expanded(self.small.transient, self.large.transient)

    @property
    def turn(self) -> Array:
        return self._expanded(self.small.turn, self.large.turn)

    @property
    def host(self) -> Array:
        return self._expanded(self.small.host, self.large.host)

    @property
    def by_tensor(self) -> Mapping[str, Array]:
        """Live bytes of each tensor on the device over time."""
        small, large = self.small.by_tensor, self.large.by_tensor
        return {name: self._expanded(small[name], large[name]) for name in small}

    @cached_property
    def _peak(self) -> tuple[int, int]:
        """The greatest number of live bytes, and when it is reached first."""
        head, period, more, tail = self._parts(self.small.bytes, self.large.bytes)
        last = self.first + self.repeats * self.length
        starts = (
            (head, 0),
            (period, self.first),
            (period + self.repeats * more, last),  # in between it is no more than in both
            (tail, last + self.length),
        )
        found = [(int(part.max()), -at - int(part.argmax())) for part, at in starts if len(part)]
        most, time = max(found, default=(0, 0))
        return most, -time

    @property
    def peak(self) -> int:
        """The greatest number of live bytes on the device."""
        return self._peak[0]

    @property
    def peak_time(self) -> int:
        return self._peak[1]

    def main_peak(self, *, shared: bool) -> tuple[int, int]:
        """See `Timeline.main_peak`; nothing waits on the host."""
        return self._peak if shared else (0, 0)

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Who holds the bytes at the peak, the largest first."""
        return self.holders_at(self.peak_time)

    def holders_at(self, time: int) -> tuple[Holder, ...]:
        """Who holds the live bytes at a time, the largest first."""
        at = self.moment(time)
        pairs = ((self.small, at.small), (self.large, at.large), (self.large, at.later))
        known = [{h.tensor: h for h in line.holders_at(t)} for line, t in pairs]
        found: list[Holder] = []
        for name in dict.fromkeys(name for one in known for name in one):
            none = Holder(name, 0, 0)
            three = [one.get(name, none) for one in known]
            nbytes = at.number(*(h.nbytes for h in three))
            if nbytes:
                found.append(Holder(name, nbytes, at.number(*(h.points for h in three))))
        return tuple(sorted(found, key=lambda h: (-h.nbytes, h.tensor)))

    def waiting_at(self, time: int) -> tuple[Holder, ...]:
        """Whose copies take bytes on the host: nobody's."""
        return ()

    def ends(self, turns: int) -> Array:
        """See `Timeline.ends`."""
        small = self.small.ends(turns - self.repeats * self.turns)
        behind = self.first + self.length
        head, period = small[small <= self.first], small[(small > self.first) & (small <= behind)]
        runs = self.length * np.arange(self.repeats + 1)[:, None]
        tail = small[small > behind] + self.repeats * self.length
        middle = (period + runs).ravel()
        idle = np.full(turns + 1 - len(head) - len(middle) - len(tail), self.first)
        return np.concatenate([head, idle, middle, tail])

    def check(self) -> None:
        """Raise where what is known of the short runs does not go on in a straight line."""
        lines = self.small, self.large
        for small, large in zip(*((line.bytes, line.turn) for line in lines), strict=True):
            head, period, more, _ = self._parts(small, large)
            check(len(head) >= self.length)
            check(bool((head[len(head) - self.length :] + more == period).all()))


AnyTimeline = Timeline | FoldedTimeline
