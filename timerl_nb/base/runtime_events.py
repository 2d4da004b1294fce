"""Events of a run, and the protocol of their observers.

The runtime emits events to profilers, tests and live views, without importing any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

EventKind = Literal[
    "execute", "done", "launch", "wait", "end", "read", "write", "free", "offload", "fetch", "sink"
]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of an interpreted run.

    If the run waits for results, a statement that makes values has the event "done". Otherwise it has the
    event "launch", with a possible "wait" later. A run always ends with the event "end", even after an
    error.

    Attributes:
        step: the number of the instruction.
        kind: the sort of event.
        name: the statement for "execute", "done" and "sink"; otherwise the tensor.
        point: the coordinates.
        nbytes: the change of live bytes on the device; 0 for reads. An offload frees its bytes after its
            copy.
        time: seconds since the creation of the run.
        seconds: for "done", the duration of the kernel or host function.
    """

    step: int
    kind: EventKind
    name: str
    point: tuple[int, ...]
    nbytes: int = 0
    time: float = field(default=0.0, compare=False)
    seconds: float = field(default=0.0, compare=False)


class Recorder(Protocol):
    """An observer: any callable that takes an event."""

    def __call__(self, event: Event, /) -> None: ...
