"""Listener that records the times of a run's events."""

from __future__ import annotations

from dataclasses import dataclass, field

from timerl_nb.base.runtime_events import Event


@dataclass(frozen=True, slots=True)
class Slice:
    """Execution of a kernel, call or function: its start, in seconds since the creation of the run, and its duration."""

    name: str
    point: tuple[int, ...]
    begun: float
    seconds: float


@dataclass
class Recording:
    """Recorder of events.

    Attributes:
        slices: kernels, calls and host functions, in order.
        launches: the number of executions by name, including those without a measured time.
        written: the live bytes added by each statement.
        freed: freed values, as slices of duration 0.
        live: live bytes on the device after each change, as (time, bytes).
        turns: the time of each end of an iteration of the outermost loop, and the number of iterations completed.
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
        """Record the end of `count` more iterations."""
        self.turns.append((time, count + (self.turns[-1][1] if self.turns else 0)))
