"""Timing of calls and of candidates, by a fake clock."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import pytest

from timerl_nb.base.interleaved_timing import (
    Candidate,
    Limits,
    measure_in_rounds,
    time_call,
    time_shortest_call,
)

LIMITS = Limits(rounds=5, most_rounds=20, each=2.0, all=10.0, lost=3.0, few=3)


class Clock:
    """Clock that advances only in calls; it records their order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order = ""

    def __call__(self) -> float:
        return self.now

    def call(self, name: str, *seconds: float) -> Callable[[], float]:
        durations = cycle(seconds)

        def run() -> float:
            self.now += next(durations)
            self.order += name
            return 1.0

        return run


def race(clock: Clock, *runs: Callable[[], float], limits: Limits = LIMITS) -> list[Candidate]:
    candidates = [Candidate(run=run, limits=limits) for run in runs]
    measure_in_rounds(candidates, limits, clock(), clock)
    return candidates


def test_the_shortest_call_counts_without_warm_ups() -> None:
    clock = Clock()
    assert time_call(clock.call("a", 0.25), clock) == 0.25
    run = clock.call("b", 0.125, 4.0, 2.0, 3.0)
    assert time_shortest_call(run, 3, warm_ups=1, clock=clock) == 2.0
    assert clock.order == "abbbb"


def test_rounds_are_interleaved_until_one_leads() -> None:
    clock = Clock()
    fast, slow = race(clock, clock.call("f", 0.125), clock.call("s", 0.25))
    assert clock.order == "fs" * 5
    assert fast.is_clearly_faster(slow) and not slow.is_clearly_faster(fast)
    assert fast.speeds == [8.0] * 5 and slow.seconds == [0.25] * 5


def test_equal_candidates_run_until_their_time_is_over() -> None:
    clock = Clock()
    one, other = race(clock, clock.call("a", 0.25), clock.call("b", 0.25))
    assert one.is_over and other.is_over and not one.is_clearly_faster(other)
    assert clock.order == "ab" * 9  # more than two seconds each


def test_rounds_have_a_greatest_number() -> None:
    clock = Clock()
    race(clock, clock.call("a", 0.001), clock.call("b", 0.001))
    assert clock.order == "ab" * LIMITS.most_rounds


def test_a_much_slower_candidate_is_dropped_after_one_round() -> None:
    clock = Clock()
    fast, slow = race(clock, clock.call("f", 0.1), clock.call("s", 0.4))
    assert clock.order == "fs" + "f" * 4
    assert slow.is_lost and fast.is_clearly_faster(slow) and not fast.is_lost


def test_every_candidate_runs_once_even_past_the_limit() -> None:
    clock = Clock()
    found = race(clock, *[clock.call(name, 6.0) for name in "abc"])
    assert clock.order == "abc" and [len(one.speeds) for one in found] == [1, 1, 1]


def test_the_limit_of_all_ends_a_round_between_candidates() -> None:
    clock = Clock()
    limits = Limits(rounds=5, most_rounds=20, each=9.0, all=7.0, lost=3.0, few=3)
    race(clock, clock.call("a", 3.0), clock.call("b", 2.0), limits=limits)
    assert clock.order == "aba"


@pytest.mark.parametrize(("repeats", "leads"), [(2, False), (3, True)])
def test_few_repeats_have_no_spread(repeats: int, leads: bool) -> None:
    fast = Candidate(run=float, limits=LIMITS, speeds=[9.0] * repeats)
    slow = Candidate(run=float, limits=LIMITS, speeds=[8.0] * repeats)
    assert fast.is_clearly_faster(slow) is leads


def test_an_overlapping_spread_does_not_lead() -> None:
    fast = Candidate(run=float, limits=LIMITS, speeds=[7.0, 9.0, 11.0])
    slow = Candidate(run=float, limits=LIMITS, speeds=[6.0, 8.5, 9.0])
    assert not fast.is_clearly_faster(slow)
