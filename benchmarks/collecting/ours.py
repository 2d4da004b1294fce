"""`trl.collect` with each strategy, on the CartPole of each library."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import timerl_nb as trl
from benchmarks.collecting.cell import Cell
from benchmarks.collecting.implementation import Batch, Implementation
from timerl_nb.collecting.strategy_list import STRATEGIES

# The package required by each environment, by name.
ENVIRONMENTS: Final = {
    "CartPole-v1": "",
    "gym.CartPole-v1": "gymnasium",
    "gymnax.CartPole-v1": "gymnax",
    "envpool.CartPole-v1": "envpool",
}
NAMES: Final = [w.name for w in STRATEGIES]


class Collected(Implementation):
    """Implementation by `trl.collect`."""

    def __init__(self, cell: Cell, env: str, how: str) -> None:
        super().__init__(cell)
        hidden = [cell.width, cell.width]
        policy: Any = trl.policies.random
        if cell.width:
            policy = trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), hidden=hidden)
        self._collector = trl.collect(
            env, policy, envs=cell.envs, steps=cell.steps, seed=0, how=how
        )
        self._batch: Any = None

    def advance(self) -> int:
        self._batch = self._collector.next()
        return self._batch.count

    def counts(self) -> dict[str, int | None]:
        counts = self._collector.counts
        self.calls, self.launches, self.copies = counts.calls, counts.launches, counts.copies
        return super().counts()

    def batch(self) -> Batch:
        names = ("obs", "action", "terminated", "truncated", "valid", "last_obs")
        return {name: np.asarray(getattr(self._batch, name)) for name in names}

    def close(self) -> None:
        self._collector.close()
