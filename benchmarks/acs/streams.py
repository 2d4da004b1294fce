"""Costs and gains of a scheduling window (`timerl_nb/streams`): `python -m benchmarks streams`.

Limits are stated in CPU seconds, because other processes share the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from random import Random
from threading import Thread
from time import perf_counter, process_time, sleep
from typing import Any

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # read when NumPy loads: here in a separate process

import numpy as np

import timerl_nb as trl
from benchmarks.finding import Spread
from timerl_nb.streams import Kernel, Segment, Stream, graph
from timerl_nb.streams.dependence_analysis import FINDERS, finder
from timerl_nb.streams.scheduling_window import SchedulingWindow

PAGE = 4096


def kernels(
    count: int,
    segments: int,
    *,
    buffers: int = 256,
    cut: bool = False,
    run: Callable[[int, list[int]], Callable[[], object]] | None = None,
) -> list[Kernel]:
    """Return kernels with `segments` random segments each, on different buffers; a quarter of the segments is written."""
    r, made = Random(0), list[Kernel]()

    def segment(buffer: int) -> Segment:
        if not cut:
            return Segment(buffer, 0, PAGE)
        lo = r.randrange(0, PAGE - 512, 512)
        return Segment(buffer, lo, lo + 512 * r.randint(1, (PAGE - lo) // 512))

    writes = max(1, segments // 4)
    for k in range(count):
        chosen = r.sample(range(buffers), segments)
        parts = [segment(b) for b in chosen]
        work = None if run is None else run(k, chosen)
        made.append(Kernel(f"k{k}", tuple(parts[writes:]), tuple(parts[:writes]), work))
    return made


def least(
    measure: Callable[[], object], repeats: int, clock: Callable[[], float] = process_time
) -> float:
    """Return the duration of the fastest repetition, in seconds."""
    best = float("inf")
    for _ in range(repeats):
        begun = clock()
        measure()
        best = min(best, clock() - begun)
    return best


def drain(stream: list[Kernel], size: int, deps: str) -> None:
    """Insert and complete all kernels; complete the longest-ready kernel first."""
    window, waiting = SchedulingWindow(size, finder(deps)), iter(stream)
    ended = False
    while not ended or window.count:
        while not window.is_full and not ended:
            kernel = next(waiting, None)
            ended = kernel is None
            if kernel is not None:
                window.insert(kernel)
        if window.count:
            window.complete(window.take())


def costs(count: int = 2_000, repeats: int = 15) -> Iterator[str]:
    yield "| µs of CPU a kernel, insert and complete | segments | window 16 | 32 | 128 | 128 / 32 | limit at 32 |"
    yield "|---|---|---|---|---|---|---|"
    limits = {"buffers": 5.0, "ranges": 14.0}
    for cut in (False, True):
        for segments in (6, 10):
            made = kernels(count, segments, cut=cut)
            for name in FINDERS:
                if name == "printed" or (cut and name == "buffers"):
                    continue
                some = made if name != "pairwise" else made[: count // 8]
                us = [
                    least(partial(drain, some, size, name), repeats if name != "pairwise" else 3)
                    / len(some)
                    * 1e6
                    for size in (16, 32, 128)
                ]
                limit = f"{limits[name]:g}" if name in limits and segments == 6 else ""
                row = " | ".join(f"{one:.1f}" for one in us)
                what = f"{name}, {'parts' if cut else 'whole'}"
                yield f"| {what} | {segments} | {row} | {us[2] / us[1]:.1f} | {limit} |"


def empty(count: int = 5_000, repeats: int = 15) -> Iterator[str]:
    yield "| µs of CPU an empty kernel takes, 3 segments | 1 thread | 2 threads | limit |"
    yield "|---|---|---|---|"
    stream = Stream("empty", tuple(kernels(count, 3, buffers=24, run=lambda k, b: lambda: None)))
    built = graph(stream)
    ways: dict[str, dict[str, Any]] = {
        "window, no report": {"how": "window", "deps": "buffers", "record": 0},
        "window": {"how": "window"},
        "graph, built before": {"how": "graph", "built": built, "record": 0},
    }
    for name, options in ways.items():
        us = [
            least(partial(stream.run, streams=n, **options), repeats) / count * 1e6 for n in (1, 2)
        ]
        yield f"| {name} | {us[0]:.1f} | {us[1]:.1f} | {4 if name.startswith('window,') else ''} |"
    yield f"| graph, construction | {built.construction / count:.1f} | | |"


def called(count: int = 2_000, rounds: int = 9) -> Iterator[str]:
    """Time kernels that are called in a window, and the same calls by hand; the ways take turns."""
    yield "| median µs of CPU of a called kernel [range], 2 threads | window | executor, dependences by hand | plain calls |"
    yield "|---|---|---|---|"
    for name, n in (("empty", 0), ("products of 32 × 32", 32), ("products of 128 × 128", 128)):
        buffers = [np.full((n or 8, n or 8), 1 / (n or 8)) for _ in range(24)]
        function: Callable[[Any, Any], object] = _multiply if n else _nothing
        some = count if n < 100 else count // 10
        ways = {"window": _in_window, "executor": _by_hand, "calls": _plainly}
        found: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds + 1):
            for way, run in ways.items():
                begun = process_time()
                run(function, buffers, some)
                found[way].append((process_time() - begun) / some * 1e6)
        row = " | ".join(str(Spread.from_values(us[1:])) for us in found.values())
        yield f"| {name} | {row} |"


def _nothing(a: Any, b: Any) -> None: ...


def _multiply(a: Any, b: Any) -> None:
    np.matmul(a, a, out=b)


def _in_window(function: Callable[[Any, Any], object], buffers: list[Any], count: int) -> None:
    kernel = trl.kernel(reads=lambda a, b: (a, b), writes=lambda a, b: b)(function)
    with trl.streams.window(streams=2):
        for k in range(count):
            kernel(buffers[k % 24], buffers[(k + 1) % 24])


def _plainly(function: Callable[[Any, Any], object], buffers: list[Any], count: int) -> None:
    for k in range(count):
        function(buffers[k % 24], buffers[(k + 1) % 24])


def _by_hand(function: Callable[[Any, Any], object], buffers: list[Any], count: int) -> None:
    """Run the calls in an executor; each waits for the last writer and the readers since, by array."""
    wrote: dict[int, Future[None]] = {}
    read: dict[int, list[Future[None]]] = {}

    def run(upstream: set[Future[None]], a: Any, b: Any) -> None:
        for one in upstream:
            one.result()
        function(a, b)

    with ThreadPoolExecutor(2) as pool:
        for k in range(count):
            a, b = buffers[k % 24], buffers[(k + 1) % 24]
            upstream = {wrote[id(x)] for x in (a, b) if id(x) in wrote}
            upstream.update(read.get(id(b), ()))
            upstream = {one for one in upstream if not one.done()}
            mine = pool.submit(run, upstream, a, b)
            read.setdefault(id(a), []).append(mine)
            wrote[id(b)], read[id(b)] = mine, []


def waiting(count: int = 150) -> Iterator[str]:
    """Compare real runs of sleeping kernels with the makespan of the same policy."""
    yield "| kernels that wait 2 to 8 ms | streams | window | serial / run | by the model | run / model |"
    yield "|---|---|---|---|---|---|"
    r = Random(5)
    seconds = [r.uniform(0.002, 0.008) for _ in range(count)]
    made = kernels(count, 3, buffers=24, run=lambda k, b: partial(sleep, seconds[k]))
    stream = Stream("naps", tuple(made))
    serial = min(stream.run("serial").us for _ in range(2)) * 1e-6
    over = max(0.0, (serial - sum(seconds)) / count)  # the operating system oversleeps
    for streams in (2, 4, 8):
        for size in (16, 32):
            took = min(stream.run("window", streams=streams, size=size).us for _ in range(3)) * 1e-6
            model = makespan(made, [s + over for s in seconds], streams, size)
            gain = f"{serial / took:.2f} | {serial / model:.2f}"
            yield f"| {count} kernels | {streams} | {size} | {gain} | {took / model:.3f} |"


def makespan(made: list[Kernel], seconds: list[float], streams: int, size: int) -> float:
    """Return the makespan in seconds of a window without overhead."""
    window, now, entered = SchedulingWindow(size, finder("auto")), 0.0, 0
    flying: list[tuple[float, int]] = []
    held = [0] * size
    while entered < len(made) or window.count:
        while entered < len(made) and not window.is_full:
            held[window.insert(made[entered])] = entered
            entered += 1
        while window.ready and len(flying) < streams:
            slot = window.take()
            heappush(flying, (now + seconds[held[slot]], slot))
        now, slot = heappop(flying)
        window.complete(slot)
    return now


def gains(rounds: int = 40) -> Iterator[str]:
    """Run NumPy kernels on two threads, in short runs interleaved with two independent halves."""
    yield "| NumPy on two threads | µs a kernel | width | halves | window | graph, built | window / halves | window / graph | rounds that count |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for n in (96, 192, 288):
        rng = np.random.default_rng(0)
        data = [rng.random((n, n), np.float32) for _ in range(24)]

        def run(k: int, chosen: list[int], data: Any = data, n: int = n) -> Callable[[], object]:
            out, left, right = (data[b] for b in chosen)
            kept = np.empty((n, n), np.float32)

            def multiply() -> None:
                np.matmul(left, right, out=kept)
                np.tanh(kept, out=out)

            return multiply

        stream = Stream("products", tuple(kernels(100, 3, buffers=24, run=run)))
        built = graph(stream)
        found: list[tuple[float, float, float]] = []
        per = 0.0
        for _ in range(rounds):
            serial = stream.run("serial").us
            per = serial / len(stream)
            halves = _halves(stream)
            windowed = stream.run("window", record=0).us
            graphed = stream.run("graph", built=built, record=0).us
            if serial / halves >= 1.6:
                found.append((serial / halves, serial / windowed, serial / graphed))
        if not found:
            yield f"| {n} × {n} | {per:.0f} | {stream.width:.1f} | | | | | | 0 of {rounds} |"
            continue
        halved, windowed, graphed = (float(np.median(part)) for part in zip(*found, strict=True))
        ratios = [(w / h, w / g) for h, w, g in found]
        beside = [float(np.median(part)) for part in zip(*ratios, strict=True)]
        gained = (
            f"{halved:.2f} | {windowed:.2f} | {graphed:.2f} | {beside[0]:.2f} | {beside[1]:.2f}"
        )
        yield f"| {n} × {n} | {per:.0f} | {stream.width:.1f} | {gained} | {len(found)} of {rounds} |"


def _halves(stream: Stream) -> float:
    """Return the time in µs of two threads that each run every other kernel without dependences."""

    def half(first: int) -> None:
        for kernel in stream.kernels[first::2]:
            assert kernel.run is not None
            kernel.run()

    threads = [Thread(target=half, args=(k,)) for k in (0, 1)]
    begun = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (perf_counter() - begun) * 1e6


def simulated(count: int = 4_000) -> Iterator[str]:
    yield "| kernels a second in the simulator | acs-sw | acs-hw | limit |"
    yield "|---|---|---|---|"
    stream = Stream("simulated", tuple(kernels(count, 6)))
    rates = [count / least(lambda how=how: stream.simulate(how), 3) for how in ("acs-sw", "acs-hw")]
    yield f"| {count:,} kernels of 6 segments | {rates[0]:,.0f} | {rates[1]:,.0f} | 5,000 |"


def imported(repeats: int = 5) -> Iterator[str]:
    """List the modules of streams loaded by `import timerl_nb`; they should load on first use."""
    code = "import sys, timerl_nb; print(sum('timerl_nb.streams' in m for m in sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    yield f"`import timerl_nb` loads {said.stdout.strip()} modules of `timerl_nb.streams`."


def main(*words: str) -> None:
    """Print all tables, or the named ones: costs, empty, called, waiting, gains, simulated, imported."""
    tables = {
        one.__name__: one for one in (costs, empty, called, waiting, gains, simulated, imported)
    }
    for name in words or tables:
        print("\n".join(tables[name]()) + "\n", flush=True)
