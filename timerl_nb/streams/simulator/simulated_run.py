"""Base class of simulated strategies: clock, processors, and the record of launches."""

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
    """Report of a simulated run; all times are simulated µs.

    Attributes:
        gpu: the simulated GPU.
        occupancy: resident warps divided by the maximum `Gpu.warps` of all processors, averaged over `total`.
        work: warps × µs at full speed: equal for all strategies.
        history: the number of resident warps from each time on.

    Example:
        >>> simulated = trl.streams.workload("ant").simulate("acs-sw")
        >>> 0 < simulated.occupancy <= 1
        True
    """

    gpu: Gpu = RTX3070
    occupancy: float = 0.0
    work: float = 0.0
    history: Sequence[tuple[float, int]] = ()

    @property
    def total(self) -> float:
        """The time including the construction of a graph, in µs."""
        return self.construction + self.us

    def __str__(self) -> str:
        return f"simulated on {self.gpu.name}, occupancy {self.occupancy:.2f}\n{super().__str__()}"


class Server:
    """Resource that serves one request at a time: a lock, a thread or a port."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free = 0.0

    def serve(self, cost: float, call: Callable[..., None], *args: Any) -> None:
        """Call a function after all earlier requests and this one have been served."""
        self._free = max(self._free, self._clock.now) + cost
        self._clock.call_at(self._free, call, *args)


class StrategySimulation(ABC):
    """Simulation of one strategy. The arguments are those of `Stream.simulate`.

    Attributes:
        registers: registers per thread of all kernels, if one kernel runs them all; else None.
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
        """Schedule the first events."""

    def start(self, kernel: int, then: Callable[[int], None], lane: int | None = None) -> None:
        """Start a kernel's blocks as soon as there is room. Without a stream, the report shows it in the first
        free track.
        """
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
