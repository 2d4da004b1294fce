"""Races on all programs, on some, or on one: a Markdown table, and lines of CSV."""

from __future__ import annotations

import csv
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import jax
import jaxlib

from benchmarks.compiler import compiling, grain
from benchmarks.training import learning, race
from benchmarks.training.race import Row

REFERENCE = "jitted"
MIB = 2**20


def machine() -> Mapping[str, str | int]:
    """Describe the machine in general terms."""
    device = jax.devices()[0]
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count() or 0,
        "device": f"{device.platform} ({device.device_kind})",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
    }


def ratios(rows: Sequence[Row]) -> Iterator[tuple[Row, float]]:
    """Return each row with the ratio of its median to the fully jitted program's."""
    of = {row.work: row.median for row in rows if row.system == REFERENCE}
    for row in rows:
        yield row, row.median / of.get(row.work, float("nan"))


def table(rows: Sequence[Row]) -> str:
    """Format the figures as Markdown."""
    lines = [
        "| work | system | s per iteration, median [min to max] | ratio | predicted peak, MiB "
        "| XLA: temporaries + arguments, MiB | resident, MiB (above start) | s to first step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, ratio in ratios(rows):
        low, high = min(row.seconds), max(row.seconds)
        resident = "–"
        if row.resident is not None:
            most, before = row.resident
            resident = f"{most / MIB:,.0f} ({(most - before) / MIB:,.0f})"
        lines.append(
            f"| {row.work} | {row.system} | {row.median:.4f} [{low:.4f} to {high:.4f}] "
            f"| {ratio:.2f} | {_mib(row.predicted)} | {_mib(row.temp)} + {_mib(row.arguments)} | {resident} "
            f"| {row.to_first:.1f} |"
        )
    return "\n".join(lines)


def _mib(count: int | None) -> str:
    return "–" if count is None else f"{count / MIB:,.2f}"


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write the figures as CSV, with the machine in each line."""
    about = machine()
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(
            ["work", "system", "iterations", "median_s", "min_s", "max_s", "ratio", "to_first_s"]
            + [
                "predicted_bytes",
                "xla_temp_bytes",
                "xla_argument_bytes",
                "resident_bytes",
                "resident_before_bytes",
            ]
            + list(about)
        )
        for row, ratio in ratios(list(rows)):
            times = [round(x, 6) for x in (row.median, min(row.seconds), max(row.seconds))]
            resident = row.resident or ("", "")
            lines.writerow(
                [row.work, row.system, len(row.seconds), *times, round(ratio, 4)]
                + [round(row.to_first, 2), row.predicted, row.temp, row.arguments, *resident]
                + list(about.values())
            )


def _print(rows: Sequence[Row]) -> None:
    """Print the table, and write the figures to `runs/bench.csv`."""
    print("\n".join([table(rows), *race.compared(rows)]) + "\n")
    path = Path("runs/bench.csv")
    path.parent.mkdir(exist_ok=True)
    write(path, rows)


def raced(work: str = "", *names: str) -> None:
    """Race on one program.

    An optional first number sets the rounds; the other names select systems.

    Raises:
        SystemExit: No such program or system exists.
    """
    rounds, names = (int(names[0]), names[1:]) if names[:1] and names[0].isdigit() else (10, names)
    systems = {race.parted(name)[0] for name in names}
    if work not in race.WORKS or not systems <= {*race.SYSTEMS}:
        known = ", ".join(f"{name!r}" for name in race.SYSTEMS)
        sys.exit(f"works: {', '.join(race.WORKS)}; systems: {known}")
    chosen = names or list(race.entrants(work, full=True))
    _print(race.race(work, chosen, rounds, resident=True))


def short() -> None:
    """Race on three programs, and measure the stages of compilation."""
    _print(race.main())
    compiling.main()


def full() -> None:
    """Race on all programs; measure stages, launches, and full runs of stock PPO."""
    _print(race.main(full=True))
    for run in (compiling.main, grain.main, learning.main):
        run()
        print()
