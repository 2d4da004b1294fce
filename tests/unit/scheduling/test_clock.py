"""Ranks of points: positions in the order of all times, for any address layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.compiler.scheduling import enumerated_schedule_points as clocks
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate

BOUNDS = {"B": 2, "I": 3, "T": 5}


def _by_time(clock: Clock) -> list[tuple[str, tuple[int, ...]]]:
    """Return all points, sorted by their times."""
    times = clock.schedule.times()
    found: list[tuple[tuple[int, ...], str, tuple[int, ...]]] = []
    for name, rows in clock.points.items():
        domain = clock.schedule.statements[name].domain
        for point in map(tuple, rows.tolist()):
            env = {**clock.bounds, **dict(zip(domain, point, strict=True))}
            time = tuple(evaluate(e, env) for e in times[name])
            found.append((time, name, point))
    return [(name, point) for _, name, point in sorted(found)]


@pytest.mark.parametrize("gaps", [0, 4], ids=["sorted", "table"])
@pytest.mark.parametrize("options", [{}, {"vectorize": False}], ids=str)
def test_ranks_follow_the_times(
    options: Mapping[str, bool], gaps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "_GAPS", gaps)
    clock = Clock(reinforce().compile(BOUNDS).with_options(**options).schedule.tree, BOUNDS)
    order = _by_time(clock)
    assert len(order) == len(clock)
    for rank, (name, point) in enumerate(order):
        assert clock.rank(name, np.array([point], np.int64).reshape(1, len(point))) == [rank]
    name, point = order[-1]
    domain = clock.schedule.statements[name].domain
    assert clock.point_at(len(order) - 1) == (name, dict(zip(domain, point, strict=True)))


def test_what_runs_nowhere_has_no_ranks() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.random.normal(domain=(t,))
        ctx.output("late", x[t >= 5].sin())
    program = ctx.compile({"T": 3}, trl.Options(vectorize=False))
    clock = program.memory.clock
    (name,) = (name for name, rows in clock.points.items() if not len(rows))
    assert clock.rank(name, clock.points[name]).shape == (0,)
    assert program.memory.peak == 4


def test_statements_one_behind_another_take_no_more_addresses_than_points() -> None:
    times: dict[str, Sequence[tuple[int, int]]] = {
        "a": [(0, 0), (0, 0), (0, 0)],
        "b": [(1, 1), (0, 9), (0, 0)],
        "c": [(1, 1), (0, 9), (2, 2)],
    }
    size, layout = clocks._assign_addresses(times)
    assert size == 1 + 10 + 10
    assert layout == {"a": (0, (0, 0, 0)), "b": (1, (0, 2, 0)), "c": (2, (0, 2, 0))}
