"""Blocks of a thread's lane, some of which are silent at random: what a calibration of the very run is made of.

A block is so many outermost operations as took some 5 ms before. Their number is known as it begins, so that
nothing of how long it takes decides what is in it: what blocks that are recorded take longer than silent ones is
what recording costs there. Silent ones come in pairs with a recorded one, in random order, which no drift favours and
whose difference most of the noise is not in. At first all blocks are in pairs, later ever fewer: what recording costs
changes with the speed of the machine, and is that of the whole run.
"""

from __future__ import annotations

from random import Random
from time import monotonic_ns, thread_time_ns
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.scope.storage.event_format import CPU_MOST, Kind

SHORTEST: Final = 5_000_000  # ns of a block
WARM: Final = 10  # blocks ahead of those that calibrate, all recorded: short recordings are whole
FEWEST: Final = 40  # blocks that are all in pairs
LATER: Final = 0.05  # the part of blocks that is silent, in the end
TIMED: Final = 8  # pairs from one time to the next that a tight loop is timed
_LONGEST: Final = 3 * SHORTEST
_WAITS: Final = 4  # of so much time it computes in less than one part


class Blocks:
    """Those of one thread.

    Args:
        seed: of which of them are silent.
        drawn: whether some are silent; else they count what they would, and cost it.
    """

    def __init__(self, seed: int, *, drawn: bool = True) -> None:
        self._drawn = drawn
        self._draw = Random(seed)
        self._size = 1  # outermost operations
        self._began = self._cpu = 0  # no block has begun
        self._states: list[bool] = []  # whether the next ones are silent
        self._count = self._pairs = 0

    def turn(self, lane: Any) -> None:
        """A block ends in a lane, as its operations are done, and the next one begins."""
        cpu, now = thread_time_ns(), monotonic_ns()
        _moment(lane, Kind.BLOCK_EXIT, cpu)  # also ahead of the first one: what follows is our own
        if self._cpu:
            for name, count in lane.writer.tallies.items():
                lane.put(lane.recorder.number(name), Kind.TALLY, count)
            self._count += 1
        if not self._states:
            # not by what other processes took meanwhile, unless the thread does little but wait
            took = max(cpu - self._cpu, (now - self._began) // _WAITS)
            self._resize(took if self._cpu else SHORTEST)
            self._states = self._draw_blocks()
            if not self._cpu or (len(self._states) == 2 and self._pairs % TIMED == 0):
                lane.recorder.asked(lane)
        if lane.silent != (silent := self._states.pop()):
            lane.silence(silent)
        lane.writer.tallies.clear()
        lane.writer.left = self._size
        self._began, self._cpu = monotonic_ns(), thread_time_ns()
        _moment(lane, Kind.BLOCK_ENTER, self._cpu)

    def _resize(self, took: int) -> None:
        """Have blocks take some 5 ms, by what the last one took."""
        if took < SHORTEST:
            self._size = max(self._size + 1, min(4 * self._size, self._size * SHORTEST // took))
        elif took > _LONGEST:
            self._size = max(1, self._size // 2)

    def _draw_blocks(self) -> list[bool]:
        """Whether the next blocks are silent, from the last one on."""
        done = max(self._count - WARM, FEWEST)
        share = max(LATER, (FEWEST / done) ** 0.5 / 2)  # of blocks that is silent
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
    """CPU time that edges of blocks tell, in nanoseconds."""
    return edges["top"].astype(np.int64) + (edges["depth"].astype(np.int64) << 32)


def between_blocks(edges: Array) -> tuple[Array, Array]:
    """What blocks took to begin and end: of each end of one, but for the last, its edge, and nanoseconds of CPU time."""
    at = np.flatnonzero((edges["kind"] == Kind.BLOCK_ENTER) | (edges["kind"] == Kind.BLOCK_EXIT))
    kind, cpu = edges["kind"][at], cpu_of(edges[at])
    ends = np.flatnonzero((kind[:-1] == Kind.BLOCK_EXIT) & (kind[1:] == Kind.BLOCK_ENTER))
    return at[ends], cpu[ends + 1] - cpu[ends]
