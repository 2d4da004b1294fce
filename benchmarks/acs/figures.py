"""Simulated figures of the ACS paper, as Markdown tables over a sweep of the time per operation of a thread."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

from benchmarks.acs import paper, picture
from benchmarks.acs.kinds import DYNAMIC, LACKS, SIMULATIONS, STATIC
from timerl_nb.streams.dependence_analysis import FINDERS
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import Segment
from timerl_nb.streams.scheduling_window import SchedulingWindow
from timerl_nb.streams.simulator.gpu_constants import ACCEL_SIM, RTX3060, RTX3070, RTX4090, Gpu
from timerl_nb.streams.simulator.simulated_comparison import Comparison, compare
from timerl_nb.streams.simulator.simulated_run import Simulated
from timerl_nb.streams.strategies import SIMULATED
from timerl_nb.streams.workloads import workload

SWEEP = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # µs per operation of a thread
SPARSE = SWEEP[1::2]
# Values at which a block takes some µs. Networks run hundreds of operations per thread, environment
# steps a few.
NETWORK, STEP = 0.03, 1.0
ONE_IMAGE = 0
TABLES = {
    "RTX3060": "paper, Table IV",
    "RTX4090": "NVIDIA, Ada white paper; the paper has no table of it",
}


@cache
def stream(name: str) -> Stream:
    return workload(name, ONE_IMAGE)


@cache
def compared(name: str, operation: float) -> Comparison:
    return compare(stream(name), gpu=replace(RTX3070, operation=operation))


@cache
def simulated(
    name: str, how: str, operation: float, gpu: Gpu = RTX3070, **options: int
) -> Simulated:
    found: Simulated = stream(name).simulate(how, gpu=replace(gpu, operation=operation), **options)
    return replace(found, launches=(), history=())  # hundreds of them are retained


def mean(values: Iterable[float]) -> float:
    """Geometric."""
    return math.exp(statistics.mean(math.log(v) for v in values))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_shown(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _shown(cell: Any) -> str:
    if cell is None:
        return "–"
    return (
        f"{cell:.2f}"
        if isinstance(cell, float)
        else f"{cell:,}"
        if isinstance(cell, int)
        else str(cell)
    )


def block(name: str, operation: float) -> float:
    """Return the mean duration of a kernel's block, in µs."""
    gpu = replace(RTX3070, operation=operation)
    return statistics.mean(gpu.microseconds(k) for k in stream(name).kernels)


def sources(gpu: Gpu = RTX3070) -> Iterator[tuple[str, Any, str]]:
    """List each constant with its value and its source, or 'estimate'."""
    for one in fields(Gpu):
        if one.metadata:
            value = getattr(gpu, one.name)
            differs = value != one.default and one.name != "queued"
            said = TABLES.get(gpu.name, "given") if differs else one.metadata["source"]
            yield one.name, value, said


def constants() -> str:
    return table(
        ["constant", "value", "source"], ((f"`{n}`", round(v, 2), s) for n, v, s in sources())
    )


def workloads() -> str:
    """Figures 3 and 4: number of kernels of a batch, and their mean size."""
    rows = []
    for name, lacks in LACKS.items():
        kernels = stream(name).kernels
        blocks = [k.blocks for k in kernels]
        rows.append(
            (
                name,
                len(kernels),
                statistics.mean(blocks),
                int(statistics.median(blocks)),
                max(blocks),
                stream(name).width,
                statistics.mean(len(k.reads) + len(k.writes) for k in kernels),
                lacks,
            )
        )
    head = "kernels", "blocks, mean", "median", "most", "width", "segments", "unlike the paper's"
    return table(["stream", *head], rows)


def sizes(name: str) -> str:
    """Figures 5 and 8: histogram of blocks per kernel."""
    bounds = (1, 4, 16, 64, 200, 1000, 10**9)
    blocks = [k.blocks for k in stream(name).kernels]
    rows, before = [], 0
    for bound in bounds:
        count = sum(before < b <= bound for b in blocks)
        share = count / len(blocks)
        label = f"{before + 1} to {bound}" if bound < 10**9 else f"more than {before}"
        rows.append((label if bound > 1 else "1", count, "█" * round(40 * share) + f" {share:.0%}"))
        before = bound
    return table([f"blocks of a kernel of {name}", "kernels", ""], rows)


def occupancy(names: Sequence[str], paper_says: float, of: str) -> str:
    """Figures 2 and 7: occupancy of one queue, on both GPUs."""
    rows: list[Sequence[Any]] = []
    for operation in SWEEP:
        for gpu in (RTX3060, RTX4090):
            found = [simulated(name, "serial", operation, gpu).occupancy for name in names]
            rows.append((operation, gpu.name, *found, statistics.mean(found)))
    rows.append(("paper", "both", *(None for _ in names), f"{paper_says:.2f} ({of})"))
    return table(["µs an operation", "GPU", *names, "mean"], [_precise(row) for row in rows])


def _precise(row: Sequence[Any]) -> Sequence[Any]:
    """Format a row without rounding its first column."""
    return (f"{row[0]:g}" if isinstance(row[0], float) else row[0], *row[1:])


def construction() -> str:
    """Figure 9: share of graph construction in the time of a graph."""
    rows: list[Sequence[Any]] = []
    for operation in SWEEP:
        found = [simulated(name, "graph", operation) for name in SIMULATIONS]
        shares = [one.construction / one.total for one in found]
        rows.append((operation, *(f"{s:.0%}" for s in shares), f"{statistics.mean(shares):.0%}"))
    rows.append(("paper", *(None for _ in SIMULATIONS), f"{paper.CONSTRUCTION:.0%}"))
    return table(["µs an operation", *SIMULATIONS, "mean"], [_precise(row) for row in rows])


def speedups(names: Sequence[str], says: Mapping[str, tuple[float | None, float | None]]) -> str:
    """Figures 22, 25 and 27: mean and maximum speedup over both baselines."""
    ways = ("acs-sw", "events", "acs-hw", "graph", "graph, built before")
    rows: list[Sequence[Any]] = []
    for baseline in ("device", "accel_sim"):
        for operation in SWEEP:
            row: list[Any] = [
                operation,
                baseline.replace("_", "-"),
                mean(block(n, operation) for n in names),
            ]
            for how in ways:
                found = [getattr(compared(n, operation)[how], baseline) for n in names]
                row.append(f"{mean(found):.2f} ({max(found):.2f})")
            rows.append(row)
    said = []
    for how in ways:
        middle, most = says.get(how, (None, None))
        said.append("–" if middle is most is None else f"{_shown(middle)} ({_shown(most)})")
    rows.append(("paper", "", None, *said))
    head = ["µs an operation", "baseline", "µs a block", *ways]
    return table(head, [_precise(row) for row in rows])


def sweeps() -> str:
    """Plot figures 22, 25 and 27: speedup over one queue of a device."""
    kinds = (
        ("simulations", SIMULATIONS, paper.SIMULATIONS),
        ("dynamic networks", DYNAMIC, paper.DYNAMIC),
        ("static networks", STATIC, paper.STATIC),
    )
    panels = {}
    for title, names, says in kinds:
        lines = {
            how: [
                (
                    mean(block(n, operation) for n in names),
                    mean(compared(n, operation)[how].device for n in names),
                )
                for operation in SWEEP
            ]
            for how in picture.COLOURS
        }
        panels[title] = lines, {how: middle for how, (middle, _) in says.items()}
    picture.PATH.write_text(picture.draw(panels))
    return f"![Speedups over the work per operation](../pictures/{picture.PATH.name})"


def each(names: Sequence[str], operation: float) -> str:
    """Return one row per workload at one point of the sweep: speedup over the device's queue."""
    ways = ("acs-sw", "events", "acs-hw", "graph", "graph, built before")
    rows = [(name, *(compared(name, operation)[how].device for how in ways)) for name in names]
    return table([f"at {operation:g} µs an operation", *ways], rows)


def occupied(names: Sequence[str]) -> str:
    """Figures 24, 26 and 28: achieved occupancy of three schedulers."""
    ways = ("serial", "serial, Accel-Sim", "acs-sw", "acs-hw")
    rows: list[Sequence[Any]] = [
        (
            operation,
            *(
                statistics.mean(compared(n, operation)[how].occupancy for n in names)
                for how in ways
            ),
        )
        for operation in SWEEP
    ]
    return table(["µs an operation", *ways], [_precise(row) for row in rows])


def windows() -> str:
    """Figure 29: speed of ACS-HW by window size, relative to a window of 16 kernels."""
    rows: list[Sequence[Any]] = []
    for label, names in (("simulations", SIMULATIONS), ("dynamic", DYNAMIC), ("static", STATIC)):
        for operation in SPARSE:
            base = {n: simulated(n, "acs-hw", operation, size=16).us for n in names}
            found = [
                mean(base[n] / simulated(n, "acs-hw", operation, size=w).us for n in names)
                for w in (1, 2, 4, 8, 32, 64)
            ]
            rows.append((label, operation, *(f"{x:.3f}" for x in found)))
    rows.append(("paper, simulations", "", None, None, None, None, f"{paper.WINDOW:.3f}", None))
    head = ["", "µs an operation", "1", "2", "4", "8", "32", "64"]
    return table(head, [(row[0], _precise(row[1:])[0], *row[2:]) for row in rows])


def lists() -> str:
    """Speed of ACS-HW by length M of the host's list, relative to the longest; the window is 32."""
    rows: list[Sequence[Any]] = []
    lengths = (4, 16, 32, 48, 64, 128)
    for operation in SPARSE:
        base = {n: simulated(n, "acs-hw", operation, scheduled=224).us for n in SIMULATIONS}
        found = [
            mean(base[n] / simulated(n, "acs-hw", operation, scheduled=m).us for n in SIMULATIONS)
            for m in lengths
        ]
        rows.append((operation, *found))
    return table(["µs an operation", *map(str, lengths)], [_precise(row) for row in rows])


def clocks() -> str:
    """Compare the launch overhead of 5,000 cycles under both clock rates given in the paper."""
    rows: list[Sequence[Any]] = []
    for label, launch in (
        ("1.132 GHz (Accel-Sim)", 5000 / 1132),
        ("1.4 GHz (Table V)", 5000 / 1400),
    ):
        for baseline in (RTX3070, ACCEL_SIM):
            gpu = replace(baseline, launch=launch, operation=STEP)
            gpu = replace(gpu, queued=launch) if baseline is ACCEL_SIM else gpu
            row = [
                mean(
                    stream(n).simulate("serial", gpu=gpu).us / stream(n).simulate(how, gpu=gpu).us
                    for n in SIMULATIONS
                )
                for how in ("acs-sw", "acs-hw")
            ]
            rows.append((label, "accel-sim" if baseline is ACCEL_SIM else "device", *row))
    return table(["launch by", "baseline", "acs-sw", "acs-hw"], rows)


def methods() -> str:
    """Table I: simulated cost of a kernel that waits for another one, and start-up cost, per method."""
    g = RTX3070
    rows = [
        ("several streams, events", "events", g.waited, 0.0, "yes", "no", "yes"),
        ("DAG", "graph", g.dispatch, g.node, "yes", "yes", "no"),
        ("persistent threads", "persistent", g.task, 0.0, "no", "yes", "yes"),
        ("device enqueue", "not simulated", None, None, "no", "no", "yes"),
        ("ACS-SW", "acs-sw", g.sync + g.update + g.issue + g.launch, 0.0, "yes", "no", "yes"),
        ("ACS-HW", "acs-hw", 31 / g.clock + g.dispatch, 0.0, "yes", "yes", "yes"),
    ]
    head = ["method", "here", "µs after an upstream kernel", "µs a kernel ahead of all"]
    return table([*head, "paper: applicable", "little launching", "little preparation"], rows)


def checks() -> str:
    """Table II:

    CPU time in ns to insert a kernel (dependence analysis included) and to complete it.
    """
    rows: list[Sequence[Any]] = []
    for (size, segments), says in paper.CHECK.items():
        found = [
            _nanoseconds(name, size, segments) for name in ("pairwise", "buffers", "auto", "ranges")
        ]
        rows.append((size, segments, says, *found))
    head = ["window", "segments", "paper, ns", "pairwise", "buffers", "auto", "ranges"]
    return table(head, rows)


def _nanoseconds(finder: str, size: int, segments: int) -> int:
    r = random.Random(0)
    kernels = [
        Kernel(
            "k",
            tuple(Segment(r.randrange(4096), 0, 64) for _ in range(segments - 2)),
            tuple(Segment(r.randrange(4096), 0, 64) for _ in range(2)),
        )
        for _ in range(2000)
    ]
    best = math.inf
    for _ in range(3):
        window = SchedulingWindow(size, FINDERS[finder]())
        start = time.process_time_ns()
        for one in kernels:
            if window.is_full:
                window.complete(window.take())
            window.insert(one)
        best = min(best, (time.process_time_ns() - start) / len(kernels))
    return round(best, -1).__int__()


def persistent() -> str:
    """Section VI-E: shape-pair contacts by persistent threads, by number of worlds per kernel."""
    rows: list[Sequence[Any]] = []
    heap = stream("rigid_bodies")
    for times in (1, 16, 64, 256, 1024):
        many = Stream(
            heap.name,
            tuple(
                replace(k, blocks=k.blocks * times, operations=k.operations * times)
                for k in heap.kernels
            ),
        )
        row: list[Any] = [256 * times]
        for operation in SPARSE:
            gpu = replace(RTX3070, operation=operation)
            us = {how: many.simulate(how, gpu=gpu).us for how in ("serial", "persistent", "acs-hw")}
            row += [us["serial"] / us["persistent"], us["serial"] / us["acs-hw"]]
        rows.append(row)
    rows.append(("paper", *(paper.PERSISTENT, None) * 3))
    head = [f"{how}, {o:g} µs" for o in SPARSE for how in ("persistent", "acs-hw")]
    return table(["worlds", *head], rows)


def speed() -> str:
    """Simulated kernels per second of one CPU, for a step of the humanoid."""
    rows: list[Sequence[Any]] = []
    one = stream("humanoid")
    for how in SIMULATED:
        start = time.process_time()
        one.simulate(how)
        rows.append((how, round(len(one) / (time.process_time() - start), -3).__int__()))
    return table(["way", "kernels a second"], rows)


FIGURES: dict[str, Callable[[], str]] = {
    "constants": constants,
    "figures 3 and 4": workloads,
    "figure 5": lambda: sizes("ant"),
    "figure 8": lambda: sizes("instanas"),
    "figure 2": lambda: occupancy(SIMULATIONS, paper.OCCUPANCY_SIMULATIONS, "34 % on average"),
    "figure 7": lambda: occupancy(DYNAMIC, paper.OCCUPANCY_INSTANAS, "39 % for InstaNAS-A"),
    "figure 9": construction,
    "sweeps": sweeps,
    "figure 22": lambda: speedups(SIMULATIONS, paper.SIMULATIONS),
    "figure 22, each": lambda: each(SIMULATIONS, STEP),
    "figure 24": lambda: occupied(SIMULATIONS),
    "figure 25": lambda: speedups(DYNAMIC, paper.DYNAMIC),
    "figure 25, each": lambda: each(DYNAMIC, NETWORK),
    "figure 26": lambda: occupied(DYNAMIC),
    "figure 27": lambda: speedups(STATIC, paper.STATIC),
    "figure 27, each": lambda: each(STATIC, NETWORK),
    "figure 28": lambda: occupied(STATIC),
    "figure 29": windows,
    "lists": lists,
    "clocks": clocks,
    "table I": methods,
    "table II": checks,
    "section VI-E": persistent,
    "speed": speed,
}
