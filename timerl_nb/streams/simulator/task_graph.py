"""Simulation of strategies that know the whole stream: a graph, and persistent threads. Source: ACS §II-D and
§VI-E.
"""

from __future__ import annotations

from typing import Any

from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.simulator.simulated_run import StrategySimulation


class Graph(StrategySimulation):
    """Strategy "graph": all nodes are constructed before the first kernel runs; then no host call is necessary."""

    def begin(self) -> None:
        self.construction = len(self.kernels) * self.gpu.node
        self._begin(self.gpu.graph, self.gpu.dispatch)

    def _begin(self, moment: float, between: float) -> None:
        self._between = between
        self._waits = [len(one) for one in self.stream.edges]
        self._followers: list[list[int]] = [[] for _ in self.kernels]
        for kernel, upstream in enumerate(self.stream.edges):
            self.ran[kernel].upstream = upstream
            for one in upstream:
                self._followers[one].append(kernel)
            if not upstream:
                self.clock.call_at(moment, self.start, kernel, self._handle_end)

    def _handle_end(self, kernel: int) -> None:
        for follower in self._followers[kernel]:
            self._waits[follower] -= 1
            if not self._waits[follower]:
                self.clock.call_at(
                    self.clock.now + self._between, self.start, follower, self._handle_end
                )


class Persistent(Graph):
    """Strategy "persistent": one kernel, launched once, whose threads take the blocks of all kernels from a
    device queue.

    Its register count is the maximum over all kernels, so fewer blocks are resident.
    """

    def __init__(self, stream: Stream, *args: Any) -> None:
        self.registers = max((k.registers for k in stream.kernels), default=None)
        super().__init__(stream, *args)

    def begin(self) -> None:
        self._begin(self.gpu.issue + self.gpu.launch, self.gpu.task)
