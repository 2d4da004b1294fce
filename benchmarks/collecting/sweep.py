"""Sweep runner: cells in sequence, implementations interleaved within each cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

from benchmarks.collecting.cell import Cell
from benchmarks.collecting.table import MADE_BY, SIMULATIONS, TABLE, Row
from benchmarks.collecting.worker import Worker

WARM: Final = 1  # warm-up rounds
MOST: Final = 2.0  # limit for a batch in seconds, extrapolated from the previous cell
# Plateau: the minimal speedup per growth in environments; smaller gains end the sweep of an
# implementation.
GAIN: Final = 1.1
WIDER: Final = 16


@dataclass(frozen=True)
class Measured:
    """Figures of one implementation at one cell.

    Attributes:
        speeds: Steps per second of each round; empty if it did not run.
        why_not: The reason in that case.
        first_s: Seconds until the end of the first batch, compilation included.
        bytes: Maximal resident memory of a batch above the level before it.
        calls, launches, copies: Per batch; None if not counted.
        split: Recorded nanoseconds of a batch by part, and calls into backends; empty unless
        requested.
    """

    name: str
    cell: Cell
    speeds: tuple[float, ...] = ()
    why_not: str = ""
    first_s: float = 0.0
    bytes: int = 0
    calls: int | None = None
    launches: int | None = None
    copies: int | None = None
    split: tuple[tuple[str, float], ...] = ()

    @property
    def median(self) -> float:
        return median(self.speeds)


@dataclass(frozen=True)
class Sweep:
    """Cells and the implementations to measure.

    Attributes:
        title: The question of the sweep.
        to_plateau: Stop implementations at their plateau.
        split: Implementations whose time is recorded as well.
    """

    title: str
    cells: Sequence[Cell]
    names: Sequence[str]
    to_plateau: bool = False
    split: Sequence[str] = ()


class Workers:
    """One worker process per available interpreter, started on first use."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[str, Worker] = {}

    def of(self, row: Row) -> Worker:
        """Return the worker of an environment.

        Raises FileNotFoundError if the environment is missing.
        """
        python = self._root / row.venv / "bin" / "python"
        if not python.exists():
            raise FileNotFoundError(f"{row.needed} is not installed ({MADE_BY[row.venv]})")
        if row.venv not in self._made:
            self._made[row.venv] = Worker(python)
        return self._made[row.venv]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._made.values():
            worker.close()


def measured(
    workers: Workers, cell: Cell, names: Iterable[str], rounds: int, split: Sequence[str] = ()
) -> list[Measured]:
    """Measure all implementations at one cell, interleaved."""
    table: Mapping[str, Row] = SIMULATIONS if cell.is_simulation else TABLE
    rows: dict[str, Measured] = {}
    at: dict[str, Worker] = {}
    speeds: dict[str, list[float]] = {}
    for name in names:
        try:
            worker = workers.of(table[name])
            opened = worker.ask("open", name, cell=asdict(cell))
            rows[name], at[name] = Measured(name, cell, **opened), worker
        except (RuntimeError, FileNotFoundError) as error:
            rows[name] = Measured(name, cell, why_not=str(error))
    for k in range(WARM + rounds):
        for name, worker in at.items():
            made = worker.ask("advance", name)
            if k >= WARM:
                speeds.setdefault(name, []).append(made["steps"] / made["seconds"])
    for name, worker in at.items():
        counts: dict[str, Any] = worker.ask("close", name)
        if name in split:
            counts["split"] = tuple(worker.ask("split", name, cell=asdict(cell)).items())
        rows[name] = replace(rows[name], speeds=tuple(speeds[name]), **counts)
    return list(rows.values())


def over(workers: Workers, sweep: Sweep, rounds: int) -> Iterator[Measured]:
    """Run the cells in order.

    Implementations at their plateau, too slow or failed are skipped in later cells.
    """
    best: dict[str, float] = {}
    before: dict[
        str, float
    ] = {}  # per implementation, seconds per float operation at the last cell
    gained: dict[str, int] = {}  # number of environments at the last gain in speed
    last: dict[str, int] = {}
    left: set[str] = set()
    for cell in sweep.cells:
        found: list[Measured] = []
        for name in (n for n in sweep.names if n in best):
            seconds = before[name] * cell.floats
            why_not = f"a batch would take some {seconds:.0f} s" if seconds > MOST else ""
            if sweep.to_plateau and last[name] >= WIDER * gained[name]:
                why_not = "beyond its plateau"
            if why_not and name not in left:
                found.append(Measured(name, cell, why_not=why_not))
                left.add(name)
        runs = [name for name in sweep.names if name not in left]
        for m in measured(workers, cell, runs, rounds, sweep.split):
            found.append(m)
            if not m.speeds:
                left.add(m.name)
                continue
            if m.median > GAIN * best.get(m.name, 0.0):
                gained[m.name] = cell.envs
            last[m.name] = cell.envs
            best[m.name] = max(best.get(m.name, 0.0), m.median)
            before[m.name] = cell.points / m.median / cell.floats
        yield from found
