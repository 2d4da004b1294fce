"""Figure 10: PPO with observations from 3x4x4 to 3x256x256, in 256 environments for 1,000 steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import timerl_nb as trl
from benchmarks.paper import worker
from benchmarks.paper.model import REFERENCE, actor_learner_bytes, plan, scaled_budget, utilisation
from benchmarks.paper.rows import Row
from benchmarks.paper.settings import Settings, sizes, smaller
from benchmarks.works import Work

PAPER: Final = Work("ppo", 256, 1000)
WIDTHS: Final = (4, 8, 16, 32, 64, 128, 256)
GIB: Final = 2**30
BUDGETS: Final = (48, 40)  # GiB: the paper's GPU, and a smaller one
_CURVES: Final = (64, 256)  # widths with curves over time


def works() -> Iterator[tuple[int, Work]]:
    for width in WIDTHS:
        yield width, replace(PAPER, obs_shape=(3, width, width))


def run(settings: Settings) -> Iterator[Row]:
    """Yield plans at the paper's sizes, and measurements of smaller programs with a budget in proportion."""
    for width, work in works():
        at = {"source": "predicted", "condition": sizes(work)}
        need = actor_learner_bytes(work)
        yield Row("fig10", "width", width, REFERENCE, "peak memory", "bytes", need, **at)
        for budget in BUDGETS:
            yield from _planned(width, work, budget, settings)
    if settings.predict:
        return
    for width, work in works():
        small = smaller(work, settings.scale_of("fig10"))
        yield from _measured(width, work, small, settings)


def _planned(width: int, work: Work, budget: int, settings: Settings) -> Iterator[Row]:
    condition = f"{sizes(work)}; budget={budget} GiB"
    try:
        program, found = plan(work, device_memory=budget * GIB)
    except trl.errors.TimeRLError as error:
        print(f"width {width}, {budget} GiB: {error}", file=sys.stderr)
        return
    at: dict[str, Any] = {"source": "predicted", "condition": condition}

    def row(quantity: str, unit: str, value: float, **more: Any) -> Row:
        return Row("fig10", "width", width, "ours", quantity, unit, value, **{**at, **more})

    yield row("peak memory", "bytes", found.device)
    yield row("host memory", "bytes", found.host)
    yield row("iteration time", "s", found.seconds)
    yield row("swapped tensors", "count", len(program.memory.swaps.tensors))
    yield row("block", "steps", _block(program))
    yield row("planning", "s", found.planning, source="measured", machine=settings.machine)
    if width in _CURVES and budget == BUDGETS[0]:
        times, busy, device, host = utilisation(program)
        curves = ("utilisation", "ratio", busy), ("device memory", "bytes", device)
        for quantity, unit, values in (*curves, ("host memory over time", "bytes", host)):
            for time, value in zip(times, values, strict=True):
                system = f"ours, 3x{width}x{width}"
                yield Row("fig10", "time", time, system, quantity, unit, float(value), **at)


def _block(program: trl.Program) -> int:
    """Return the steps that learning processes together; 0 if it has one batch."""
    measures = program.memory.saved_by
    if "vectorize over t: none" in measures:
        return 1
    found = [measure for measure in measures if measure.startswith("in blocks of")]
    return int(found[0].split()[3]) if found else 0


def _measured(width: int, work: Work, small: Work, settings: Settings) -> Iterator[Row]:
    """Measure a smaller program in the interpreter, and hand-written JAX on the same work."""
    budget = scaled_budget(work, BUDGETS[0] * GIB, small)
    at: dict[str, Any] = {"condition": f"{sizes(small)}; budget={budget} bytes"}
    here: dict[str, Any] = {**at, "source": "measured", "machine": settings.machine}
    system = "ours, interpreted"
    try:
        program, found = plan(small, device_memory=budget, executor="interpret")
    except trl.errors.TimeRLError as error:
        print(f"width {width}, {budget} bytes: {error}", file=sys.stderr)
        return
    ran = program.execute(progress=False)
    peaks = (
        ("live bytes", program.memory.peak, ran.memory.peak),
        ("host memory", found.host, ran.memory.host_peak),
    )
    for quantity, predicted, measured in peaks:
        given = "fig10", "width", width, system, quantity, "bytes"
        yield Row(*given, predicted, **at, source="predicted")
        yield Row(*given, measured, **here)
    process = worker.Process("jitted", small, 3, settings.device)
    process.advance()
    stated = process.close()
    peak = stated["temp"] if stated["device"] is None else stated["device"]
    need = actor_learner_bytes(small)
    # XLA states temporaries and arguments apart; parameters and moments are arguments.
    total = (peak or 0) + (stated["arguments"] or 0)
    given = "fig10", "width", width, "jitted", "peak memory", "bytes"
    yield Row(*given, total, **here)
    yield Row(
        "fig10", "width", width, REFERENCE, "peak memory", "bytes", need, **at, source="predicted"
    )
