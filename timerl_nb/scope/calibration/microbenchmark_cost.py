"""What recording costs in a tight loop, at run time: the least there is; and what a silent tap costs between other work.

In place both cost more, since what they need is not in the nearer caches. Blocks say by how much where something is
recorded (`calibration`), and cannot where nothing is: what is silent is timed as it is met, behind other work.
"""

from __future__ import annotations

import json
import mmap
import operator
from collections.abc import Callable
from functools import partial
from time import monotonic_ns, thread_time_ns
from typing import Any, Final

import numpy as np

from timerl_nb.scope.recording.annotations import operation
from timerl_nb.scope.recording.recorder import ThreadLane
from timerl_nb.scope.storage.event_format import EDGE, Library
from timerl_nb.scope.storage.recording_writer import SEGMENT
from timerl_nb.scope.wrappers.function_wrappers import Taps

_TIMES: Final = 200
_ROUNDS: Final = 3
_BETWEEN: Final = 40
_KEPT: Final = 0.95  # of times between other work; the rest is of whoever came between
_TEXT: Final = json.dumps({"seed": 1, "rates": [0.1, 0.25, 1e-3], "names": ["a", "bc", "def"]})


def measure_call_costs(lane: ThreadLane) -> None:
    """Say what a call and an operation cost a thread, of which nothing is open, in nanoseconds.

    By kind (`call`, `annotation`) what it costs, between other work, where the thread is `silent`; with what it costs
    more in a tight loop where it is recorded; and what of that is `inside` of it. That blocks count operations is in both. It takes some milliseconds,
    and is done now and then: a machine's speed changes.
    """
    tap = Taps().get_or_make(operator.index, "", Library.BACKEND)
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
        spent: list[tuple[float, ...]] = []
        with lane.redirected(partial(_allocate_segment, written)):
            for _ in range(_ROUNDS):
                lane.silence(False)
                recorded = _each(function)
                lane.silence(True)
                spent.append((_each(bare), recorded, _each(function)))
            between = max(0.0, _more_between(function, bare))
        edges = np.frombuffer(written[0], EDGE)[1 : 2 * _TIMES + 1]  # behind that of `silence`
        least, recorded, still = (min(each) for each in zip(*spent, strict=True))
        within = float(np.median(edges["ts"][1::2] - edges["ts"][::2])) - least
        costs[f"silent {kind}"] = between
        costs[kind] = between + max(0.0, recorded - still)
        costs[f"inside {kind}"] = min(max(0.0, within), costs[kind])
    lane.recorder.add_line({"costs": costs})


def _allocate_segment(written: list[mmap.mmap]) -> mmap.mmap:
    """Room for edges that nobody reads later."""
    written.append(mmap.mmap(-1, SEGMENT))
    return written[-1]


def _each(function: Callable[[int], Any]) -> float:
    """CPU time of a call, in nanoseconds."""
    begun = thread_time_ns()
    for _ in range(_TIMES):
        function(1)
    return (thread_time_ns() - begun) / _TIMES


def _more_between(function: Callable[[int], Any], other: Callable[[int], Any]) -> float:
    """By how many nanoseconds a call behind other work takes longer than another, on average.

    A median says less, by a tenth and more: some of them meet colder caches.
    """
    took = np.zeros((_BETWEEN, 2))
    for k in range(_BETWEEN):
        for way, called in enumerate((function, other)):
            _work()
            begun = monotonic_ns()
            called(1)
            took[k, way] = monotonic_ns() - begun
    ours, theirs = np.sort(took, axis=0)[: int(_KEPT * _BETWEEN)].mean(0)
    return float(ours - theirs)


def _work() -> None:
    """Some microseconds of what programs do: objects are made, and code of Python's and C's runs."""
    json.dumps(sorted(json.loads(_TEXT).items()))
