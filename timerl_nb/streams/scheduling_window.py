"""The scheduling window: kernels enter in order, and leave out of it (§III-D, Figs. 14 and 15). Nothing here runs them."""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.streams.dependence_analysis import Finder
from timerl_nb.streams.kernel_declaration import Kernel

_LARGEST: Final = 1 << 20  # slots of a window


class SchedulingWindow:
    """Slots for kernels, each of which waits for its upstream slots.

    A kernel that has to wait for one outside the window cannot be: who leaves has run, who comes later enters later.

    Attributes:
        kernels: by slot; None where it is free.
        upstream: by slot, the mask of the slots that its kernel had to wait for as it came.
        waits: by slot, how many of these have not run.
        downstream: by slot, those that wait for it, the first first.
        ready: slots whose upstream is empty, in the order in which it became so.
        free: slots without a kernel.

    Raises:
        ShapeError: `size` is no number of slots.
    """

    def __init__(self, size: int, finder: Finder) -> None:
        self.size = integer("the size of a window", size, least=1, most=_LARGEST)
        self.kernels: list[Kernel | None] = [None] * size
        self.upstream, self.waits = [0] * size, [0] * size
        self.downstream: list[list[int]] = [[] for _ in range(size)]
        self.ready: deque[int] = deque()
        self.free = list(range(size - 1, -1, -1))
        self._add, self._remove = finder.add, finder.remove

    @property
    def is_full(self) -> bool:
        return not self.free

    @property
    def count(self) -> int:
        """How many kernels are there."""
        return self.size - len(self.free)

    def state(self, slot: int) -> Literal["free", "pending", "ready", "executing"]:
        if self.kernels[slot] is None:
            return "free"
        if self.waits[slot]:
            return "pending"
        return "ready" if slot in self.ready else "executing"

    def insert(self, kernel: Kernel) -> int:
        """Put a kernel into a free slot."""
        slot = self.free.pop()
        self.kernels[slot] = kernel
        upstream = self.upstream[slot] = self._add(slot, kernel)
        if not upstream:
            self.ready.append(slot)
            return slot
        downstream, count = self.downstream, 0
        while upstream:
            lowest = upstream & -upstream
            downstream[lowest.bit_length() - 1].append(slot)
            upstream ^= lowest
            count += 1
        self.waits[slot] = count
        return slot

    def take(self) -> int:
        """The slot of the kernel that has been ready for longest; from now on it is executing."""
        return self.ready.popleft()

    def complete(self, slot: int) -> None:
        """Free the slot of a kernel that has run, which may make others ready."""
        self._remove(slot)
        waits = self.waits
        for other in self.downstream[slot]:
            left = waits[other] = waits[other] - 1
            if not left:
                self.ready.append(other)
        self.downstream[slot] = []
        self.kernels[slot] = None
        self.free.append(slot)
