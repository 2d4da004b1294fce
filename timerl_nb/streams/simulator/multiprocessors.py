"""Simulation of a GPU's multiprocessors: blocks start in waves, and slow down if too many warps are resident.

Each processor has limits for warps, blocks and registers; a block goes to the processor with the most free
blocks. Blocks of started kernels wait in order for room. Above an average of `Gpu.saturation` warps per
processor, all resident blocks share the computing speed. *Work* is time at the speed of an unsaturated
processor; a wave ends after a fixed amount of work.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timerl_nb.base.errors import OptionError
from timerl_nb.streams.kernel_declaration import THREADS, Kernel
from timerl_nb.streams.simulator.event_queue import Clock
from timerl_nb.streams.simulator.gpu_constants import WARPS, Gpu


@dataclass(slots=True)
class _Started:
    index: int
    waiting: int  # blocks not yet started
    left: int  # blocks not yet ended
    microseconds: float
    registers: int  # registers per block
    then: Callable[[int], None]


class Processors:
    """Blocks and warps on the multiprocessors of a GPU.

    Attributes:
        resident_time: resident warps × µs so far.
        work: warps × µs at full speed so far.
        history: the number of resident warps from each time on.
    """

    def __init__(
        self, clock: Clock, gpu: Gpu, kernels: Sequence[Kernel], registers: int | None = None
    ) -> None:
        """Create idle processors; `registers` per thread overrides the kernels' numbers, as in one kernel that
        runs all.
        """
        self._clock, self._gpu = clock, gpu
        self._shapes = [
            (gpu.microseconds(k), (registers or k.registers) * THREADS, k.blocks) for k in kernels
        ]
        for kernel, (_, needed, _) in zip(kernels, self._shapes, strict=True):
            if needed > gpu.registers:
                raise OptionError(
                    f"{gpu.name} cannot run {kernel.name}: a block needs too many registers",
                    evidence=f"a block needs {needed:,} registers, a processor has {gpu.registers:,}",
                )
        self._room = [
            gpu.resident(1) // gpu.processors
        ] * gpu.processors  # free blocks by processor
        self._registers = [gpu.registers] * gpu.processors
        self._queue = deque[_Started]()
        self._waves: list[tuple[float, int, _Started, list[int]]] = []
        self._began = 0  # number of started waves
        self._plan = 0  # number of the valid plan; older planned ends are ignored
        self._resident = 0
        self._rate = 1.0
        self._settled = 0.0  # time
        self._passed = 0.0  # work
        self.resident_time = 0.0
        self.work = 0.0
        self.history: list[tuple[float, int]] = []  # resident warps from each time on

    def start(self, index: int, then: Callable[[int], None]) -> None:
        """Start a kernel's blocks as soon as there is room; the last one calls `then` at its end."""
        microseconds, registers, blocks = self._shapes[index]
        self._queue.append(_Started(index, blocks, blocks, microseconds, registers, then))
        self._advance_progress()
        self._fill()

    def _advance_progress(self) -> None:
        passed = self._clock.now - self._settled
        if passed > 0:
            self.resident_time += passed * self._resident
            self.work += passed * self._rate * self._resident
            self._passed += passed * self._rate
            self._settled = self._clock.now

    def _fill(self) -> None:
        while self._queue:
            first = self._queue[0]
            dealt = self._deal_blocks(first)
            count = sum(dealt)
            if not count:
                break
            self._occupy(dealt, first.registers, 1)
            self._resident += count * WARPS
            self._began += 1
            wave = (self._passed + first.microseconds, self._began, first, dealt)
            heapq.heappush(self._waves, wave)
            first.waiting -= count
            if not first.waiting:
                self._queue.popleft()
        self._rate = min(1.0, self._gpu.capacity / self._resident) if self._resident else 1.0
        self.history.append((self._clock.now, self._resident))
        self._plan += 1
        if self._waves:
            left = max(self._waves[0][0] - self._passed, 0.0)
            self._clock.call_at(self._clock.now + left / self._rate, self._end, self._plan)

    def _deal_blocks(self, started: _Started) -> list[int]:
        """Return, by processor, the number of a kernel's blocks that start there."""
        registers = started.registers
        fits = [
            min(room, free // registers)
            for room, free in zip(self._room, self._registers, strict=True)
        ]
        left = started.waiting
        if sum(fits) <= left:
            return fits
        dealt = [0] * len(fits)
        for level in range(max(self._room), 0, -1):  # the emptiest processors first
            for k, fit in enumerate(fits):
                if dealt[k] < fit and self._room[k] - dealt[k] == level:
                    dealt[k] += 1
                    left -= 1
                    if not left:
                        return dealt
        return dealt

    def _occupy(self, dealt: list[int], registers: int, sign: int) -> None:
        for k, count in enumerate(dealt):
            if count:
                self._room[k] -= sign * count
                self._registers[k] -= sign * count * registers

    def _end(self, plan: int) -> None:
        if plan != self._plan:  # a later wave has changed the plan
            return
        self._advance_progress()
        ended: list[_Started] = []
        limit = self._waves[0][0] + 1e-9
        while self._waves and self._waves[0][0] <= limit:
            _, _, one, dealt = heapq.heappop(self._waves)
            count = sum(dealt)
            self._occupy(dealt, one.registers, -1)
            self._resident -= count * WARPS
            one.left -= count
            if not one.left:
                ended.append(one)
        self._fill()
        for one in ended:
            one.then(one.index)
