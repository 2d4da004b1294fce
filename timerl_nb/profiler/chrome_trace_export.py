"""Export of a profile as a Chrome trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from timerl_nb.base.chrome_trace import event, lanes
from timerl_nb.execution.telemetry.program_live_frames import Watched
from timerl_nb.profiler.event_listener import Recording
from timerl_nb.runtime.interpreter.swap_transfers import Copy

_TRACKS: Final = {"kernels": 1, "host functions": 2, "transfers": 3}
_PARTS: Final = 64  # samples of predicted live bytes per iteration


@dataclass(frozen=True, eq=False)
class Trace:
    """Contents of a Chrome trace.

    Attributes:
        names: the sort and the operations of each kernel, call or function, by name.
        tensors: the operations that compute each tensor, by name.
        copies: copies between device and host, with their start times.
        begun, ended: start and end of the run.
        predicted: the source of predicted live bytes, if the interpreter does not count them.
    """

    recording: Recording
    names: Mapping[str, tuple[str, tuple[int, ...]]]
    tensors: Mapping[str, tuple[int, ...]]
    copies: Sequence[tuple[Copy, float]]
    begun: float
    ended: float
    predicted: Watched | None

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the trace's events: names of tracks first, then by track."""
        yield from lanes(1, "TimeRL", _TRACKS)
        for first, turn, begun, ended in self._turns():
            name = f"turn {first}" if turn == first + 1 else f"turns {first} to {turn - 1}"
            yield _event("X", name, 1, begun, ended - begun, cat="turn", args={"turn": first})
        for one in self.recording.slices:
            sort, op_ids = self.names[one.name]
            args = {"op_ids": op_ids, "point": one.point}
            track = _TRACKS["host functions" if sort == "host" else "kernels"]
            yield _event("X", one.name, track, one.begun, one.seconds, cat=sort, args=args)
        for one in self.recording.freed:
            args = {"op_ids": self.tensors[one.name], "point": one.point}
            yield _event("i", f"free {one.name}", 1, one.begun, cat="free", s="t", args=args)
        for copy, begun in self.copies:
            name = f"{copy.verb} {copy.tensor}"
            args = {"op_ids": self.tensors[copy.tensor], "bytes": copy.nbytes}
            yield _event("X", name, 3, begun, copy.seconds, cat="transfer", args=args)
        name = "live bytes" if self.predicted is None else "live bytes (predicted)"
        for time, live in self._live():
            yield _event("C", name, 0, time, args={"bytes": live})

    def _turns(self) -> Iterator[tuple[int, int, float, float]]:
        """Yield (first iteration, end, start time, end time) of iterations drawn together, from the start of the run."""
        before, done = self.begun, 0
        for time, turn in self.recording.turns:
            yield done, turn, before, time
            before, done = time, turn

    def _live(self) -> Iterator[tuple[float, int]]:
        if self.predicted is None:
            yield from self.recording.live
            return
        planned, ends = self.predicted.plan.timeline(), self.predicted.ends
        for done, turn, begun, ended in self._turns():
            if turn >= len(ends):
                return
            part = planned.bytes_between(int(ends[done]), int(ends[turn]))
            if not len(part):
                continue
            at = np.linspace(0, len(part), min(_PARTS, len(part)), endpoint=False).astype(np.int64)
            for k, most in zip(at, np.maximum.reduceat(part, at), strict=True):
                yield begun + (ended - begun) * float(k) / len(part), int(most)


def _event(
    phase: str, name: str, track: int, begun: float = 0.0, seconds: float | None = None, **more: Any
) -> dict[str, Any]:
    duration = None if seconds is None else seconds * 1e6
    return event(phase, name, (1, track), begun * 1e6, duration, **more)
