"""Cells one after the other, all implementations of each by turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

from benchmarks.collecting.cell import Cell
from benchmarks.collecting.table import MADE_BY, SIMULATIONS, TABLE, Row
from benchmarks.collecting.worker import Worker

WARM: Final = 1  # round that does not count
MOST: Final = 2.0  # seconds that a batch may take, at the speed of the one before
# Beyond the plateau is what is not so many times as fast with so many times as many environments.
GAIN: Final = 1.1
WIDER: Final = 16


@dataclass(frozen=True)
class Measured:
    """An implementation's figures at a cell.

    Attributes:
        speeds: steps a second, of each round; empty where it did not run.
        why_not: then why.
        first_s: seconds until the end of the first batch, compiling included.
        bytes: the most that a batch had resident beside what there was before.
        calls, launches, copies: of a batch; None where nobody counts.
        split: nanoseconds of a batch by part, and calls into backends, as recorded; empty where not asked for.
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
    """Cells, and what is measured at them.

    Attributes:
        title: what is asked.
        to_plateau: whether what no longer gains is left out.
        split: those whose time is recorded as well.
    """

    title: str
    cells: Sequence[Cell]
    names: Sequence[str]
    to_plateau: bool = False
    split: Sequence[str] = ()


class Workers:
    """A process for each interpreter that there is, started when it is asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[str, Worker] = {}

    def of(self, row: Row) -> Worker:
        """Raises FileNotFoundError where there is no such environment."""
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
    """Figures of all implementations at one cell, which advance by turns."""
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
    """The cells in order; what no longer gains, takes too long or does not run is left out of later ones."""
    best: dict[str, float] = {}
    before: dict[str, float] = {}  # of a batch, seconds for each float, at the cell before
    gained: dict[str, int] = {}  # the environments with which it last was faster
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
