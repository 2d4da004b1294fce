"""Tables beside the figures: compile time by operations and layers, each pass off by itself, and launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

import timerl_nb as trl
from benchmarks.paper.fig9 import DEFAULT
from benchmarks.paper.model import ITERATIONS, plan
from benchmarks.paper.rows import Row, spread_of
from benchmarks.paper.settings import Settings, fewer_envs, sizes
from timerl_nb.driver.program import Program

LAYERS: Final = (1, 2, 4, 8, 16, 32)
ALL: Final = "all passes"
OFF: Final[Mapping[str, Mapping[str, Any]]] = {
    ALL: {},
    "no simplification": {"simplify": False},
    "no vectorisation": {"vectorize": False},
    "no lifting": {"lift": False},
    "no accumulation": {"accumulate": False},
    "no contractions": {"contract": False},
    "no blocks": {"incrementalize": False},
    "no recomputation": {"rematerialize": False},
    "no fusion": {"fuse": False},
    "no donation": {"donate": False},
    "a store per point": {"stores": "point"},
}
_TIMES: Final = 3


def run(settings: Settings) -> Iterator[Row]:
    """Yield the tables; compile times are measured even without runs."""
    yield from _compile_times(settings)
    yield from _passes(settings)


def _compile_times(settings: Settings) -> Iterator[Row]:
    """Compile programs with more and more layers, in turn."""
    seconds: dict[int, list[float]] = {layers: [] for layers in LAYERS}
    operations: dict[int, int] = {}
    for turn in range(_TIMES + 1):
        for layers in LAYERS:
            began = perf_counter()
            program = replace(DEFAULT, layers=layers).compile(ITERATIONS)
            if turn:
                seconds[layers].append(perf_counter() - began)
            operations[layers] = len(program.pdg)
    at: dict[str, Any] = {"condition": sizes(DEFAULT), "machine": settings.machine}
    for layers, times in seconds.items():
        given = "tables", "layers", layers, "ours"
        yield Row(*given, "compile time", "s", **spread_of(times), source="measured", **at)
        yield Row(*given, "operations", "count", operations[layers], "measured", **at)


def _passes(settings: Settings) -> Iterator[Row]:
    """Run a small program in the interpreter with each pass off by itself, in turn."""
    work = fewer_envs(replace(DEFAULT, steps=50), settings.scale_of("tables"))
    programs: dict[str, Program] = {}
    for x, (system, options) in enumerate(OFF.items()):
        programs[system], found = plan(work, executor="interpret", **options)
        kernels = len(programs[system].memory.statements.ops)
        at: dict[str, Any] = {"condition": sizes(work)}
        given = "tables", "pass off", x, system
        yield Row(*given, "kernels", "count", kernels, "predicted", **at)
        yield Row(*given, "launches", "count", found.launches, "predicted", **at)
        yield Row(*given, "live bytes", "bytes", programs[system].memory.peak, "predicted", **at)
    if settings.predict:
        return
    times: dict[str, list[float]] = {system: [] for system in programs}
    peaks: dict[str, int] = {}
    for turn in range(settings.rounds + 1):
        for system, program in programs.items():
            seconds, peaks[system] = _iteration(program)
            if turn:
                times[system].append(seconds)
    at = {"condition": sizes(work), "machine": settings.machine}
    for x, (system, found) in enumerate(times.items()):
        given = "tables", "pass off", x, system
        yield Row(*given, "iteration time", "s", **spread_of(found), source="measured", **at)
        yield Row(*given, "live bytes", "bytes", peaks[system], "measured", **at)


def _iteration(program: trl.Program) -> tuple[float, int]:
    """Return the seconds of a program's second iteration, and the peak of its live bytes."""
    with program.start(paused=True) as running:
        running.step(1)
        running.wait()
        began = perf_counter()
        running.step(1)
        running.wait()
        seconds = perf_counter() - began
        running.resume()
        running.wait()
        return seconds, running.result().memory.peak
