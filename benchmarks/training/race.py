"""Race of several systems on one program: medians and ratios of interleaved rounds.

Each system advances in each round, so disturbances affect all. Resident memory is measured in a
separate process per system. A system of another checkout is written `ours @ ../before`; it runs in
a process with that checkout's code.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

from benchmarks.training.systems import SYSTEMS, Elsewhere, Runner, first
from benchmarks.works import WORKS, Work

WARM = 3  # warm-up rounds


@dataclass(frozen=True)
class Row:
    """Figures of one system on one program: seconds per iteration, bytes (see `Runner`)."""

    work: str
    system: str
    seconds: tuple[float, ...]
    to_first: float
    predicted: int | None
    temp: int | None
    arguments: int | None
    resident: tuple[int, int] | None  # peak, and level before the program exists

    @property
    def median(self) -> float:
        return median(self.seconds)


def race(work: str, systems: Sequence[str], rounds: int = 10, *, resident: bool) -> list[Row]:
    """Return one row per system, in the order of the arguments.

    Raises:
        KeyError: No such program or system exists.
    """
    started: dict[str, tuple[Runner, float]] = {}
    for name in systems:
        system, folder = parted(name)
        most = 1 + WARM + rounds
        if folder:
            there = Elsewhere(folder, system, work, most)
            started[name] = there, there.to_first
        else:
            started[name] = first(system, WORKS[work], most)
    times: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(WARM + rounds):
        for name, (runner, _) in started.items():
            began = perf_counter()
            spent = runner.advance()
            took = perf_counter() - began if spent is None else spent
            times[name].append(took / runner.iterations)
    rows: list[Row] = []
    for name, (runner, to_first) in started.items():
        runner.close()
        kept = resident_of(work, name) if resident else None
        seconds = tuple(times[name][WARM:])
        held = (runner.predicted, runner.temp, runner.arguments)
        rows.append(Row(work, name, seconds, to_first, *held, kept))
    return rows


def parted(name: str) -> tuple[str, str]:
    """Split the name of a system into system and checkout; no checkout means this one."""
    system, _, folder = name.partition(" @ ")
    return system, folder


def compared(rows: Sequence[Row]) -> Iterator[str]:
    """Return the ratio of each of our systems to the same one of another checkout, round by round."""
    for row in rows:
        system, folder = parted(row.system)
        here = next((r for r in rows if (r.work, r.system) == (row.work, system)), None)
        if folder and here is not None and len(row.seconds) > 1:
            ratios = [a / b for a, b in zip(here.seconds, row.seconds, strict=True)]
            low, *_, high = quantiles(ratios, n=20)
            yield (
                f"{row.work}, {system}: {median(ratios):.3f} of {folder}'s time [{low:.3f} to "
                f"{high:.3f} in nine of ten of {len(ratios)} rounds]"
            )


# --- resident memory -----------------------------------------------------------------------------


def resident_of(work: str, system: str) -> tuple[int, int]:
    """Return the peak resident memory of a process that runs the system, and its level before."""
    name, folder = parted(system)
    command = [sys.executable, "-m", "benchmarks", "resident", work, name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder or None)
    most, before = json.loads(done.stdout.splitlines()[-1])
    return most, before


def measure_resident(work: str, system: str, turns: int = 3) -> None:
    """Print the figures read by `resident_of`."""
    before = resident_bytes()
    runner = first(system, WORKS[work], turns)[0]
    for _ in range(turns - 1):
        runner.advance()
    runner.close()
    # Linux may miss a short peak whose pages it reclaims before the next sample.
    print(json.dumps([max(before, resident_bytes()), before]))


def resident_bytes(what: str = "VmHWM") -> int:
    """Return the peak resident memory, or with `VmRSS` the current one, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # `resource` would include the parent process
        (line,) = (x for x in status.read_text().splitlines() if x.startswith(what))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# --- selection -------------------------------------------------------------------------------

BATCH = ("kept", "kept, blocks", "recomputed, blocks")
ONLINE = ("online", "rings")


def entrants(work: str, *, full: bool) -> Iterator[str]:
    """Return the systems for a program; the short run excludes the hand-optimised limits."""
    yield from ("jitted", "ours", "jitted, whole", "ours, whole")
    if full:
        yield "ours, interpreted"
    if full and isinstance(WORKS[work], Work):
        yield from ONLINE if WORKS[work].window else BATCH
        yield "floor"


SHORT = ("s", "S", "R-8")


def main(*, full: bool = False) -> list[Row]:
    """Race on all programs, or on some."""
    works = tuple(WORKS) if full else SHORT
    rows: list[Row] = []
    for work in works:
        rows += race(work, [s for s in entrants(work, full=full) if s in SYSTEMS], resident=True)
    return rows
