"""Predictions: memory and time of our programs, and the memory of actor-learner systems by formula."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from statistics import geometric_mean
from time import perf_counter
from typing import Final

import numpy as np

import timerl_nb as trl
from benchmarks.works import Work
from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import DataflowAttrs
from timerl_nb.compiler.memory.budget.candidate_cost import (
    computing_seconds,
    graph_seconds,
    point_seconds,
)
from timerl_nb.compiler.memory.budget.cost_forecast import forecast
from timerl_nb.driver.program import Program
from timerl_nb.driver.search.machine_constants import machine_here

REFERENCE: Final = "actor-learner, by formula"
ITERATIONS: Final = 3  # planned ones; the second is in the steady state
BYTES: Final = 4  # of a number
ADAM: Final = 4  # arrays of the size of the parameters: themselves, gradients, two moments
UPDATE: Final = 2 * ADAM + 1  # during an update: the same before and after, and a temporary array


@dataclass(frozen=True)
class Prediction:
    """Predicted figures of a program, for one iteration.

    Attributes:
        seconds: By the machine model.
        device: Bytes of the device, with buffers and temporaries.
        host: Bytes of values on the host.
        launches: Executed points of statements.
        planning: Measured seconds of the compilation without XLA's.
        means: Measures against memory use, such as `in blocks of 20 along t`.
    """

    seconds: float
    device: int
    host: int
    launches: float
    planning: float
    means: tuple[str, ...]


def plan(work: Work, **options: object) -> tuple[Program, Prediction]:
    """Plan a work without running it.

    Raises:
        trl.errors.MemoryBudgetError: No plan fits the budget among the options.
    """
    began = perf_counter()
    program = work.compile(ITERATIONS, trl.Options(**options))  # type: ignore[arg-type]
    memory = program.memory
    planning = perf_counter() - began
    machine = machine_here()
    seconds = graph_seconds(program.fused, memory.bounds, machine)
    cost = forecast(memory, seconds, machine)
    each = cost.seconds / ITERATIONS, cost.launches / ITERATIONS
    host = int(np.max(memory.timeline().host, initial=0))
    means = tuple(memory.saved_by)
    return program, Prediction(each[0], memory.needed, host, each[1], planning, means)


def parameters(work: Work) -> int:
    """Return the number of parameters of a work's networks."""
    sizes = [prod(work.obs_shape), *work.hidden]
    layers = sum((a + 1) * b for a, b in zip(sizes, sizes[1:], strict=False))
    heads = 2 if work.algorithm == "ppo" else 1
    return layers + heads * (work.width + 1) + 1


def actor_learner_bytes(work: Work) -> int:
    """Return the memory of an actor-learner system: the batch, its activations and their gradient.

    The learner holds all observations, all hidden layers, and the gradient of one layer at a time (paper, §2.3).
    """
    floats = prod(work.obs_shape) + (len(work.hidden) + 1) * work.width
    return BYTES * (work.points * floats + ADAM * parameters(work))


def scaled_budget(work: Work, budget: int, small: Work) -> int:
    """Return the budget of a smaller work: in proportion to its steps, apart from the parameters' share."""
    fixed = BYTES * UPDATE * parameters(work)
    return fixed + (budget - fixed) * small.points // work.points


def utilisation(program: Program, parts: int = 50) -> tuple[Array, Array, Array, Array]:
    """Return curves over the second iteration, by the machine model.

    Returns:
        The time of each part in seconds from the start, the fraction of its time in arithmetic, and the greatest live
        bytes on the device and on the host.
    """
    memory, machine = program.memory, machine_here()
    timeline, ops, sizes = memory.timeline(), memory.statements.ops, memory.sizes
    first, last = timeline.ends(2)[1:3]
    cost, work = np.zeros(last - first), np.zeros(last - first)
    for name, op in ops.items():
        at = memory.clock.ranks[name] - first
        at = at[(at >= 0) & (at < last - first)]
        cost[at] = point_seconds(sizes, op, machine)
        if isinstance(op.attrs, DataflowAttrs):
            work[at] = np.minimum(computing_seconds(sizes, op, machine), cost[at])
    ends = np.cumsum(cost)
    part = np.minimum((ends / ends[-1] * parts).astype(int), parts - 1)
    total = np.bincount(part, cost, parts)
    busy = np.divide(np.bincount(part, work, parts), total, where=total > 0, out=np.zeros(parts))
    live, host = timeline.bytes_between(first, last), timeline.host[first:last]
    peaks = [np.array([_most(x[part == k]) for k in range(parts)]) for x in (live, host)]
    return (np.arange(parts) + 1) / parts * ends[-1], busy, peaks[0], peaks[1]


def _most(values: Array) -> float:
    return float(values.max()) if len(values) else float("nan")


def error(predicted: list[float], measured: list[float]) -> tuple[float, float, float]:
    """Return the geometric mean, least and greatest ratio of predictions to measurements."""
    ratios = [p / m for p, m in zip(predicted, measured, strict=True)]
    return geometric_mean(ratios), min(ratios), max(ratios)
