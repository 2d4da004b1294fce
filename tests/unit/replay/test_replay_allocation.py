"""Allocation of threads to acting and training, for given latencies."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timerl_nb as trl
from timerl_nb.replay import Allocation, BySpeed, Latencies, Stepwise
from timerl_nb.replay.training.thread_allocation import starting


def moved(now: Allocation, *latencies: float) -> tuple[int, int, int]:
    after = Stepwise().move(now, Latencies(*latencies)).after
    return after.actors, after.trainers, after.rows


@pytest.mark.parametrize(
    ("now", "latencies", "after"),
    [
        # the learner is slowest, by more than twice the actors
        (Allocation(8, 0, 0, 64), (1.0, 2.1), (4, 4, 1)),
        (Allocation(4, 4, 1, 64), (1.0, 2.1, 0.5, 0.1), (2, 6, 2)),
        (Allocation(3, 0, 0, 64), (0.1, 2.1), (2, 1, 1)),
        (Allocation(1, 7, 3, 64), (1.0, 2.1, 0.5, 0.1), (1, 7, 4)),  # one always acts
        (Allocation(1, 0, 0, 64), (1.0, 2.1), (1, 0, 0)),  # no thread can train
        (Allocation(4, 4, 63, 64), (1.0, 2.1, 0.5, 0.1), (2, 6, 63)),  # the learner keeps one
        (Allocation(8, 0, 0, 1), (1.0, 2.1), (8, 0, 0)),  # a row is not divided
        # slowest, but by less
        (Allocation(8, 0, 0, 64), (1.0, 2.0), (8, 0, 0)),
        (Allocation(8, 0, 0, 64), (3.0, 2.1), (8, 0, 0)),
        # training slowest
        (Allocation(4, 4, 9, 64), (1.0, 2.0, 2.1, 0.1), (4, 4, 8)),
        (Allocation(4, 4, 1, 64), (1.0, 2.0, 2.1, 0.1), (8, 0, 0)),  # without rows no thread trains
        # synchronising slowest
        (Allocation(4, 4, 9, 64), (1.0, 2.0, 2.0, 2.1), (5, 3, 9)),
        (Allocation(4, 1, 9, 64), (1.0, 2.0, 2.0, 2.1), (5, 0, 0)),
        (Allocation(4, 0, 0, 64), (1.0, 2.0, 0.0, 2.1), (4, 0, 0)),
    ],
)
def test_each_branch(
    now: Allocation, latencies: tuple[float, ...], after: tuple[int, int, int]
) -> None:
    assert moved(now, *latencies) == after


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ((8, 3.0, 1.0), (6, 2)),
        ((8, 1.0, 3.0), (2, 6)),
        ((8, 1.0, 100.0), (1, 7)),  # one acts
        ((8, 100.0, 1.0), (7, 1)),  # and one runs the replay manager
        ((1, 1.0, 1.0), (1, 1)),
        ((8, 1.0, 0.0), (8, 0)),  # another device has it
    ],
)
def test_threads_begin_in_the_ratio_of_what_a_row_takes(
    given: tuple[int, float, float], want: tuple[int, int]
) -> None:
    assert starting(*given) == want


class Machine:
    """Threads with fixed seconds per row; returns simulated iterations."""

    def __init__(self, acting: float, learning: float, training: float, adding: float) -> None:
        self.acting, self.learning = acting, learning
        self.training, self.adding = training, adding

    def of(self, one: Allocation) -> Latencies:
        learner = (one.batch - one.rows) * self.learning
        trainers = max(one.rows_per_trainer, default=0) * self.training
        sync = max(0.0, trainers - learner) + one.trainers * self.adding
        return Latencies(self.acting / one.actors, learner, trainers, sync)

    def iteration(self, one: Allocation) -> float:
        found = self.of(one)
        return max(found.actors, found.learner + found.sync)


def settled(policy: Stepwise | BySpeed, machine: Machine, count: int) -> list[Allocation]:
    steps = [Allocation(8, 0, 0, 64)]
    for _ in range(count):
        steps.append(policy.move(steps[-1], machine.of(steps[-1])).after)
    return steps


def test_a_slow_learner_is_given_trainers_row_by_row() -> None:
    machine = Machine(acting=8.0, learning=1.0, training=2.0, adding=0.1)
    steps = settled(Stepwise(), machine, 100)
    assert [(s.actors, s.trainers, s.rows) for s in steps[:4]] == [
        (8, 0, 0),
        (4, 4, 1),
        (2, 6, 2),
        (1, 7, 3),
    ]
    # rows move until the trainers are as slow as the learner, or the actors half as slow
    last = steps[-1]
    assert last.actors + last.trainers == 8 and steps[-2] == last
    assert machine.iteration(last) < 0.8 * machine.iteration(steps[0])


def test_by_speed_comes_to_the_best_at_once_and_stays() -> None:
    for training in (0.5, 1.0, 2.0, 10.0):
        machine = Machine(acting=8.0, learning=1.0, training=training, adding=0.1)
        steps = settled(BySpeed(), machine, 6)
        assert steps[-1] == steps[-2] == steps[-3]
        best = min(
            machine.iteration(Allocation(8 - k, k, rows, 64))
            for k in range(1, 8)
            for rows in range(1, 64)
        )
        best = min(best, machine.iteration(steps[0]))
        assert machine.iteration(steps[-1]) <= best / 0.9 + 1e-9
        assert machine.iteration(steps[-1]) <= machine.iteration(
            settled(Stepwise(), machine, 6)[-1]
        )


def test_by_speed_does_not_move_for_little() -> None:
    machine = Machine(acting=62.0 * 8, learning=1.0, training=1.0, adding=0.0)
    assert settled(BySpeed(), machine, 3) == [Allocation(8, 0, 0, 64)] * 4
    assert not BySpeed().move(Allocation(8, 0, 0, 64), machine.of(Allocation(8, 0, 0, 64)))


seconds = st.floats(0.0, 1e3)


@given(
    st.integers(1, 9),
    st.integers(0, 9),
    st.integers(0, 80),
    st.integers(1, 80),
    st.tuples(seconds, seconds, seconds, seconds),
    st.sampled_from([Stepwise(), BySpeed()]),
)
def test_never_without_an_actor(
    actors: int,
    trainers: int,
    rows: int,
    batch: int,
    latencies: tuple[float, ...],
    policy: Stepwise | BySpeed,
) -> None:
    now = Allocation(actors, trainers, min(rows, batch - 1), batch)
    after = policy.move(now, Latencies(*latencies)).after
    assert after.actors >= 1 and after.actors + after.trainers == actors + trainers
    assert 0 <= after.rows < batch and sum(after.rows_per_trainer) == after.rows * bool(
        after.trainers
    )
    if after != now:
        assert bool(after.rows) == bool(after.trainers)


def test_a_move_shows_its_numbers() -> None:
    move = Stepwise().move(Allocation(8, 0, 0, 64), Latencies(0.001, 0.003))
    assert str(move) == (
        "8 acting, 0 training 0 rows, the learner 64 -> 4 acting, 4 training 1 row, the learner 63: "
        "the learner takes 3 times as long as the actors "
        "(actors 1 ms, learner 3 ms, trainers 0 ms, sync 0 ms)"
    )
    assert re.search(
        r"3,200 rows a second",
        str(BySpeed().move(Allocation(1, 1, 32, 64), Latencies(0.02, 0.01, 0.02, 0.01))),
    )


def test_what_is_no_allocation_is_refused() -> None:
    with pytest.raises(trl.errors.ShapeError, match="actors must be an integer of at least 1"):
        Allocation(0, 1, 1, 8)
    with pytest.raises(trl.errors.OptionError, match="so the learner has none"):
        Allocation(1, 1, 8, 8)
    with pytest.raises(trl.errors.OptionError, match="hysteresis"):
        BySpeed(1.0)
