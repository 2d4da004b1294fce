"""Timing of calls: the shortest of some repeats, and interleaved rounds of several candidates.

Interleaved rounds spread a disturbance of the machine over all candidates. Tests pass a fake clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import perf_counter
from typing import Final

Clock = Callable[[], float]

_SHORTEST: Final = 1e-9  # resolution of the clock in seconds


def time_call(call: Callable[[], object], clock: Clock = perf_counter) -> float:
    """Return the duration of one call in seconds."""
    begun = clock()
    call()
    return clock() - begun


def time_shortest_call(
    call: Callable[[], object], times: int, *, warm_ups: int = 0, clock: Clock = perf_counter
) -> float:
    """Return the shortest duration of several calls in seconds.

    Args:
        call: the function to time. It waits for its results.
        times: the number of timed calls.
        warm_ups: the number of calls before the timed ones, for example to compile.
        clock: returns seconds.
    """
    for _ in range(warm_ups):
        call()
    return min(time_call(call, clock) for _ in range(times))


@dataclass(frozen=True)
class Limits:
    """Limits of interleaved rounds.

    Attributes:
        rounds: the fewest rounds before an early decision.
        most_rounds: the largest number of rounds.
        each: time limit of one candidate in seconds.
        all: time limit of all candidates together in seconds.
        lost: a candidate is dropped if another one is faster by this factor.
        few: the fewest repeats for a measured spread.
    """

    rounds: int
    most_rounds: int
    each: float
    all: float
    lost: float
    few: int


@dataclass(kw_only=True)
class Candidate:
    """A function in the comparison, with its measured speeds.

    Attributes:
        run: runs one repeat, and returns the units of work done.
        limits: the limits of the rounds.
        seconds: durations of repeats, and of untimed preparations; both count towards the time limit.
        speeds: units of work per second, by repeat.
        is_lost: whether the candidate is dropped, since another one is much faster.
    """

    run: Callable[[], float]
    limits: Limits
    seconds: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    is_lost: bool = False

    def measure(self, clock: Clock) -> None:
        """Run one repeat and record its speed."""
        begun = clock()
        work = self.run()
        self.seconds.append(max(clock() - begun, _SHORTEST))
        self.speeds.append(work / self.seconds[-1])

    @property
    def is_over(self) -> bool:
        """Whether the candidate's time limit is reached."""
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
    """Measure candidates in interleaved rounds until one leads clearly or time is up.

    Every candidate runs at least once, even beyond the limits.

    Args:
        candidates: one or more candidates.
        limits: the limits of the rounds.
        began: start of the total time, by the same clock.
        clock: returns seconds.
    """
    for k in range(limits.most_rounds):
        if k >= limits.rounds and _is_decided(candidates):
            return
        if not _run_round(candidates, limits, began, clock):
            return


def _run_round(candidates: Sequence[Candidate], limits: Limits, began: float, clock: Clock) -> bool:
    """Run one repeat of each candidate, and return whether time is left."""
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
