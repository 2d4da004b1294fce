"""Random disabling of blocks of a thread's timeline, for the calibration within a run.

A block is a number of outermost operations, fixed at its start from the duration of earlier blocks
(about 5 ms). Its own duration has no influence on its content, so the extra time of recorded blocks
is the overhead of recording.

Each disabled block has a recorded neighbour, in random order. Drift of the machine's speed cancels
out, and most noise does, too. At first all blocks are in pairs, later fewer and fewer; the estimate
then covers the whole run.
"""

from __future__ import annotations

from random import Random
from time import monotonic_ns, thread_time_ns
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.scope.storage.event_format import CPU_MOST, Kind

SHORTEST: Final = 5_000_000  # minimum duration of a block, in nanoseconds
# recorded blocks before the first disabled one; short recordings are therefore complete
WARM: Final = 10
FEWEST: Final = 40  # number of blocks before the fraction of disabled blocks falls
LATER: Final = 0.05  # final fraction of disabled blocks
TIMED: Final = 8  # pairs between two measurements in a tight loop
_LONGEST: Final = 3 * SHORTEST
# a thread with less CPU time than this fraction (1/4) of wall time counts as waiting
_WAITS: Final = 4


class Blocks:
    """Blocks of one thread.

    Args:
        seed: seed of the random choice of disabled blocks.
        drawn: whether to disable blocks; otherwise operations are only counted, at the same cost.
    """

    def __init__(self, seed: int, *, drawn: bool = True) -> None:
        self._drawn = drawn
        self._draw = Random(seed)
        self._size = 1  # outermost operations per block
        self._began = self._cpu = 0  # zero before the first block
        self._states: list[bool] = []  # whether each of the next blocks is disabled, last one first
        self._count = self._pairs = 0

    def turn(self, lane: Any) -> None:
        """End the current block of a timeline and begin the next one."""
        cpu, now = thread_time_ns(), monotonic_ns()
        # also before the first block: the following time is overhead
        _moment(lane, Kind.BLOCK_EXIT, cpu)
        if self._cpu:
            for name, count in lane.writer.tallies.items():
                lane.put(lane.recorder.number(name), Kind.TALLY, count)
            self._count += 1
        if not self._states:
            # CPU time is independent of other processes; wall time counts for a thread in waits
            took = max(cpu - self._cpu, (now - self._began) // _WAITS)
            self._resize(took if self._cpu else SHORTEST)
            self._states = self._draw_blocks()
            if not self._cpu or (len(self._states) == 2 and self._pairs % TIMED == 0):
                lane.recorder.timed(lane)
        if lane.silent != (silent := self._states.pop()):
            lane.silence(silent)
        lane.writer.tallies.clear()
        lane.writer.left = self._size
        self._began, self._cpu = monotonic_ns(), thread_time_ns()
        _moment(lane, Kind.BLOCK_ENTER, self._cpu)

    def _resize(self, took: int) -> None:
        """Adapt the number of operations to the CPU time of the last block."""
        if took < SHORTEST:
            self._size = max(self._size + 1, min(4 * self._size, self._size * SHORTEST // took))
        elif took > _LONGEST:
            self._size = max(1, self._size // 2)

    def _draw_blocks(self) -> list[bool]:
        """Return whether each of the next blocks is disabled, last one first."""
        done = max(self._count - WARM, FEWEST)
        share = max(LATER, (FEWEST / done) ** 0.5 / 2)  # fraction of disabled blocks
        paired = self._draw.random() * (1 - share) < share
        if self._count < WARM or not self._drawn or not paired:
            return [False]
        self._pairs += 1
        first = self._draw.random() < 0.5
        return [first, not first]


def _moment(lane: Any, kind: Kind, cpu: int) -> None:
    cpu = min(cpu, CPU_MOST)
    lane.put(cpu & 0xFFFFFFFF, kind, cpu >> 32)


def cpu_of(edges: Array) -> Array:
    """Return the CPU time in block events, in nanoseconds."""
    return edges["top"].astype(np.int64) + (edges["depth"].astype(np.int64) << 32)


def between_blocks(edges: Array) -> tuple[Array, Array]:
    """Return the indices of block ends and the CPU time (ns) up to the next block.

    The last block end has no next block and is left out.
    """
    at = np.flatnonzero((edges["kind"] == Kind.BLOCK_ENTER) | (edges["kind"] == Kind.BLOCK_EXIT))
    kind, cpu = edges["kind"][at], cpu_of(edges[at])
    ends = np.flatnonzero((kind[:-1] == Kind.BLOCK_EXIT) & (kind[1:] == Kind.BLOCK_ENTER))
    return at[ends], cpu[ends + 1] - cpu[ends]
