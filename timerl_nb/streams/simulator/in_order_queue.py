"""Simulation of the baseline: one queue, whose kernels run one after the other.

The host launches ahead of execution. A queued kernel starts `Gpu.queued` after the end of the previous one.
"""

from __future__ import annotations

from timerl_nb.streams.simulator.simulated_run import StrategySimulation


class InOrder(StrategySimulation):
    def begin(self) -> None:
        self._start_next(0, 0.0)

    def _start_next(self, kernel: int, earliest: float) -> None:
        if kernel < len(self.kernels):
            entered = (kernel + 1) * self.gpu.issue
            self.ran[kernel].entered = entered
            self.ran[kernel].upstream = (kernel - 1,) if kernel else ()
            moment = max(entered + self.gpu.launch, earliest)
            self.clock.call_at(moment, self.start, kernel, self._handle_end, 0)

    def _handle_end(self, kernel: int) -> None:
        self._start_next(kernel + 1, self.clock.now + self.gpu.queued)
