"""Listens to a run, and keeps when everything ran."""

from __future__ import annotations

from dataclasses import dataclass, field

from timerl_nb.base.runtime_events import Event


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that ran: when it began, in seconds since the run was made, and how long it took."""

    name: str
    point: tuple[int, ...]
    begun: float
    seconds: float


@dataclass
class Recording:
    """A recorder of events.

    Attributes:
        slices: kernels, calls and host functions, in order.
        launches: how often each ran, those that take no time of their own among them.
        written: by statement, the bytes that it added to what is live.
        freed: values that were let go of, as slices without length.
        live: live bytes on the device whenever they changed, as (time, bytes).
        turns: when each turn of the outermost loop ended, and how many are done then.
    """

    slices: list[Slice] = field(default_factory=list)
    launches: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    freed: list[Slice] = field(default_factory=list)
    live: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])
    turns: list[tuple[float, int]] = field(default_factory=list)
    _running: str = ""

    def __call__(self, event: Event) -> None:
        if event.kind == "execute":
            self._running = event.name
            self.launches[event.name] = self.launches.get(event.name, 0) + 1
        elif event.kind == "done":
            begun = event.time - event.seconds
            self.slices.append(Slice(event.name, event.point, begun, event.seconds))
        elif event.kind == "free":
            self.freed.append(Slice(event.name, event.point, event.time, 0.0))
        elif event.kind == "write":
            self.written[self._running] = self.written.get(self._running, 0) + event.nbytes
        if event.nbytes:
            self.live.append((event.time, self.live[-1][1] + event.nbytes))

    def on_turn(self, time: float, count: int) -> None:
        """So many turns more are done."""
        self.turns.append((time, count + (self.turns[-1][1] if self.turns else 0)))
