"""Brax environments with random actions, in a scan: the simulators of the paper's Fig. 2."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from brax import envs

from benchmarks.collecting.cell import Cell
from benchmarks.collecting.jitted import Jitted

PIPELINE = "spring"


class Brax(Jitted):
    """Brax environments with automatic reset and episodes of at most 1,000 steps."""

    def __init__(self, cell: Cell, name: str) -> None:
        self._name = name
        super().__init__(cell, whole=True)

    def _begun(self) -> tuple[Any, Any]:
        env = envs.create(self._name, backend=PIPELINE, batch_size=self.cell.envs)
        shape = self.cell.envs, env.action_size

        def step(_: Any, carry: Any) -> Any:
            state, key = carry
            key, chance = jax.random.split(key)
            action = jax.random.uniform(chance, shape, minval=-1.0)
            later = env.step(state, action)
            made = {"obs": state.obs, "action": action, "reward": later.reward, "done": later.done}
            return (later, key), made

        return (jax.jit(env.reset)(jax.random.key(0)), jax.random.key(1)), step

    def batch(self) -> Any:
        made = {name: np.asarray(x) for name, x in self._made.items()}
        return {**made, "last_obs": np.asarray(self._carry[0].obs)}


def pendulum(cell: Cell) -> Brax:
    return Brax(cell, "inverted_pendulum")


def ant(cell: Cell) -> Brax:
    return Brax(cell, "ant")
