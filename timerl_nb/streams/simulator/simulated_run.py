"""What all ways of running a stream have in common: its kernels, the clock, the processors, and what happened when."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.run_report import Launch, Report
from timerl_nb.streams.simulator.event_queue import Clock
from timerl_nb.streams.simulator.gpu_constants import RTX3070, Gpu
from timerl_nb.streams.simulator.multiprocessors import Processors


@dataclass(frozen=True, repr=False)
class Simulated(Report):
    """A run that a simulated GPU made: `us` and all times are its own.

    Attributes:
        occupancy: resident warps by `Gpu.warps` of all processors, whatever registers leave room for, averaged over `total`.
        work: warps × µs at full speed: the same in every way of running a stream.
        history: resident warps from each moment on.
    """

    gpu: Gpu = RTX3070
    occupancy: float = 0.0
    work: float = 0.0
    history: Sequence[tuple[float, int]] = ()

    @property
    def total(self) -> float:
        """With a graph's construction, µs."""
        return self.construction + self.us

    def __str__(self) -> str:
        return f"simulated on {self.gpu.name}, occupancy {self.occupancy:.2f}\n{super().__str__()}"


class Server:
    """What serves one after another: a lock, a thread, a port."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free = 0.0

    def serve(self, cost: float, call: Callable[..., None], *args: Any) -> None:
        """`call` is made when all asked before, and then this, has been served."""
        self._free = max(self._free, self._clock.now) + cost
        self._clock.call_at(self._free, call, *args)


class Course(ABC):
    """One way of running a stream; each has a class. Arguments are those of `Stream.simulate`.

    Attributes:
        registers: of each thread of any kernel, as in one kernel that runs all.
    """

    construction = 0.0
    registers: int | None = None

    def __init__(self, stream: Stream, gpu: Gpu, size: int, streams: int, scheduled: int) -> None:
        self.stream, self.kernels, self.gpu = stream, stream.kernels, gpu
        self.size, self.streams, self.scheduled = size, streams, scheduled
        self.clock = Clock()
        self.processors = Processors(self.clock, gpu, self.kernels, self.registers)
        self.ran = [Launch(k, *one.description) for k, one in enumerate(self.kernels)]
        self._lanes: list[int] = []
        self._most = 0

    @abstractmethod
    def begin(self) -> None:
        """Put what happens first on the clock."""

    def start(self, kernel: int, then: Callable[[int], None], lane: int | None = None) -> None:
        """A kernel's blocks begin as there is room; without streams it is drawn in the first free lane."""
        ran = self.ran[kernel]
        ran.started = self.clock.now
        if lane is not None:
            ran.lane = lane
        elif self._lanes:
            ran.lane = heapq.heappop(self._lanes)
        else:
            ran.lane = self._most
            self._most += 1

        def on_end(index: int) -> None:
            ran.ended = self.clock.now
            if lane is None:
                heapq.heappush(self._lanes, ran.lane)
            then(index)

        self.processors.start(kernel, on_end)

    def simulate(self, how: str) -> Simulated:
        self.begin()
        self.clock.run()
        launches = sorted(self.ran, key=lambda one: (one.ended, one.kernel))
        us = launches[-1].ended if launches else 0.0
        most = (self.construction + us) * self.gpu.processors * self.gpu.warps
        return Simulated(
            how,
            self.size,
            1 + max((one.lane for one in launches), default=0),
            us,
            launches,
            len(launches),
            self.construction,
            gpu=self.gpu,
            occupancy=self.processors.resident_time / most if most else 0.0,
            work=self.processors.work,
            history=self.processors.history,
        )
