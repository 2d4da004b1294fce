"""The timeline of a long run, put together from those of two short ones that are a period apart."""

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
    """The two runs differ by more than a period."""


def check(same: bool) -> None:
    """Raise where the two runs differ by more than a period."""
    if not same:
        raise Unlike


def each(first: Array, last: Array) -> tuple[Array, Array]:
    """The numbers from some firsts to their lasts: of which of them each is, and the number."""
    counts = np.maximum(last - first + 1, 0)
    which = np.repeat(np.arange(len(counts)), counts)
    start = np.cumsum(counts) - counts
    return which, first[which] + np.arange(len(which)) - start[which]


@dataclass(frozen=True)
class Runs:
    """Where, in an order of a short run, there are periods that the whole run repeats.

    The larger of the short runs has each of them twice, one behind the other; the whole one has
    `repeats` more than the smaller one.

    Attributes:
        starts, lengths: the place of each period in the smaller run, rising, and how long it is.
    """

    starts: Array
    lengths: Array
    repeats: int

    @cached_property
    def cumulative_lengths(self) -> Array:
        """The lengths of all periods ahead of each, and of all."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def added_lengths(self, places: Array) -> Array:
        """How long the periods are that end at or ahead of some places of the smaller run."""
        return self.cumulative_lengths[
            np.searchsorted(self.starts + self.lengths, places, side="right")
        ]

    def copies(self, places: Array) -> tuple[Array, Array, Array]:
        """Of places of the smaller run: the first that each has in the whole one, how far it is from there to the
        next, and how many follow.
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
        """The places of the smaller run in its periods, each with how long the period is: (n, 2)."""
        which, places = each(self.starts, self.starts + self.lengths - 1)
        return np.stack([places, self.lengths[which]], axis=1)

    def count(self, small: int) -> int:
        """How many there are in the whole run of what there is so often in the smaller one."""
        return small + self.repeats * int(self.cumulative_lengths[-1])

    def extrapolate(self, small: Array, large: Array, places: Array) -> Array:
        """Numbers of the two short runs, in order -> those at some places of the whole one."""
        here, there, gone, length = self.locate(places)
        found = small[here] + self.repeats * (large[there] - small[here])
        some = length > 0
        at, behind = there[some], gone[some].reshape(-1, *[1] * (small.ndim - 1))
        found[some] += behind * (large[at + length[some]] - large[at])
        return found

    def locate(self, places: Array) -> tuple[Array, Array, Array, Array]:
        """Of places of the whole run: those of the two short ones that they follow from, and of periods the
        number that are gone and the length; 0 outside of them.
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
        """All numbers of the whole run, from those of the short ones."""
        return self.extrapolate(small, large, np.arange(self.count(len(small))))


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
        runs: the executed points of the periods that repeat: of one where turns of the outermost loop do, of one in
            each of these turns where those of a loop within it do.
        turns: of the outer loop, in a period; 0 where it is another loop that repeats.
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
        """The executed points of a period of the outermost loop."""
        return int(self.runs.lengths.sum()) if self.turns else 0

    def __len__(self) -> int:
        return self.runs.count(len(self.small.time))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What runs, in order: the first turns, the period that repeats, and so on, and the last turns."""
        found, end = list[Segment](), 0
        starts = self.runs.starts + self.repeats * self.runs.cumulative_lengths[:-1]
        for start, length in zip(starts.tolist(), self.runs.lengths.tolist(), strict=True):
            found += [Segment(end, start - end, 1), Segment(start, length, self.repeats + 1)]
            end = found[-1].end
        found.append(Segment(end, len(self) - end, 1))
        return tuple(segment for segment in found if segment.length)

    # --- in a straight line ------------------------------------------------------------------

    def bytes_between(self, first: int, last: int) -> Array:
        """Live bytes from one time on to another, which is not among them."""
        return self.bytes_at(np.arange(first, min(last, len(self))))

    def peak_times(self, starts: Array, end: int) -> Array:
        """See `Timeline.peak_times`; where a period comes again, none is looked at between the first and the last."""
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
        """Live bytes at some times."""
        return self.runs.extrapolate(self.small.bytes, self.large.bytes, times)

    def held_at(self, times: Array) -> Mapping[str, Array]:
        """The same of each tensor, and of gathered operands."""
        lines = self.small, self.large
        small, large = ({**line.by_tensor, GATHERED: line.transient} for line in lines)
        return {name: self.runs.extrapolate(small[name], large[name], times) for name in large}

    def turn_at(self, time: int) -> int:
        """The value of the dimension that the outermost loop runs along; -1 outside that loop."""
        return int(self.runs.extrapolate(self.small.turn, self.large.turn, np.array([time]))[0])

    def _extrapolate_all(self, small: Array, large: Array) -> Array:
        """Numbers by time, of the whole run.

        Raises:
            BoundsError: it is too long.
        """
        if len(self) > MOST_POINTS:
            raise BoundsError(
                f"the run executes {len(self):,} points: too many for arrays of them.",
                hint="look at `segments`, `peak` and `holders_at(time)`, or give smaller bounds.",
            )
        return self.runs.gone_on(small, large)

    def moment(self, time: int) -> Moment:
        """What is known of a time of the whole run."""
        located = self.runs.locate(np.array([time]))
        small, large, behind, length = (int(one[0]) for one in located)
        return Moment(small, large, large + length, self.repeats, behind)

    # --- as a timeline -----------------------------------------------------------------------

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
        """The greatest number of live bytes, and when it is reached first."""
        runs, small, large = self.runs, self.small.bytes, self.large.bytes
        ahead = runs.added_lengths(np.arange(len(small)))
        first = small + self.repeats * (large[np.arange(len(small)) + ahead] - small)
        # in between it is no more than in the first and the last period
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
        """The greatest number of live bytes on the device."""
        return self._peak[0]

    @property
    def peak_time(self) -> int:
        return self._peak[1]

    @property
    def most_in_turn(self) -> int:
        """See `Timeline.most_in_turn`."""
        if self.turns:
            return self.large.most_in_turn
        small, large = self.small.in_turns, self.large.in_turns
        return int((small + self.repeats * (large - small)).max())

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
        """Raise where what is known of the short runs does not go on in a straight line."""
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
