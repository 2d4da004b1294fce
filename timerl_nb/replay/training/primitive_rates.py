"""What acting and the replay manager take for a row, measured before a run begins (003_bc3f8b946743a61e, §5.1)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from timerl_nb.base.interleaved_timing import time_shortest_call
from timerl_nb.collecting.collector import Collector
from timerl_nb.replay.prioritization.priorities import Proportional
from timerl_nb.replay.storage.replay_buffer import Replay
from timerl_nb.replay.training.algorithm import Algorithm

_ROUNDS = 3  # of which the shortest counts


def seconds_of_a_row(
    algorithm: Algorithm, opened: Callable[[int], Collector], batch: int
) -> tuple[float, float]:
    """Of acting one, and of inserting, drawing and updating one, on a thread each.

    Args:
        opened: makes environments of a seed; they are ended again.
        batch: rows that are drawn at once.
    """
    with closing(opened(0)) as envs:
        rows = envs.next().numpy()  # which compiles
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
