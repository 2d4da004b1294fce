"""Simulation of windows on the host: ACS-SW, and a variant with events. Source: ACS §IV-B and §III-A.

In `Software`, one thread manages the window, and one thread per queue launches a kernel, waits for it and
reports its end. Driver calls are serialised, as are changes of the window. In `Events`, the host launches a
kernel on its insertion, on a queue whose last kernel is upstream or on an idle queue; the device waits for
the events of the other upstream kernels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque

from timerl_nb.streams.dependence_analysis import Ranges
from timerl_nb.streams.scheduling_window import SchedulingWindow
from timerl_nb.streams.simulator.simulated_run import Server, StrategySimulation


class _Windowed(StrategySimulation):
    """Base class: kernels enter a window one at a time, in order."""

    def begin(self) -> None:
        self._window = SchedulingWindow(self.size, Ranges())
        self._kernel_of_slot = [0] * self.size  # by slot, the kernel
        self._module = Server(self.clock)
        self._entered = 0
        self._enters = False
        self._refill()

    def _refill(self) -> None:
        if not self._enters and self._entered < len(self.kernels) and not self._window.is_full:
            self._enters = True
            self._module.serve(self.gpu.check, self._insert)

    def _insert(self) -> None:
        self._enters = False
        kernel = self._entered
        self._entered += 1
        slot = self._window.insert(self.kernels[kernel])
        self._kernel_of_slot[slot] = kernel
        ran = self.ran[kernel]
        ran.slot, ran.entered = slot, self.clock.now
        ran.upstream = tuple(self._kernel_of_slot[s] for s in self._window.upstream_slots[slot])
        self._handle_insertion(slot)
        self._refill()

    @abstractmethod
    def _handle_insertion(self, slot: int) -> None: ...


class Software(_Windowed):
    def begin(self) -> None:
        self._driver = Server(self.clock)
        self._idle = deque(range(self.streams))
        super().begin()

    def _handle_insertion(self, slot: int) -> None:
        self._launch()

    def _launch(self) -> None:
        while self._idle and self._window.ready:
            slot = self._window.take()
            self._driver.serve(self.gpu.issue, self._handle_launch, slot, self._idle.popleft())

    def _handle_launch(self, slot: int, lane: int) -> None:
        def on_end(_: int) -> None:
            self.clock.call_at(self.clock.now + self.gpu.sync, on_notice)

        def on_notice() -> None:
            self._module.serve(self.gpu.update, self._complete, slot, lane)

        arrives = self.clock.now + self.gpu.launch
        self.clock.call_at(arrives, self.start, self._kernel_of_slot[slot], on_end, lane)

    def _complete(self, slot: int, lane: int) -> None:
        self._window.complete(slot)
        self._idle.append(lane)
        self._launch()
        self._refill()


class Events(_Windowed):
    def begin(self) -> None:
        self._last = [-1] * self.streams  # by queue, its last kernel
        self._waits: dict[int, set[int]] = {}
        self._followers: dict[int, list[int]] = {}
        self._over = set[int]()
        super().begin()

    def _handle_insertion(self, slot: int) -> None:
        self._window.ready.clear()  # all kernels are launched; the device waits
        kernel = self._kernel_of_slot[slot]
        upstream = set(self.ran[kernel].upstream)
        lane = self._queue(upstream)
        last = self._last[lane]
        self._last[lane] = kernel
        others = len(upstream - {last})
        if last >= 0 and last not in self._over:
            upstream.add(last)
        self.ran[kernel].lane = lane
        # record the waits first: a kernel that ends during the host's calls counts as finished for the device
        cost = self.gpu.issue + self.gpu.event * (1 + others)
        self._waits[kernel] = upstream | {kernel}
        for one in upstream:
            self._followers.setdefault(one, []).append(kernel)
        self._enters = True  # until the host has made its calls
        self._module.serve(cost, self._handle_launch, kernel)

    def _queue(self, upstream: set[int]) -> int:
        """Return the queue of an upstream kernel, else an idle queue, else the queue whose last kernel is the
        oldest.
        """
        lanes = range(self.streams)
        last = self._last
        own = [s for s in lanes if last[s] in upstream]
        idle = [s for s in lanes if last[s] < 0 or last[s] in self._over]
        return min(own or idle or lanes, key=lambda s: last[s])

    def _handle_launch(self, kernel: int) -> None:
        self._enters = False
        self.clock.call_at(
            self.clock.now + self.gpu.launch, self._resolve_dependence, kernel, kernel
        )
        self._refill()

    def _resolve_dependence(self, kernel: int, follower: int) -> None:
        """Remove one condition, an upstream kernel or the own launch, from a waiting kernel."""
        waits = self._waits[follower]
        waits.discard(kernel)
        if not waits:
            del self._waits[follower]
            self.start(follower, self._handle_end, self.ran[follower].lane)

    def _handle_end(self, kernel: int) -> None:
        self._over.add(kernel)
        lane = self.ran[kernel].lane
        for follower in self._followers.pop(kernel, ()):
            same = self.ran[follower].lane == lane
            between = self.gpu.queued if same else self.gpu.waited
            self.clock.call_at(self.clock.now + between, self._resolve_dependence, kernel, follower)
        self._window.complete(self.ran[kernel].slot)
        self._window.ready.clear()
        self._refill()
