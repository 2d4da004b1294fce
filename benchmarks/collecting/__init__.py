"""Reproduction of "Optimizing Data Collection in Deep Reinforcement Learning" (Gleeson et al. 2022)."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.collecting import choices, learner, on_ray, overlap
from benchmarks.collecting.cell import Cell
from benchmarks.collecting.findings import found
from benchmarks.collecting.fitting import fitted
from benchmarks.collecting.sweep import Measured, Sweep, Workers, over
from benchmarks.collecting.table import BRAX, SIMULATIONS, TABLE
from benchmarks.finding import table
from benchmarks.training.report import machine

ROOT: Final = Path(__file__).parents[2]
BATCHED: Final = ("NumPy, batched", "PyTorch, batched", "JAX, a call a step", "JAX, scan")
OURS: Final = tuple(name for name in TABLE if name.startswith("ours, ") and " of " not in name)
TWICE: Final = {f"ours, {how}" for how in ("native", "loop", "processes")}  # from Gymnasium
MIB: Final = 2**20


def sweeps(*, full: bool) -> Mapping[str, Sweep]:
    """Return the sweeps of the paper's figures by name: the short ones, or those of `--full`."""
    most = 20 if full else 12
    envs = [2**k for k in range(0, most + 1, 2 if full else 4)]
    few = (*BATCHED, "gymnax, scan", *OURS)
    split = ("PyTorch, batched", "JAX, scan", "ours, scan")
    steps, sizes = (1, 10, 100, 1000), (256, 8192) if full else (256,)
    found = {
        "throughput": Sweep(
            "Fig. 4: steps of environments under a policy, over N",
            [Cell(n, 100 if n <= 2**16 else 10) for n in envs],
            tuple(n for n, row in TABLE.items() if row.is_cartpole and n not in TWICE),
            to_plateau=True,
        )
    }
    found["simulators"] = Sweep(
        "Fig. 2: simulators under drawn actions, over N",
        [Cell(n, 20, 0) for n in envs],
        ("JAX, scan", "gymnax, scan", *BRAX),
        to_plateau=True,
    )
    for n in sizes:
        found[f"steps-{n}"] = Sweep(
            "Figs. 5 and 6: the same over K", [Cell(n, k) for k in steps], few, split=split
        )
        found[f"random-{n}"] = Sweep(
            "Fig. 8: actions that are drawn, over K", [Cell(n, k, 0) for k in steps], few
        )
        found[f"wide-{n}"] = Sweep("A policy of 256", [Cell(n, 100, 256)], few)
    shapes = [(n, s, 1) for n, states in ((1024, (1, 64, 1024)), (16384, (1, 64))) for s in states]
    shapes.append((1024, 64, 4))
    if full:
        shapes = [
            (n, 2**s, 2**c)
            for n in (1024, 16384)
            for s in range(0, 12, 2)
            for c in (0, 2, 4, 7, 10)
        ]
    found["complexity"] = Sweep(
        "Fig. 9: simulation alone, its state S times, its work C times",
        [Cell(n, 100, 0, s, c) for n, s, c in shapes if n * s * 16 <= 256 * MIB],
        tuple(SIMULATIONS),
    )
    return found


_TABLES: Final = {
    "choices": choices.table,
    "learner": learner.table,
    "overlap": overlap.table,
    "ray": on_ray.table,
}


def main(*words: str, rounds: int = 5) -> None:
    """Run some sweeps; print tables and findings, and write `runs/collect.csv`.

    "choices" compares the strategy chosen by `trl.collect` with the fastest one. "learner" trains a
    PyTorch learner. "overlap" compares `ahead=1` with collecting and learning in turn. "ray" compares workers
    of Ray with processes. "fit" fits the cost model to this machine and stores the result.

    Raises:
        SystemExit: No such sweep exists.
    """
    if "fit" in words:
        print(fitted())
        return
    for name, lines in _TABLES.items():
        if name in words:
            for line in lines():
                print(line, flush=True)
            return
    full = "--full" in words
    known = sweeps(full=full)
    names = [word for word in words if word != "--full"]
    chosen = [name for name in known if not names or name in names or name.split("-")[0] in names]
    if len(chosen) < len(names):
        raise SystemExit(f"sweeps: {', '.join(known)}")
    path = Path("runs/collect.csv")
    path.parent.mkdir(exist_ok=True)
    rows: list[Measured] = []
    with Workers(ROOT) as workers:
        for name in chosen:
            made: list[Measured] = []
            for m in over(workers, known[name], 2 * rounds if full else rounds):
                made.append(m)
                write(path, [*rows, *made])  # an interrupted sweep returns partial results
            print(
                f"**{name}**. {known[name].title}\n\n" + "\n".join(shown(made)) + "\n", flush=True
            )
            rows += made
    if findings := found(rows):
        print(table(findings))


def shown(rows: Sequence[Measured]) -> Iterator[str]:
    """Format a Markdown table: thousand steps per second, median [minimum to maximum]; else the reason for a failure."""
    cells = list(dict.fromkeys(m.cell for m in rows))
    last: Cell | None = None
    yield (
        "| thousand steps/s | "
        + " | ".join(map(_named, cells))
        + " | first s | MiB | calls, launches, copies |"
    )
    yield "|---" * (len(cells) + 4) + "|"
    for name in dict.fromkeys(m.name for m in rows):
        mine = {m.cell: m for m in rows if m.name == name and m.speeds}
        if not mine:
            continue
        last = list(mine)[-1]
        m = mine[last]
        counts = ", ".join("–" if x is None else f"{x:,}" for x in (m.calls, m.launches, m.copies))
        speeds = " | ".join(_speed(mine.get(cell)) for cell in cells)
        yield f"| {name} | {speeds} | {m.first_s:.1f} | {m.bytes / MIB:,.0f} | {counts} |"
    yield ""
    yield "First batch, memory and counts are of the last column that has a figure."
    for m in rows:
        if m.why_not:
            yield f"- {m.name}, from {_named(m.cell)} on: {m.why_not}"


def _named(cell: Cell) -> str:
    sizes = f"N {cell.envs:,}, K {cell.steps:,}"
    if cell.is_simulation:
        return f"{sizes}, S {cell.state:,}, C {cell.compute:,}"
    return sizes


def _speed(m: Measured | None) -> str:
    if m is None:
        return "–"
    low, high = min(m.speeds) / 1e3, max(m.speeds) / 1e3
    return f"{m.median / 1e3:,.4g} [{low:,.3g}–{high:,.3g}]"


def write(path: Path, rows: Sequence[Measured]) -> None:
    """Write the figures as CSV, with the machine in each line."""
    about = machine()
    parts = ("python", "simulator", "backend", "waiting")
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(
            [
                "name",
                *asdict(Cell(1, 1)),
                "rounds",
                "median",
                "least",
                "greatest",
                "first_s",
                "bytes",
            ]
            + ["calls", "launches", "copies", *(f"{p}_ns" for p in parts), "why_not", *about]
        )
        for m in rows:
            speeds = (m.median, min(m.speeds), max(m.speeds)) if m.speeds else ("", "", "")
            split = dict(m.split)
            lines.writerow(
                [m.name, *asdict(m.cell).values(), len(m.speeds), *speeds, m.first_s, m.bytes]
                + [m.calls, m.launches, m.copies, *(split.get(p, "") for p in parts), m.why_not]
                + list(about.values())
            )
