"""Timing of calls: the shortest of a few repeats, and candidates that are timed in interleaved rounds.

Interleaving spreads a disturbance of the machine over all candidates. All functions accept a clock, so that
tests can replace the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import perf_counter
from typing import Final

Clock = Callable[[], float]

_SHORTEST: Final = 1e-9  # seconds, the least that a clock can tell apart


def time_call(call: Callable[[], object], clock: Clock = perf_counter) -> float:
    """Return the seconds of one call."""
    begun = clock()
    call()
    return clock() - begun


def time_shortest_call(
    call: Callable[[], object], times: int, *, warm_ups: int = 0, clock: Clock = perf_counter
) -> float:
    """Return the least seconds of some calls.

    Args:
        call: the function to time. It waits for its results.
        times: timed calls.
        warm_ups: calls before the timed ones, for instance one that compiles.
        clock: returns seconds.
    """
    for _ in range(warm_ups):
        call()
    return min(time_call(call, clock) for _ in range(times))


@dataclass(frozen=True)
class Limits:
    """Limits of interleaved rounds.

    Attributes:
        rounds: the least number of rounds before a candidate can win early.
        most_rounds: the greatest number of rounds.
        each: seconds of one candidate, after which it runs no more.
        all: seconds of all candidates together.
        lost: a candidate is dropped if another one is this many times as fast.
        few: repeats below which a candidate has no spread.
    """

    rounds: int
    most_rounds: int
    each: float
    all: float
    lost: float
    few: int


@dataclass(kw_only=True)
class Candidate:
    """A function in the comparison, and its measured speeds.

    Attributes:
        run: one repeat; returns the units of work that it did.
        seconds: durations of the repeats, and of untimed preparations that count towards the limit.
        speeds: units of work per second, by repeat.
        is_lost: whether another candidate is so much faster that this one is dropped.
    """

    run: Callable[[], float]
    limits: Limits
    seconds: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    is_lost: bool = False

    def measure(self, clock: Clock) -> None:
        """Run one repeat, and record its speed."""
        begun = clock()
        work = self.run()
        self.seconds.append(max(clock() - begun, _SHORTEST))
        self.speeds.append(work / self.seconds[-1])

    @property
    def is_over(self) -> bool:
        """Whether its time is used up."""
        return sum(self.seconds) > self.limits.each

    def is_clearly_faster(self, other: Candidate) -> bool:
        """Whether its lower quartile is faster than the other's upper quartile."""
        if other.is_lost:
            return True
        has_spread = min(len(self.speeds), len(other.speeds)) >= self.limits.few
        return has_spread and _quartiles(self.speeds)[0] > _quartiles(other.speeds)[1]


def measure_in_rounds(
    candidates: Sequence[Candidate], limits: Limits, began: float, clock: Clock = perf_counter
) -> None:
    """Measure candidates in interleaved rounds until one leads, or the time is over.

    Every candidate runs at least once, even beyond the limits.

    Args:
        candidates: at least one.
        limits: those of the rounds.
        began: the clock's time from which the seconds of all count.
        clock: returns seconds.
    """
    for k in range(limits.most_rounds):
        if k >= limits.rounds and _is_decided(candidates):
            return
        if not _run_round(candidates, limits, began, clock):
            return


def _run_round(candidates: Sequence[Candidate], limits: Limits, began: float, clock: Clock) -> bool:
    """Run one repeat of each candidate; return whether there is time for more."""
    for one in candidates:
        if one.seconds and (one.is_lost or one.is_over):
            continue
        if one.seconds and clock() - began > limits.all:
            return False
        one.measure(clock)
    most = max(one.speeds[0] for one in candidates)
    for one in candidates:
        one.is_lost = one.speeds[0] * limits.lost < most
    return clock() - began <= limits.all


def _is_decided(candidates: Sequence[Candidate]) -> bool:
    """Whether one candidate leads, or none has time left."""
    running = [one for one in candidates if not one.is_lost]
    first, *others = sorted(running, key=lambda one: -median(one.speeds))
    return all(one.is_over for one in running) or all(
        first.is_clearly_faster(other) for other in others
    )


def _quartiles(speeds: Sequence[float]) -> tuple[float, float]:
    low, _, high = quantiles(speeds, n=4, method="inclusive")
    return low, high
