"""Figure 9: PPO against episode length, parameters per layer, hidden layers and environments.

The text of the paper states the default configuration and some values of the axes; the other values are powers of two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from benchmarks.paper import worker
from benchmarks.paper.model import REFERENCE, actor_learner_bytes, plan
from benchmarks.paper.rows import Row, spread_of
from benchmarks.paper.settings import Settings, fewer_envs, free_memory, sizes
from benchmarks.works import Work

DEFAULT: Final = Work("ppo", 512, 250, layers=2, width=64)
AXES: Final[Mapping[str, Sequence[int]]] = {
    "steps": (125, 250, 500, 1000),
    "width": (32, 64, 128, 256, 512),
    "layers": (1, 2, 4, 8, 16),
    "envs": (128, 256, 512, 1024, 2048),
}
SYSTEMS: Final = (*worker.OURS, *worker.JITTED, *worker.PYTORCH)
_MOST: Final = 0.7  # of the free memory, for one process


def cells() -> Iterator[tuple[str, int, Work]]:
    """Yield axis, value and work of each cell; the default is a cell of each axis."""
    for axis, values in AXES.items():
        for value in values:
            yield axis, value, replace(DEFAULT, **{axis: value})  # type: ignore[arg-type]


def run(settings: Settings) -> Iterator[Row]:
    """Yield the predictions at the paper's sizes, and the measurements at the settings' scale."""
    for axis, value, work in cells():
        yield from _predicted(axis, value, work)
    if settings.predict:
        return
    measured: dict[Work, list[Row]] = {}
    for axis, value, work in cells():
        small = fewer_envs(work, settings.scale_of("fig9"))
        if small not in measured:
            measured[small] = [
                *_predicted(axis, value, small),
                *_measured(axis, value, small, settings),
            ]
        yield from (replace(row, axis=axis, x=value) for row in measured[small])


def _predicted(axis: str, value: int, work: Work) -> Iterator[Row]:
    for system, options in (("ours", {}), ("ours, interpreted", {"executor": "interpret"})):
        _, found = plan(work, **options)
        at = {"source": "predicted", "condition": sizes(work)}
        yield Row("fig9", axis, value, system, "iteration time", "s", found.seconds, **at)
        yield Row("fig9", axis, value, system, "peak memory", "bytes", found.device, **at)
        yield Row("fig9", axis, value, system, "launches", "count", found.launches, **at)
        blocks = [m for m in found.means if "block" in m or "recomputed" in m]
        yield Row("fig9", axis, value, system, "memory measures", "count", len(blocks), **at)
    need = actor_learner_bytes(work)
    yield Row("fig9", axis, value, REFERENCE, "peak memory", "bytes", need, **at)


def _measured(axis: str, value: int, work: Work, settings: Settings) -> Iterator[Row]:
    """Run all systems on one work, an iteration each in turn."""
    if settings.device == "cpu" and actor_learner_bytes(work) > _MOST * free_memory():
        print(f"{axis} {value}: predicted only, for lack of memory", file=sys.stderr)
        return
    running: dict[str, worker.Process] = {}
    for system in SYSTEMS:
        if why := worker.missing(system):
            print(f"{system}: {why}", file=sys.stderr)
            continue
        try:
            running[system] = worker.Process(system, work, settings.rounds + 2, settings.device)
        except RuntimeError as error:
            print(f"{system}, {axis} {value}: {error}", file=sys.stderr)
    found: dict[str, list[tuple[float, float]]] = {system: [] for system in running}
    for _ in range(settings.rounds + 1):
        for system, process in tuple(running.items()):
            try:
                found[system].append(process.advance())
            except (RuntimeError, BrokenPipeError) as error:  # for example for lack of memory
                print(f"{system}, {axis} {value}: {error}", file=sys.stderr)
                del running[system]
    for system, process in running.items():
        times, busy = zip(*found[system][1:], strict=True)
        at = {"source": "measured", "condition": sizes(work), "machine": settings.machine}
        for quantity, unit, values in (
            ("iteration time", "s", times),
            ("utilisation", "ratio", busy),
            ("first step", "s", (process.first,)),
        ):
            yield Row("fig9", axis, value, system, quantity, unit, **spread_of(values), **at)
        for quantity, size in _bytes(process.close()).items():
            yield Row("fig9", axis, value, system, quantity, "bytes", size, **at)


def _bytes(found: Mapping[str, int | None]) -> Mapping[str, int]:
    """Return the measured bytes by quantity: those of the device on a GPU, else resident ones above the start."""
    peak = found["device"] if found["device"] is not None else found["resident"]
    assert peak is not None
    stated = [found["temp"], found["arguments"]]
    known = {"XLA: temporaries and arguments": sum(x for x in stated if x is not None)}
    return {"peak memory": peak, **(known if None not in stated else {})}
