"""Measurement of the cost per row of acting and of replay operations before a run. Source: PEARL §5.1."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from timerl_nb.base.interleaved_timing import time_shortest_call
from timerl_nb.collecting.collector import Collector
from timerl_nb.replay.prioritization.priorities import Proportional
from timerl_nb.replay.storage.replay_buffer import Replay
from timerl_nb.replay.training.algorithm import Algorithm

_ROUNDS = 3  # repetitions; the shortest counts


def seconds_of_a_row(
    algorithm: Algorithm, opened: Callable[[int], Collector], batch: int
) -> tuple[float, float]:
    """Return the seconds per row of acting, and of inserting, sampling and updating, each on one thread.

    Args:
        opened: a function that creates environments from a seed; this function closes them.
        batch: the number of rows per sample.
    """
    with closing(opened(0)) as envs:
        rows = envs.next().numpy()  # the first call compiles
        acting = time_shortest_call(lambda: envs.next().numpy(), _ROUNDS) / rows.count
    buffer = Replay(
        max(rows.count, batch), algorithm.fields, priority=Proportional(), gamma=algorithm.gamma
    )
    buffer.insert(rows)
    errors = [0.0] * batch

    def handle_rows() -> None:
        buffer.update(buffer.sample(batch).ticket, errors)

    handle_rows()
    inserting = time_shortest_call(lambda: buffer.insert(rows), _ROUNDS) / rows.count
    drawing = time_shortest_call(handle_rows, _ROUNDS) / batch
    return acting, inserting + drawing
