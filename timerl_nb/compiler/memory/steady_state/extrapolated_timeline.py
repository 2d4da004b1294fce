"""Timelines of long runs, extrapolated from two short runs with a difference of one period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import BoundsError
from timerl_nb.compiler.memory.memory_timeline import GATHERED, Holder, Segment, Timeline
from timerl_nb.compiler.scheduling.enumerated_schedule_points import MOST_POINTS


class Unlike(Exception):
    """The two short runs differ by more than a period."""


def check(same: bool) -> None:
    """Raise `Unlike` if a comparison of the two short runs failed."""
    if not same:
        raise Unlike


def each(first: Array, last: Array) -> tuple[Array, Array]:
    """Return all integers of several ranges, and the range of each.

    Args:
        first, last: the first and last integer of each range.

    Returns:
        The number of the range, and the integer.
    """
    counts = np.maximum(last - first + 1, 0)
    which = np.repeat(np.arange(len(counts)), counts)
    start = np.cumsum(counts) - counts
    return which, first[which] + np.arange(len(which)) - start[which]


@dataclass(frozen=True)
class Runs:
    """Positions of repeated periods in an order of the smaller short run.

    The larger short run contains each period twice in a row. The long run contains `repeats` more
    copies than the smaller run.

    Attributes:
        starts: the position of each period, ascending.
        lengths: the length of each period.
        repeats: the number of additional copies in the long run.
    """

    starts: Array
    lengths: Array
    repeats: int

    @cached_property
    def cumulative_lengths(self) -> Array:
        """The total length of the periods before each period, and of all."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def added_lengths(self, places: Array) -> Array:
        """Return the total length of the periods that end at or before each position."""
        return self.cumulative_lengths[
            np.searchsorted(self.starts + self.lengths, places, side="right")
        ]

    def copies(self, places: Array) -> tuple[Array, Array, Array]:
        """Return the copies of positions of the smaller run in the long run.

        Returns:
            The first copy, the distance between copies, and the number of further copies.
        """
        first, length = places + self.repeats * self.added_lengths(places), np.zeros_like(places)
        if len(self.starts):
            which = np.maximum(np.searchsorted(self.starts, places, side="right") - 1, 0)
            behind = places - self.starts[which]
            inside = (behind >= 0) & (behind < self.lengths[which])
            length = np.where(inside, self.lengths[which], 0)
        return first, length, np.where(length > 0, self.repeats, 0)

    @cached_property
    def periodic_positions(self) -> Array:
        """Positions of the smaller run in periods, with the period's length: shape (n, 2)."""
        which, places = each(self.starts, self.starts + self.lengths - 1)
        return np.stack([places, self.lengths[which]], axis=1)

    def count(self, small: int) -> int:
        """Return a number of the long run from a number of the smaller run."""
        return small + self.repeats * int(self.cumulative_lengths[-1])

    def extrapolate(self, small: Array, large: Array, places: Array) -> Array:
        """Return numbers of the long run at some positions.

        Args:
            small, large: the numbers of the two short runs, in order.
            places: positions of the long run.
        """
        here, there, gone, length = self.locate(places)
        found = small[here] + self.repeats * (large[there] - small[here])
        some = length > 0
        at, behind = there[some], gone[some].reshape(-1, *[1] * (small.ndim - 1))
        found[some] += behind * (large[at + length[some]] - large[at])
        return found

    def locate(self, places: Array) -> tuple[Array, Array, Array, Array]:
        """Return the positions in the short runs that correspond to positions of the long run.

        Returns:
            The position in the smaller run, the position in the larger run, the number of preceding
            copies of the period, and the length of the period. The last two are 0 outside of
            periods.
        """
        if not len(self.starts):
            none = np.zeros_like(places)
            return places, places, none, none
        starts, ends = (
            self.starts + self.repeats * self.cumulative_lengths[:-1],
            self.starts + self.lengths,
        )
        which = np.maximum(np.searchsorted(starts, places, side="right") - 1, 0)
        length, ahead = self.lengths[which], self.cumulative_lengths[which]
        gone = np.clip((places - starts[which]) // length, 0, self.repeats + 1)
        small = places - self.repeats * ahead - np.minimum(gone, self.repeats) * length
        inside = (places >= starts[which]) & (gone <= self.repeats)
        large = small + ahead + length * (small >= ends[which])
        return small, large, np.where(inside, gone, 0), np.where(inside, length, 0)

    def gone_on(self, small: Array, large: Array) -> Array:
        """Return all numbers of the long run, extrapolated from the short runs."""
        return self.extrapolate(small, large, np.arange(self.count(len(small))))


@dataclass(frozen=True)
class Moment:
    """A time of the long run, as times of the two short runs.

    To extrapolate a number, take that of the smaller run, add `repeats` times the difference
    between the larger and the smaller run, and `behind` times the difference between `later` and
    `large`.

    Attributes:
        small, large: the corresponding times of the short runs.
        later: the time one period after `large` in the larger run.
        repeats: the number of additional periods.
        behind: the number of preceding copies of the period.
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
    """Live bytes over a long run, with the interface of `Timeline`. Arrays are computed on demand.

    Attributes:
        small, large: the timelines of the two short runs.
        runs: the executed points of the repeated periods. If an inner loop is periodic, each
            iteration of the outermost loop has one.
        turns: the number of iterations of the outermost loop in a period; 0 if an inner loop is
            periodic.
    """

    small: Timeline
    large: Timeline
    runs: Runs
    turns: int

    @property
    def outer(self) -> str | None:
        return self.small.outer

    @property
    def host_peak(self) -> int:
        return 0

    @property
    def repeats(self) -> int:
        return self.runs.repeats

    @property
    def length(self) -> int:
        """Number of executed points in a period of the outermost loop."""
        return int(self.runs.lengths.sum()) if self.turns else 0

    def __len__(self) -> int:
        return self.runs.count(len(self.small.time))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The executed points in order, as repeated stretches.

        A stretch of first iterations is followed by the repeated period, and so on, and by last
        iterations.
        """
        found, end = list[Segment](), 0
        starts = self.runs.starts + self.repeats * self.runs.cumulative_lengths[:-1]
        for start, length in zip(starts.tolist(), self.runs.lengths.tolist(), strict=True):
            found += [Segment(end, start - end, 1), Segment(start, length, self.repeats + 1)]
            end = found[-1].end
        found.append(Segment(end, len(self) - end, 1))
        return tuple(segment for segment in found if segment.length)

    # --- linear continuation -----------------------------------------------------------------

    def bytes_between(self, first: int, last: int) -> Array:
        """Return the live bytes from time `first` up to, but excluding, `last`."""
        return self.bytes_at(np.arange(first, min(last, len(self))))

    def peak_times(self, starts: Array, end: int) -> Array:
        """Return the times of the peaks, see `Timeline.peak_times`.

        Of a repeated period, only the first and the last copy are examined.
        """
        first = np.array([segment.start for segment in self.segments])
        length = np.array([segment.length for segment in self.segments])
        cuts = np.unique(np.concatenate([starts, first[(first > starts[0]) & (first < end)]]))
        ends = np.append(cuts[1:], end)
        period = length[np.searchsorted(first, cuts, side="right") - 1]
        _, ahead = each(cuts, np.minimum(cuts + period, ends) - 1)
        _, behind = each(np.maximum(cuts + period, ends - period), ends - 1)
        times = np.sort(np.concatenate([ahead, behind]))
        at = np.searchsorted(times, starts)
        parts = np.split(self.bytes_at(times), at[1:])
        return times[at + [part.argmax() for part in parts]]

    def bytes_at(self, times: Array) -> Array:
        """Return the live bytes at some times."""
        return self.runs.extrapolate(self.small.bytes, self.large.bytes, times)

    def held_at(self, times: Array) -> Mapping[str, Array]:
        """Return the live bytes at some times for each tensor, and for gathered operands."""
        lines = self.small, self.large
        small, large = ({**line.by_tensor, GATHERED: line.transient} for line in lines)
        return {name: self.runs.extrapolate(small[name], large[name], times) for name in large}

    def turn_at(self, time: int) -> int:
        """Return the value of the outermost loop's dimension at a time; -1 outside the loop."""
        return int(self.runs.extrapolate(self.small.turn, self.large.turn, np.array([time]))[0])

    def _extrapolate_all(self, small: Array, large: Array) -> Array:
        """Return the numbers of all executed points of the long run.

        Raises:
            BoundsError: the run is too long.
        """
        if len(self) > MOST_POINTS:
            raise BoundsError(
                f"the run executes {len(self):,} points, too many for an array with one entry each.",
                hint="use `segments`, `peak` and `holders_at(time)`, or choose smaller bounds.",
            )
        return self.runs.gone_on(small, large)

    def moment(self, time: int) -> Moment:
        """Return a time of the long run as times of the short runs."""
        located = self.runs.locate(np.array([time]))
        small, large, behind, length = (int(one[0]) for one in located)
        return Moment(small, large, large + length, self.repeats, behind)

    # --- interface of Timeline ---------------------------------------------------------------

    @property
    def time(self) -> Array:
        return self._extrapolate_all(self.small.time, self.large.time)

    @property
    def bytes(self) -> Array:
        return self._extrapolate_all(self.small.bytes, self.large.bytes)

    @property
    def transient(self) -> Array:
        return self._extrapolate_all(self.small.transient, self.large.transient)

    @property
    def turn(self) -> Array:
        return self._extrapolate_all(self.small.turn, self.large.turn)

    @property
    def host(self) -> Array:
        return self._extrapolate_all(self.small.host, self.large.host)

    @property
    def by_tensor(self) -> Mapping[str, Array]:
        """Live bytes of each tensor on the device over time."""
        small, large = self.small.by_tensor, self.large.by_tensor
        return {name: self._extrapolate_all(small[name], large[name]) for name in small}

    @cached_property
    def _peak(self) -> tuple[int, int]:
        """The peak of live bytes, and its first time."""
        runs, small, large = self.runs, self.small.bytes, self.large.bytes
        ahead = runs.added_lengths(np.arange(len(small)))
        first = small + self.repeats * (large[np.arange(len(small)) + ahead] - small)
        # Live bytes change linearly from copy to copy, so the extremes are in the first and the
        # last period.
        at, length = runs.periodic_positions.T
        there = at + ahead[at]
        last = first[at] + self.repeats * (large[there + length] - large[there])
        found = [(0, 0)]
        for live, times in (
            (first, np.arange(len(small)) + self.repeats * ahead),
            (last, at + self.repeats * (ahead[at] + length)),
        ):
            if len(live):
                found.append((int(live.max()), -int(times[live.argmax()])))
        most, time = max(found)
        return most, -time

    @property
    def peak(self) -> int:
        """The peak of live bytes on the device."""
        return self._peak[0]

    @property
    def peak_time(self) -> int:
        return self._peak[1]

    @property
    def most_in_turn(self) -> int:
        """The greatest number of executed points in an iteration."""
        if self.turns:
            return self.large.most_in_turn
        small, large = self.small.in_turns, self.large.in_turns
        return int((small + self.repeats * (large - small)).max())

    def main_peak(self, *, shared: bool) -> tuple[int, int]:
        """Return the peak of main memory, see `Timeline.main_peak`. No values are swapped."""
        return self._peak if shared else (0, 0)

    @property
    def holders(self) -> tuple[Holder, ...]:
        """The holders of the bytes at the peak, the largest first."""
        return self.holders_at(self.peak_time)

    def holders_at(self, time: int) -> tuple[Holder, ...]:
        """Return the holders of the live bytes at a time, the largest first."""
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
        """Return an empty tuple, since no values are swapped."""
        return ()

    def ends(self, turns: int) -> Array:
        """Return the number of executed points after 0, 1, … `turns` outermost iterations."""
        if not self.turns:
            done = self.small.ends(turns)
            return done + self.repeats * self.runs.added_lengths(done)
        small = self.small.ends(turns - self.repeats * self.turns)
        first, length = int(self.runs.starts.sum()), self.length
        behind = first + length
        head, period = small[small <= first], small[(small > first) & (small <= behind)]
        runs = length * np.arange(self.repeats + 1)[:, None]
        tail = small[small > behind] + self.repeats * length
        middle = (period + runs).ravel()
        idle = np.full(turns + 1 - len(head) - len(middle) - len(tail), first)
        return np.concatenate([head, idle, middle, tail])

    def check(self) -> None:
        """Raise `Unlike` if numbers of the short runs do not continue linearly."""
        runs, (at, length) = self.runs, self.runs.periodic_positions.T
        starts, ends = runs.starts, runs.starts + runs.lengths
        check(
            bool((starts - runs.lengths >= np.concatenate([[0], ends[:-1]])[: len(starts)]).all())
        )
        ahead = runs.added_lengths(at)
        lines = self.small, self.large
        for small, large in zip(*((line.bytes, line.turn) for line in lines), strict=True):

            def gone_on(places: Array, small: Array = small, large: Array = large) -> Array:
                return small[places] + self.repeats * (large[places + ahead] - small[places])

            more = large[at + ahead + length] - large[at + ahead]
            check(bool((gone_on(at - length) + more == gone_on(at)).all()))


AnyTimeline = Timeline | FoldedTimeline
