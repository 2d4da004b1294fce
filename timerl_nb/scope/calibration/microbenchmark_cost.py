"""Measurement of recording in a tight loop (a lower bound), and of disabled wrappers.

In a program both cost more, because of cache misses. The calibration finds the extra cost of
enabled wrappers from blocks. For disabled ones there is no comparison, so they are measured here
between calls of other code.
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
# used fraction of the measurements; the slowest ones are interrupted by other processes
_KEPT: Final = 0.95
_TEXT: Final = json.dumps({"seed": 1, "rates": [0.1, 0.25, 1e-3], "names": ["a", "bc", "def"]})


def measure_call_costs(lane: ThreadLane) -> None:
    """Measure the costs of a call and of an annotation, and write them to the name table.

    For each kind (`call`, `annotation`) there are three values in nanoseconds. "silent": a disabled
    wrapper between other code. The plain kind: the former, plus the extra cost of recording in a
    tight loop. "inside": the part of it between the begin and end event. Counting operations for
    blocks is included. The measurement takes some milliseconds and is repeated, because the speed
    of the machine changes.

    Args:
        lane: timeline of the current thread, without open operations.
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
        # the first event is the one of `silence`
        edges = np.frombuffer(written[0], EDGE)[1 : 2 * _TIMES + 1]
        least, recorded, still = (min(each) for each in zip(*spent, strict=True))
        within = float(np.median(edges["ts"][1::2] - edges["ts"][::2])) - least
        costs[f"silent {kind}"] = between
        costs[kind] = between + max(0.0, recorded - still)
        costs[f"inside {kind}"] = min(max(0.0, within), costs[kind])
    lane.recorder.add_line({"costs": costs})


def _allocate_segment(written: list[mmap.mmap]) -> mmap.mmap:
    """Return memory for events without a file."""
    written.append(mmap.mmap(-1, SEGMENT))
    return written[-1]


def _each(function: Callable[[int], Any]) -> float:
    """Return the CPU time of a call, in nanoseconds."""
    begun = thread_time_ns()
    for _ in range(_TIMES):
        function(1)
    return (thread_time_ns() - begun) / _TIMES


def _more_between(function: Callable[[int], Any], other: Callable[[int], Any]) -> float:
    """Return the mean extra time (ns) of a function over another one, between other code.

    A median would be at least 10 % lower, because it ignores calls with colder caches.
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
    """Run some microseconds of typical code: allocation, Python and C."""
    json.dumps(sorted(json.loads(_TEXT).items()))
