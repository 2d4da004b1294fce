"""Figure 11: REINFORCE with Monte Carlo and n-step returns on observations of 3x256x256."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from threading import Event, Thread
from time import perf_counter, process_time
from typing import Any, Final

import numpy as np

import timerl_nb as trl
from benchmarks.paper.model import plan, scaled_budget, utilisation
from benchmarks.paper.rows import Row, spread_of
from benchmarks.paper.settings import Settings, fewer_envs, sizes
from benchmarks.works import Work
from timerl_nb.base.array_conversion import Array
from timerl_nb.base.machine_model import cores
from timerl_nb.driver.program import Program

PAPER: Final = Work("reinforce", 256, 1000, obs_shape=(3, 256, 256))
WINDOWS: Final = (8, 64, 128, None)
BUDGET: Final = 48 * 2**30
PARTS: Final = 50


def name(window: int | None) -> str:
    return "Monte Carlo" if window is None else f"{window}-step"


def run(settings: Settings) -> Iterator[Row]:
    """Yield curves and figures predicted at the paper's size, and measured on a smaller program."""
    for window in WINDOWS:
        yield from _planned(window, replace(PAPER, window=window))
    if not settings.predict:
        # a quarter of the steps, so that all windows are shorter than an episode
        scale = settings.scale_of("fig11")
        few = replace(fewer_envs(PAPER, 4 * scale), steps=PAPER.steps // 4)
        small = few if few.envs < PAPER.envs else fewer_envs(PAPER, scale)
        yield from _measured(small, settings)


def _planned(window: int | None, work: Work) -> Iterator[Row]:
    at: dict[str, Any] = {"source": "predicted", "condition": f"{sizes(work)}; budget=48 GiB"}
    program, found = plan(work, device_memory=BUDGET)
    x = work.steps if window is None else window

    def row(quantity: str, unit: str, value: float) -> Row:
        return Row("fig11b", "n", x, name(window), quantity, unit, value, **at)

    yield row("iteration time", "s", found.seconds)
    yield row("peak memory", "bytes", found.device)
    yield row("host memory", "bytes", found.host)
    yield row("swapped tensors", "count", len(program.memory.swaps.tensors))
    yield row("acting steps alongside learning", "ratio", overlap(program))
    times, busy, device, host = utilisation(program, PARTS)
    curves = ("utilisation", "ratio", busy), ("device memory", "bytes", device)
    for quantity, unit, values in (*curves, ("host memory", "bytes", host)):
        for time, value in zip(times, values, strict=True):
            yield Row("fig11a", "time", time, name(window), quantity, unit, float(value), **at)


def overlap(program: Program) -> float:
    """Return the fraction of acting steps that the schedule places after the beginning of learning.

    Learning begins with its first statement that has a point per step or updates parameters. Work on parameters alone,
    such as the exponential of a standard deviation, does not count.
    """
    points = program.schedule.points(i=1)
    acting = [p.time for p in points if p.region[:1] == ("acting",) and len(p.time) > 1]
    begins = min(
        int(p.time.min())
        for p in points
        if p.region[:1] == ("learning",) and (len(p.time) > 1 or "update" in p.region)
    )
    return float((np.concatenate(acting) > begins).mean())


def _measured(small: Work, settings: Settings) -> Iterator[Row]:
    """Measure all windows in turn in the interpreter, with a budget in proportion."""
    budget = scaled_budget(PAPER, BUDGET, small)
    programs: dict[int | None, Program] = {}
    for window in (w for w in WINDOWS if w is None or w < small.steps):
        work = replace(small, window=window)
        try:
            programs[window], _ = plan(work, device_memory=budget, executor="interpret")
        except trl.errors.TimeRLError as error:
            print(f"{name(window)}: {error}", file=sys.stderr)
    condition = f"{sizes(small)}; budget={budget} bytes"
    at: dict[str, Any] = {"source": "measured", "condition": condition, "machine": settings.machine}
    seconds: dict[int | None, list[float]] = {window: [] for window in programs}
    for turn in range(settings.rounds + 1):
        for window, program in programs.items():
            ran, curves = _observed(program)
            if turn:
                seconds[window].append(curves[0][-1])
            if turn < settings.rounds:
                continue
            x, system = window or small.steps, name(window)
            times = seconds[window]
            yield Row("fig11b", "n", x, system, "iteration time", "s", **spread_of(times), **at)
            for quantity, value in (
                ("live bytes", ran.memory.peak),
                ("host memory", ran.memory.host_peak),
            ):
                yield Row("fig11b", "n", x, system, quantity, "bytes", value, **at)
            given = {**at, "source": "predicted", "machine": ""}
            yield Row("fig11b", "n", x, system, "live bytes", "bytes", program.memory.peak, **given)
            for quantity, unit, values in zip(
                ("utilisation", "device memory", "host memory"),
                ("ratio", "bytes", "bytes"),
                curves[1:],
                strict=True,
            ):
                for time, value in zip(curves[0], values, strict=True):
                    yield Row("fig11a", "time", time, system, quantity, unit, float(value), **at)


def _observed(program: Program) -> tuple[Any, tuple[Array, Array, Array, Array]]:
    """Run a program; return its result and curves over its second iteration.

    Utilisation is the process's core time over the machine's, sampled every 5 ms. The ledger of the run states the bytes
    by instruction; instructions are placed in time by the fraction of the run that they complete.
    """
    samples: list[tuple[float, float]] = []
    is_over = Event()

    def sample() -> None:
        while not is_over.wait(0.005):
            samples.append((perf_counter(), process_time()))

    with program.start(paused=True) as running:
        running.step(1)
        running.wait()
        thread = Thread(target=sample)
        thread.start()
        began = perf_counter(), process_time()
        running.step(1)
        running.wait()
        seconds = perf_counter() - began[0]
        is_over.set()
        thread.join()
        running.resume()
        running.wait()
        ran = running.result()
    return ran, _curves(seconds, began, samples, ran)


def _curves(
    seconds: float, began: tuple[float, float], samples: list[tuple[float, float]], ran: Any
) -> tuple[Array, Array, Array, Array]:
    clock = np.array([began, *samples])
    ends = np.linspace(0, seconds, PARTS + 1)
    used = np.interp(ends, clock[:, 0] - began[0], clock[:, 1] - began[1])
    busy = np.diff(used) / (np.diff(ends) * cores())
    live, host = (
        _thinned(np.asarray(x)) for x in (ran.memory.timeline(), ran.memory.host_timeline())
    )
    return ends[1:], np.minimum(busy, 1.0), live, host


def _thinned(values: Array) -> Array:
    """Return the greatest value of each of `PARTS` parts of the second of three iterations."""
    third = len(values) // 3
    return np.array(
        [part.max(initial=0) for part in np.array_split(values[third : 2 * third], PARTS)]
    )
