"""Measured launches of kernels and calls in a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.scope import Recording
from timerl_nb.scope.analysis.recording_queries import Recorded
from timerl_nb.scope.analysis.stack_frames import frames
from timerl_nb.scope.storage.event_format import NAME_MASK


@dataclass(frozen=True)
class RecordedLaunches:
    """Launches of one kernel or call in a recording; `mean` is the host's time of one, in seconds."""

    name: str
    op_ids: tuple[int, ...]
    count: int
    mean: float


@dataclass(frozen=True)
class RecordedRun:
    """Launches in a recording.

    Args:
        rows: one for each kernel or call.
    """

    rows: tuple[RecordedLaunches, ...]

    @property
    def by_op(self) -> dict[int, float]:
        """Seconds by operation, of the kernels or calls that contain it."""
        found: dict[int, float] = {}
        for row in self.rows:
            for op_id in row.op_ids:
                found[op_id] = found.get(op_id, 0.0) + row.mean * row.count
        return found


def recorded_run(given: Recorded) -> RecordedRun:
    """Return the launches of a recording.

    Raises:
        CallError: the argument is not a recording.
    """
    expect_type(
        given, Recorded, "a recording", "`with trl.scope.record() as recording:` gives one."
    )
    return RecordedRun(tuple(_recorded(given.read())))


def _recorded(recording: Recording) -> Iterator[RecordedLaunches]:
    counts, spent = Counter[int](), Counter[int]()
    for lane in recording.lanes:
        found = frames(lane, "operation")
        names, code = np.unique(found.top & NAME_MASK, return_inverse=True)
        times = np.bincount(code, found.end - found.begin, len(names))
        for name, count, ns in zip(names.tolist(), np.bincount(code), times, strict=True):
            counts[name] += int(count)
            spent[name] += int(ns)
    for number, count in counts.items():
        name = recording.names[number]
        if name in recording.op_ids:
            yield RecordedLaunches(name, recording.op_ids[name], count, spent[number] / count / 1e9)
