"""Scheduling window: kernels enter in program order and become ready in any order. Source: ACS §III-D, Figs.
14 and 15.

This module only decides; other modules run the kernels.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.streams.dependence_analysis import Finder
from timerl_nb.streams.kernel_declaration import Kernel

_LARGEST: Final = 1 << 20  # maximal number of slots


class SchedulingWindow:
    """Slots for kernels, each of which waits for its upstream slots.

    A kernel never depends on one outside the window: kernels outside have run, and later kernels enter
    later.

    Attributes:
        kernels: by slot, the kernel, or None for a free slot.
        upstream_slots: by slot, the slots that its kernel depended on at its entry, in ascending order.
        waits: by slot, the number of upstream kernels that have not run.
        downstream: by slot, the slots that depend on it, in order of entry.
        ready: the slots without pending dependences, in the order in which they became ready.
        free: the slots without a kernel.

    Raises:
        ShapeError: `size` is not a valid number of slots.
    """

    def __init__(self, size: int, finder: Finder) -> None:
        self.size = integer("the size of a window", size, least=1, most=_LARGEST)
        self.kernels: list[Kernel | None] = [None] * size
        self.waits = [0] * size
        self.upstream_slots: list[list[int]] = [[] for _ in range(size)]
        self.downstream: list[list[int]] = [[] for _ in range(size)]
        self.ready: deque[int] = deque()
        self.free = list(range(size - 1, -1, -1))
        self._add, self._remove = finder.add, finder.remove

    @property
    def is_full(self) -> bool:
        return not self.free

    @property
    def count(self) -> int:
        """The number of kernels in the window."""
        return self.size - len(self.free)

    def state(self, slot: int) -> Literal["free", "pending", "ready", "executing"]:
        if self.kernels[slot] is None:
            return "free"
        if self.waits[slot]:
            return "pending"
        return "ready" if slot in self.ready else "executing"

    def insert(self, kernel: Kernel) -> int:
        """Put a kernel into a free slot, and return the slot."""
        slot = self.free.pop()
        self.kernels[slot] = kernel
        upstream = self._add(slot, kernel)
        found = self.upstream_slots[slot] = []
        if not upstream:
            self.ready.append(slot)
            return slot
        downstream = self.downstream
        while upstream:
            lowest = upstream & -upstream
            other = lowest.bit_length() - 1
            found.append(other)
            downstream[other].append(slot)
            upstream ^= lowest
        self.waits[slot] = len(found)
        return slot

    def take(self) -> int:
        """Remove and return the slot that has been ready for the longest time; its kernel is then executing."""
        return self.ready.popleft()

    def complete(self, slot: int) -> None:
        """Free the slot of a kernel that has run; dependent kernels may become ready."""
        self._remove(slot)
        waits, downstream = self.waits, self.downstream
        if later := downstream[slot]:
            for other in later:
                left = waits[other] = waits[other] - 1
                if not left:
                    self.ready.append(other)
            downstream[slot] = []
        self.kernels[slot] = None
        self.free.append(slot)
