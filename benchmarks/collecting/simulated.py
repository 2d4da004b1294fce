"""Pure simulation (section 4): the state is S times as large, and each step is repeated C times.

The force follows the pole's lean, and a fallen pole is reset; no randomness, and only the state is
stored. Tiles replace the paper's CUDA version: all steps of some environments run before the next
environments.
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import timerl_nb as trl
from benchmarks.collecting.cell import ANGLE_LIMIT, TICK, X_LIMIT, Cell
from benchmarks.collecting.implementation import Batch, Implementation
from benchmarks.collecting.jitted import launches

BLOCK: Final = 128 * 1024  # bytes of state and temporaries that fit a core's cache

WRITTEN: Final = 4  # limit for our repetitions; XLA compiles for minutes at 16


def start(cell: Cell) -> np.ndarray:
    """Return the initial state, [envs, 4, S]."""
    shape = cell.envs, 4, cell.state
    return np.random.default_rng(0).uniform(-0.05, 0.05, shape).astype(np.float32)


def moved(np: Any, x: Any, v: Any, angle: Any, spin: Any) -> list[Any]:
    """Compute a step with the array module of either library."""
    force = np.where(angle > 0, 10.0, -10.0)
    cos, sin = np.cos(angle), np.sin(angle)
    push = (force + 0.05 * spin * spin * sin) / 1.1
    twist = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
    pull = push - 0.05 * twist * cos / 1.1
    later = [x + TICK * v, v + TICK * pull, angle + TICK * spin, spin + TICK * twist]
    over = (abs(later[0]) > X_LIMIT) | (abs(later[2]) > ANGLE_LIMIT)
    return [np.where(over, 0.01, one) for one in later]


def step(cell: Cell, state: Any) -> Any:
    """Step all environments once."""

    def once(state: Any) -> Any:
        return jnp.stack(moved(jnp, *(state[:, k] for k in range(4))), 1)

    if cell.compute == 1:
        return once(state)
    return jax.lax.fori_loop(0, cell.compute, lambda _, s: once(s), state)


def steps(cell: Cell, state: Any) -> Any:
    return jax.lax.fori_loop(0, cell.steps, lambda _, s: step(cell, s), state)


class Simulated(Implementation):
    """Environments whose states persist between batches."""

    _state: Any

    def batch(self) -> Batch:
        return {"state": np.array(self._state)}


class InJax(Simulated):
    """JAX version: a call per step, one call for all steps, or one tiled call."""

    def __init__(self, cell: Cell, how: str) -> None:
        super().__init__(cell)
        self._state = jnp.asarray(start(cell))
        self.calls = cell.steps if how == "step" else 1
        blocks = max(1, self._state.nbytes // BLOCK) if how == "blocks" else 1
        while cell.envs % blocks:
            blocks -= 1

        def call(state: Any) -> Any:
            if how == "step":
                return step(cell, state)
            if blocks == 1:
                return steps(cell, state)
            cut = state.reshape(blocks, -1, *state.shape[1:])
            return jax.lax.map(lambda s: steps(cell, s), cut).reshape(state.shape)

        self._call = jax.jit(call, donate_argnums=0).lower(self._state).compile()

    def advance(self) -> int:
        for _ in range(self.calls):
            self._state = self._call(self._state)
        jax.block_until_ready(self._state)
        return self.cell.points

    def counts(self) -> dict[str, int | None]:
        self.launches = launches(self._call) * self.calls
        return super().counts()


def a_call_a_step(cell: Cell) -> InJax:
    return InJax(cell, "step")


def one_call(cell: Cell) -> InJax:
    return InJax(cell, "scan")


def blocks(cell: Cell) -> InJax:
    return InJax(cell, "blocks")


class Ours(Simulated):
    """Version in recurrence equations; each run continues from the last state."""

    def __init__(self, cell: Cell, **options: Any) -> None:
        super().__init__(cell)
        if cell.compute > WRITTEN:
            raise ValueError(f"a step that is written out {cell.compute:,} times compiles too long")
        with trl.Context("b", "i", "t") as ctx:
            (b, B), (i, I), (t, T) = ctx.dims
            begin = trl.random.uniform((4, cell.state), -0.05, 0.05, domain=(b,))
            s = trl.like(begin, domain=(b, i, t))
            later = s
            for _ in range(cell.compute):
                later = trl.stack(moved(trl, *(later.take(k) for k in range(4))))
            s[b, 0, 0] = begin
            s[b, i + 1, 0] = later[b, i, T - 1]
            s[b, i, t + 1] = later
            ctx.output("state", later[0:B, i, T - 1])
        bounds = {B: cell.envs, I: trl.endless, T: cell.steps}
        self.program = ctx.compile(bounds, trl.Options(executor="xla", **options), tell=False)
        self._turns = self.program.turns(0, taken=jax.block_until_ready)

    def advance(self) -> int:
        self._state = next(self._turns)["state"]
        return self.cell.points

    def counts(self) -> dict[str, int | None]:
        lowered = self.program.executable.xla_program
        assert lowered is not None
        self.calls = sum(bool(call.counters) for call in lowered.calls)
        self.launches = self.program.executable.launches
        return super().counts()

    def close(self) -> None:
        self._turns.close()


def ours(cell: Cell) -> Ours:
    return Ours(cell)


def ours_in_blocks(cell: Cell) -> Ours:
    rows = max(1, min(cell.envs, BLOCK // (16 * cell.state)))
    return Ours(cell, tile={"b": rows})
