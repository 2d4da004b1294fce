"""What recording costs in a tight loop, at run time: the least there is, and what a silent tap costs.

In place a call costs more, since what it needs is not in the nearer caches: `calibration` says how much.
"""

from __future__ import annotations

import mmap
import operator
from collections.abc import Callable
from functools import partial
from time import thread_time_ns
from typing import Any, Final

import numpy as np

from timerl_nb.scope.edges import EDGE, Library
from timerl_nb.scope.recorder import ThreadLane, operation
from timerl_nb.scope.taps import Taps
from timerl_nb.scope.writing import SEGMENT

_TIMES: Final = 1_000
_ROUNDS: Final = 5


def timed(lane: ThreadLane) -> None:
    """Say what a call and an operation cost a thread, of which nothing is open, in nanoseconds.

    By kind (`call`, `annotation`) what it costs where it is recorded, what of that is `inside` of it, and what it costs
    where the thread is `silent`.
    """
    tap = Taps().made(operator.index, "", Library.BACKEND)
    annotated = operation("")

    def annotation(_: int) -> None:
        with annotated:
            pass

    costs: dict[str, float] = {}
    for kind, function, bare in (
        ("call", tap, operator.index),
        ("annotation", annotation, lambda _: None),
    ):
        written: list[mmap.mmap] = []
        spent: list[tuple[float, float, float]] = []
        with lane.aside(partial(_kept, written)):
            for _ in range(_ROUNDS):
                lane.silence(False)
                recorded = _each(function)
                lane.silence(True)
                spent.append((_each(bare), recorded, _each(function)))
        edges = np.frombuffer(written[0], EDGE)[1 : 2 * _TIMES + 1]  # behind that of `silence`
        least, recorded, silent = (min(each) for each in zip(*spent, strict=True))
        within = float(np.median(edges["ts"][1::2] - edges["ts"][::2])) - least
        costs[kind], costs[f"silent {kind}"] = recorded - least, max(0.0, silent - least)
        costs[f"inside {kind}"] = min(max(0.0, within), costs[kind])
    lane.recorder.say_costs(costs)


def _kept(written: list[mmap.mmap]) -> mmap.mmap:
    """Room for edges that nobody reads later."""
    written.append(mmap.mmap(-1, SEGMENT))
    return written[-1]


def _each(function: Callable[[int], Any]) -> float:
    """CPU time of a call, in nanoseconds."""
    begun = thread_time_ns()
    for _ in range(_TIMES):
        function(1)
    return (thread_time_ns() - begun) / _TIMES
