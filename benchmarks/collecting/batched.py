"""CartPole in NumPy: one array for all environments."""

from __future__ import annotations

import numpy as np

from benchmarks.collecting.cell import ANGLE_LIMIT, MOST_STEPS, TICK, X_LIMIT, Cell
from benchmarks.collecting.hosted import Environments, Hosted, Stepped
from benchmarks.collecting.policy import by_numpy

F = np.float32


class Batched(Environments):
    """CartPole's equations, one environment per matrix row."""

    calls = 0

    def __init__(self, count: int) -> None:
        self._draw = np.random.default_rng(2)
        self._state = self._first(count)
        self._length = np.zeros(count, np.int32)

    def _first(self, count: int) -> np.ndarray:
        return self._draw.uniform(-0.05, 0.05, (count, 4)).astype(F)

    def reset(self) -> np.ndarray:
        return self._state

    def step(self, action: np.ndarray) -> Stepped:
        x, v, angle, spin = self._state.T
        force = np.where(action == 1, F(10), F(-10))
        cos, sin = np.cos(angle), np.sin(angle)
        push = (force + F(0.05) * spin * spin * sin) / F(1.1)
        twist = (F(9.8) * sin - cos * push) / (F(0.5) * (F(4 / 3) - F(0.1) * cos * cos / F(1.1)))
        pull = push - F(0.05) * twist * cos / F(1.1)
        tick = F(TICK)
        after = np.stack(
            [x + tick * v, v + tick * pull, angle + tick * spin, spin + tick * twist], 1
        )
        self._length += 1
        ended = (abs(after[:, 0]) > X_LIMIT) | (abs(after[:, 2]) > ANGLE_LIMIT)
        cut = self._length >= MOST_STEPS
        over = ended | cut
        if over.any():
            after[over] = self._first(int(over.sum()))
            self._length[over] = 0
        self._state = after
        return after, np.ones(len(after), F), ended, cut


def numpy_batched(cell: Cell) -> Hosted:
    return Hosted(cell, Batched(cell.envs), by_numpy(cell.width))
