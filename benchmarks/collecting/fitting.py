"""Fit of the cost model's machine constants to measured batches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf
from time import perf_counter
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.machine_model import Machine
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.cost_model import FITTED, Device, Load, StepCosts
from timerl_nb.collecting.policies.policy_conversion import acting_of
from timerl_nb.collecting.policies.ready_policies import random
from timerl_nb.collecting.strategies.step_by_step import StepByStep
from timerl_nb.collecting.strategies.xla_scan import Scan
from timerl_nb.collecting.strategy import Source, Weights
from timerl_nb.driver.search.machine_constants import keep, machine_here
from timerl_nb.env.environment import Simulation, make
from timerl_nb.rl.policy_networks import DNNBuilder

_BATCHES: Final = 7
_TURNS: Final = 20  # of guessing the dominant term; two or three usually suffice


@dataclass(frozen=True)
class Run:
    """Configuration of one batch, and its duration."""

    load: Load
    seconds: float


def fit(runs: Sequence[Run], before: Machine, *, overlaps: bool = False) -> Machine:
    """Fit machine constants to the measurements by least squares of relative errors.

    No constant is negative. Constants without influence on any run are unchanged. If two terms
    overlap, the larger one counts: the fit guesses it by the current constants, and iterates to a
    fixed point.
    """
    found = before
    decided: Array | None = None
    for _ in range(_TURNS):
        device = Device("", found, overlaps)
        rows = np.array([_terms(run.load, device) for run in runs])
        if decided is not None and np.array_equal(rows, decided):
            break
        decided = rows
        seconds = np.array([run.seconds for run in runs])
        x = _least_squares(rows / seconds[:, None])
        used = [bool(column.any()) for column in rows.T]
        c, l, products, elements, nbytes = (
            value if is_used else old
            for value, is_used, old in zip(x, used, _constants(found), strict=True)
        )
        found = replace(
            found,
            launch=float(c),
            call=float(l),
            flops=_rate(products),
            elements=_rate(elements),
            bandwidth=_rate(nbytes),
        )
    return found


def _constants(machine: Machine) -> tuple[float, ...]:
    rates = machine.flops, machine.elements, machine.bandwidth
    return machine.launch, machine.call, *(1 / rate for rate in rates)


def _rate(seconds: float) -> float:
    return float(1 / seconds) if seconds > 0 else inf


def _terms(load: Load, device: Device) -> tuple[float, ...]:
    """Return the coefficient of each constant, with the other constants fixed."""
    of = device.machine
    nbytes = load.bytes_to_memory(of)
    computing = load.products / of.flops + load.elements / of.elements
    crossing = nbytes / of.bandwidth
    is_launching = not device.overlaps or load.launches * of.call >= max(computing, crossing)
    is_working = not device.overlaps or not is_launching
    is_computing = is_working and computing >= crossing
    return (
        load.calls + load.arrays,
        load.launches * is_launching,
        load.products * is_computing,
        load.elements * is_computing,
        nbytes * (is_working and not is_computing),
    )


def _least_squares(rows: Array) -> Array:
    """Return the non-negative x that minimises |rows · x - 1|, by trying every set of positive components."""
    scale = np.maximum(np.abs(rows).max(0), np.finfo(float).tiny)
    best, least = np.zeros(rows.shape[1]), float(len(rows))
    for count in range(1, rows.shape[1] + 1):
        for kept in map(list, combinations(range(rows.shape[1]), count)):
            x = np.zeros(rows.shape[1])
            x[kept] = np.linalg.lstsq(rows[:, kept] / scale[kept], np.ones(len(rows)))[0]
            error = float(np.square((rows / scale) @ x - 1).sum())
            if (x >= 0).all() and error < least * (1 - 1e-9):
                best, least = x / scale, error
    return best


@dataclass(frozen=True)
class Cell:
    """Configuration of a batch to measure.

    Attributes:
        width: Width of both layers of the policy; 0 for random actions.
        by_step: Use the strategy `step`, else `scan`.
    """

    env: Simulation
    width: int
    envs: int
    steps: int
    by_step: bool = False


def fitted() -> Machine:
    """Fit this machine by five small batches, in about a minute including compilation; cache the result.

    Run nothing else at the same time.
    """
    found = fit(measured(small()), machine_here())
    keep(found, FITTED)
    return found


def small() -> Sequence[Cell]:
    """Return batches dominated by calls, launches, two sorts of arithmetic, and memory, respectively."""
    cartpole, large = make("CartPole-v1"), make("synthetic", obs_shape=(2048,))
    return (
        Cell(cartpole, 0, 4, 32, by_step=True),
        Cell(cartpole, 0, 4, 1024),
        Cell(cartpole, 0, 8192, 16),
        Cell(cartpole, 256, 1024, 16),
        Cell(large, 0, 2048, 8),
    )


def measured(cells: Sequence[Cell]) -> Sequence[Run]:
    """Return the fastest of a few batches per configuration.

    Interleaving spreads disturbances evenly.
    """
    with ExitStack() as stack:
        begun = [_begun(cell, stack) for cell in cells]
        seconds = [inf] * len(cells)
        for _ in range(_BATCHES):
            for k, (source, weights, _) in enumerate(begun):
                start = perf_counter()
                source.next(weights)
                seconds[k] = min(seconds[k], perf_counter() - start)
    return [Run(load, took) for (_, _, load), took in zip(begun, seconds, strict=True)]


def _begun(cell: Cell, stack: ExitStack) -> tuple[Source, Weights, Load]:
    """Return running environments and the function that collects a batch of them."""
    env = cell.env
    policy = DNNBuilder().from_env(env, hidden=[cell.width] * 2) if cell.width else random
    acting = acting_of(policy, (env.obs_space, env.act_space), 0)
    task = Task(repr(env), env, None, acting, cell.envs, cell.steps, 0)
    way = StepByStep() if cell.by_step else Scan()
    scan = stack.enter_context(closing(Scan().prepared(task)(0)))
    work = scan.program.executable.work
    assert work is not None
    source = stack.enter_context(closing(way.prepared(task)(0))) if cell.by_step else scan
    source.next(acting.weights)
    load = StepCosts.from_task(task, work).loads(cell.envs, cell.steps)[way.name]
    return source, acting.weights, replace(load, calls=source.counts.calls)
