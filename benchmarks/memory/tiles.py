"""Tiled against untiled simulation of environments whose states exceed the cache.

CartPole's equations for small angles with random actions; each environment has `copies` copies of
its state. One version runs K steps in one call and stores only the last state. The other uses
`trl.collect` and stores one copy's observation per step. All versions alternate in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import timerl_nb as trl
from benchmarks.training.race import WARM
from timerl_nb.compiler.loops.cache_tile_size_model import TileModel
from timerl_nb.compiler.loops.loop_nodes import Execute, subtree_nodes
from timerl_nb.compiler.passes.vectorization.axis_independence import axis_of
from timerl_nb.driver.search.machine_constants import machine_here
from timerl_nb.env.environment import Environment
from timerl_nb.env.spaces import Box, Discrete

STEPS = 100
MIB = 1 << 20
# Environments, and copies of the state's four numbers: 16, 16, 64 and 0.25 MiB.
SHAPES = ((16_384, 64), (1_024, 1_024), (16_384, 256), (16_384, 1))
SIZES = (32, 128, 512, 2_048)


def pushed(state: Any, left: Any) -> Any:
    """Return the state after a step, f32[4, copies]."""
    x, v, angle, turning = (state.take(k) for k in range(4))
    push = trl.where(left, -10.0, 10.0)
    sin, cos = angle, 1.0 - angle * angle / 2.0
    force = (push + 0.05 * turning * turning * sin) / 1.1
    speeding = (9.8 * sin - cos * force) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
    moving = force - 0.05 * speeding * cos / 1.1
    later = [x + 0.02 * v, v + 0.02 * moving, angle + 0.02 * turning, turning + 0.02 * speeding]
    return trl.stack(later).clip(-2.0, 2.0)


class Copies(Environment):
    """The same system as an environment; observes the first copy."""

    obs_space = Box(-2.0, 2.0, (4,))
    act_space = Discrete(2)
    terminates = False

    def __init__(self, copies: int) -> None:
        super().__init__()
        self.copies = copies

    def first_state(self, domain: Any) -> Any:
        return trl.random.uniform((4, self.copies), -0.05, 0.05, domain=domain)

    def transition(self, state: Any, action: Any) -> tuple[Any, Any, Any]:
        later = pushed(state, action == 0)
        return later, -abs(later.take(0).mean()), trl.zeros((), "bool")

    def observe(self, state: Any) -> Any:
        return state.transpose(1, 0).take(0)


def simulation(copies: int) -> trl.Context:
    """Environments (b) with random actions for T steps (t)."""
    with trl.Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims
        at = trl.random.uniform((4, copies), -0.05, 0.05, domain=(b,))
        state = trl.like(at, domain=(b, t))
        state[b, 0] = at
        state[b, t + 1] = pushed(state, trl.random.uniform((), domain=(b, t)) < 0.5)
        ctx.output("last", state[b, T - 1])
    return ctx


def race(count: int, copies: int, tiles: Sequence[object], rounds: int) -> list[list[float]]:
    """Return the seconds of each round by tile size, interleaved."""
    ctx = simulation(copies)
    programs = [
        ctx.compile({"B": count, "T": STEPS}, trl.Options(executor="xla", tile=tile))
        for tile in tiles
    ]
    made = [program.execute(seed=1, progress=False)["last"] for program in programs]
    assert all(np.array_equal(made[0], one) for one in made), "blocks make other numbers"
    return in_turn(
        [partial(program.execute, seed=1, progress=False) for program in programs], rounds
    )


def collected(count: int, copies: int, rounds: int) -> tuple[list[list[float]], float]:
    """Measure `trl.collect` by scan and by tiles; also return the predicted speedup of tiles."""
    options = {"envs": count, "steps": STEPS, "seed": 1}
    with (
        trl.collect(Copies(copies), trl.policies.random, how="scan", **options) as scan,
        trl.collect(Copies(copies), trl.policies.random, how="blocks", **options) as blocks,
    ):
        assert np.array_equal(scan.next().obs, blocks.next().obs), "blocks make other numbers"
        source: Any = blocks._source
        return in_turn([scan.next, blocks.next], rounds), predicted(source.program)


def predicted(program: trl.Program) -> float:
    """Return the cost model's predicted speedup of a program's first tile over the untiled loop."""
    tile, plan, machine = program.executable.tiles[0], program.memory, machine_here()
    ids = dict.fromkeys(n.op_id for n in subtree_nodes(tile.loop) if isinstance(n, Execute))
    statements = [plan.statements.of_op(op_id) for op_id in ids]
    tensors = {t for one in statements for operand in one.operands for t in operand.tensors}
    tensors |= {(one.id, k) for one in statements for k in range(len(one.op.outputs))}
    parted = {
        t: axis_of(plan.pdg[t[0]].outputs[t[1]].type.shape, tile.dim) is not None for t in tensors
    }
    model = TileModel.from_plan(plan, statements, parted, tile.count, machine)
    return model.turn(tile.count, machine) / model.turn(tile.size, machine)


def in_turn(runs: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Return the seconds of each round by run."""
    times: list[list[float]] = [[] for _ in runs]
    for k in range(WARM + rounds):
        for run, spent in zip(runs, times, strict=True):
            began = perf_counter()
            run()
            if k >= WARM:
                spent.append(perf_counter() - began)
    return times


def main(rounds: int = 10) -> None:
    """Print median, minimum and maximum steps per second, and ratios to the untiled median."""
    print(f"| environments, state | blocks | million steps/s ({rounds} rounds) | times as fast |")
    print("|---|---|---|---|")
    for count, copies in SHAPES:
        sizes = [size for size in SIZES if size < count]
        times = race(count, copies, [False, *({"b": size} for size in sizes), "auto"], rounds)
        _print(count, copies, ["none", *map(str, sizes), "auto"], times)
    count, copies = SHAPES[0]
    times, ratio = collected(count, copies, rounds)
    _print(count, copies, ["trl.collect, scan", f"blocks ({ratio:.2f} times predicted)"], times)


def _print(count: int, copies: int, names: Sequence[str], times: list[list[float]]) -> None:
    held = f"{count:,}, {count * copies * 16 / MIB:g} MiB"
    for name, spent in zip(names, times, strict=True):
        speeds = [count * STEPS / s / 1e6 for s in (median(spent), max(spent), min(spent))]
        ratio = median(a / b for a, b in zip(times[0], spent, strict=True))
        shown = f"{speeds[0]:.2f} ({speeds[1]:.2f}–{speeds[2]:.2f})"
        print(f"| {held} | {name} | {shown} | {ratio:.2f} |", flush=True)
