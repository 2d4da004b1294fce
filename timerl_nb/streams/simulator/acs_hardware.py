"""Simulation of ACS-HW, a scheduling window in hardware. Source: ACS §IV-C.

The host compares each kernel with the last M kernels that it has sent, finished or not, and sends it with the
identities of its dependences. The device drops identities that are not in its window. It admits no kernel
while the oldest kernel in its window is more than M behind, so the host's list covers all kernels in the
window.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Final

from timerl_nb.base.errors import OptionError
from timerl_nb.streams.dependence_analysis import Ranges, slots
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.simulator.simulated_run import Server, StrategySimulation

IDENTITIES: Final = 256  # number of 8-bit identities


class ScheduledList:
    """The host's list of the last M kernels that were sent."""

    def __init__(self, length: int) -> None:
        self._places = length + 1  # including the kernel that is sent
        self._finder = Ranges()
        self._sent = 0

    def send(self, kernel: Kernel) -> tuple[int, ...]:
        """Return the identities of the kernels among the last M that a kernel depends on."""
        number, place = self._sent, self._sent % self._places
        if number >= self._places:
            self._finder.remove(place)
        found = slots(self._finder.add(place, kernel))
        self._sent += 1
        return tuple((number - (place - s) % self._places) % IDENTITIES for s in found)


class HardwareWindow:
    """The device's window: slots with an 8-bit identity, and the identities that each kernel waits for."""

    def __init__(self, size: int, scheduled: int) -> None:
        if size + scheduled > IDENTITIES:
            raise OptionError(
                f"a window of {size} and a list of {scheduled} kernels need more than {IDENTITIES} identities",
                evidence=f"{size} + {scheduled} > {IDENTITIES}: an 8-bit identity would be reused while it is in use",
                hint="choose a smaller window (size=), or a shorter list (scheduled=).",
            )
        self._size, self._scheduled = size, scheduled
        self._upstream: dict[int, set[int]] = {}  # the oldest first
        self._free = list(range(size))
        self._slot: dict[int, int] = {}

    def admits(self, identity: int) -> bool:
        """Return whether a slot is free and the oldest kernel is at most M behind."""
        if len(self._upstream) == self._size:
            return False
        oldest = next(iter(self._upstream), identity)
        return (identity - oldest) % IDENTITIES <= self._scheduled

    def insert(self, identity: int, upstream: Sequence[int]) -> tuple[int, Sequence[int]]:
        """Insert a kernel, and return its slot and its dependences that are in the window."""
        found = [u for u in upstream if u in self._upstream]
        self._upstream[identity] = set(found)
        self._slot[identity] = heapq.heappop(self._free)
        return self._slot[identity], found

    def complete(self, identity: int) -> Sequence[int]:
        """Remove a kernel, and return the kernels that become ready."""
        del self._upstream[identity]
        heapq.heappush(self._free, self._slot.pop(identity))
        ready: list[int] = []
        for other, upstream in self._upstream.items():
            if identity in upstream:
                upstream.remove(identity)
                if not upstream:
                    ready.append(other)
        return ready


class Hardware(StrategySimulation):
    """Strategy "acs-hw". The window changes once at a time: N cycles to insert, N - 1 to update. `scheduled` is
    M.
    """

    def begin(self) -> None:
        self._list = ScheduledList(self.scheduled)
        self._slots = HardwareWindow(self.size, self.scheduled)
        cycle = 1 / self.gpu.clock
        self._insertion, self._updating = self.size * cycle, (self.size - 1) * cycle
        self._port = Server(self.clock)
        self._checker, self._driver = Server(self.clock), Server(self.clock)
        self._arrived = deque[tuple[int, Sequence[int]]]()
        self._kernel_of_identity = [0] * IDENTITIES  # by identity, the kernel
        self._enters = False
        self._check(0)

    def _check(self, kernel: int) -> None:
        """Simulate the host's two threads: one finds the dependences of a kernel, the other launches it."""
        if kernel < len(self.kernels):
            upstream = self._list.send(self.kernels[kernel])
            self._checker.serve(self.gpu.check, self._issue_launch, kernel, upstream)

    def _issue_launch(self, kernel: int, upstream: Sequence[int]) -> None:
        self._driver.serve(self.gpu.issue, self._sent, kernel, upstream)
        self._check(kernel + 1)

    def _sent(self, kernel: int, upstream: Sequence[int]) -> None:
        self.clock.call_at(self.clock.now + self.gpu.launch, self._insert_kernel, kernel, upstream)

    def _insert_kernel(self, kernel: int, upstream: Sequence[int]) -> None:
        self._arrived.append((kernel, upstream))
        self._refill()

    def _refill(self) -> None:
        if self._enters or not self._arrived:
            return
        if self._slots.admits(self._arrived[0][0] % IDENTITIES):
            self._enters = True
            self._port.serve(self._insertion, self._insert)

    def _insert(self) -> None:
        self._enters = False
        kernel, sent = self._arrived.popleft()
        slot, upstream = self._slots.insert(kernel % IDENTITIES, sent)
        self._kernel_of_identity[kernel % IDENTITIES] = kernel
        ran = self.ran[kernel]
        ran.slot, ran.entered = slot, self.clock.now
        ran.upstream = tuple(self._kernel_of_identity[identity] for identity in upstream)
        if not upstream:
            self._dispatch(kernel)
        self._refill()

    def _dispatch(self, kernel: int) -> None:
        self.clock.call_at(self.clock.now + self.gpu.dispatch, self.start, kernel, self._handle_end)

    def _handle_end(self, kernel: int) -> None:
        self._port.serve(self._updating, self._complete, kernel)

    def _complete(self, kernel: int) -> None:
        for identity in self._slots.complete(kernel % IDENTITIES):
            self._dispatch(self._kernel_of_identity[identity])
        self._refill()
