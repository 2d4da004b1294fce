"""What a run reports: event records, and the protocol of whoever listens.

The runtime emits; profilers, tests and live views listen. The runtime never imports them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

EventKind = Literal["execute", "read", "write", "free", "offload", "fetch", "sink"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened at instruction `step`.

    `name` is the statement (execute, sink) or the tensor (all others); `nbytes` is the
    change of live bytes on the device that the event makes (0 for reads). Those of an offload leave
    when its copy is complete.
    """

    step: int
    kind: EventKind
    name: str
    point: tuple[int, ...]
    nbytes: int = 0


class Recorder(Protocol):
    """Anything that can be called with an event."""

    def __call__(self, event: Event, /) -> None: ...
