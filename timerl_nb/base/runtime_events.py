"""What a run reports: event records, and the protocol of whoever listens.

The runtime emits; profilers, tests and live views listen. The runtime never imports them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

EventKind = Literal[
    "execute", "done", "launch", "wait", "end", "read", "write", "free", "offload", "fetch", "sink"
]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened at instruction `step`.

    `name` is the statement (execute, done, sink) or the tensor (all others); `nbytes` is the
    change of live bytes on the device that the event makes (0 for reads). Those of an offload leave
    when its copy is complete. `time` is in seconds since the run was made. What a statement makes is
    waited for; then it is `done`, and `seconds` is what its kernel or host function took. Where nothing is
    waited for it is a `launch`; there may be a `wait`, and there is an `end` of the run, however that comes.
    """

    step: int
    kind: EventKind
    name: str
    point: tuple[int, ...]
    nbytes: int = 0
    time: float = field(default=0.0, compare=False)
    seconds: float = field(default=0.0, compare=False)


class Recorder(Protocol):
    """Anything that can be called with an event."""

    def __call__(self, event: Event, /) -> None: ...
