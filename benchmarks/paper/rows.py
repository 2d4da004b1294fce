"""Rows of results: one quantity of one system in one cell of a figure, as CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

import timerl_nb as trl
from benchmarks.finding import Spread

Source = Literal["measured", "predicted", "published"]
FOLDER: Final = Path(__file__).parents[2] / "datasets" / "paper"


@dataclass(frozen=True)
class Row:
    """One quantity.

    Attributes:
        figure: Figure or table, such as `fig9`.
        axis: Varied size; `time` for curves.
        x: Value on the axis.
        system: The system or program.
        quantity, unit: Quantity and its unit.
        value: The median of several rounds, a prediction, or a published number.
        source: The origin of the value.
        least, greatest: Range of several rounds; None for single values.
        condition: Further conditions, such as `envs=128; steps=250`.
        machine: Description of the machine; empty for published numbers.
    """

    figure: str
    axis: str
    x: float
    system: str
    quantity: str
    unit: str
    value: float
    source: Source
    least: float | None = None
    greatest: float | None = None
    condition: str = ""
    machine: str = ""

    def __str__(self) -> str:
        spread = (
            "" if self.least is None else f" [{_number(self.least)} to {_number(self.greatest)}]"
        )
        return (
            f"{self.figure}, {self.axis} {_number(self.x)}, {self.system}: {self.quantity} "
            f"{_number(self.value)}{spread} {self.unit} ({self.source})"
        )


def spread_of(values: Sequence[float]) -> dict[str, Any]:
    """Return the fields of a row for a quantity of several rounds: median and range."""
    found = Spread.from_values(values)
    ends = {"least": found.least, "greatest": found.greatest} if len(values) > 1 else {}
    return {"value": found.median, **ends}


_NUMBERS: Final = ("x", "value", "least", "greatest")


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write rows; the file is complete, or unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    with draft.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(field.name for field in fields(Row))
        for row in rows:
            cells = asdict(row)
            lines.writerow(_number(v) if k in _NUMBERS else v for k, v in cells.items())
    draft.replace(path)


def read(path: Path) -> tuple[Row, ...]:
    """Read the rows of a file; none if it does not exist."""
    if not path.exists():
        return ()
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(_row(cells) for cells in csv.DictReader(file))


def _row(cells: dict[str, str]) -> Row:
    numbers = {k: float(cells[k]) if cells[k] else None for k in _NUMBERS}
    return Row(**{**cells, **numbers})  # type: ignore[arg-type]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() else f"{value:.5g}"


def published(figure: str) -> Iterator[Row]:
    """Yield the numbers that the paper's text states about a figure."""
    number = figure.removeprefix("fig").rstrip("ab")
    for cells in trl.datasets.load("published/timerl"):
        if cells["figure"].rstrip("abcd") == f"Fig. {number}" and not isinstance(
            cells["value"], str
        ):
            system, quantity = cells["system"], cells["quantity"]
            condition = f"{cells['relation']}; {cells['condition']}"
            given = figure, cells["figure"], 0, system, quantity, cells["unit"]
            yield Row(*given, cells["value"], "published", condition=condition)


class Results(Sequence[Row]):
    """Rows with selections by their columns."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def where(self, **cells: str | float) -> Results:
        """Return the rows with these cells."""
        return self.only(lambda row: all(getattr(row, k) == v for k, v in cells.items()))

    def only(self, test: Callable[[Row], bool]) -> Results:
        """Return the rows that pass a test."""
        return Results(filter(test, self._rows))

    def value(self, **cells: str | float) -> float | None:
        """Return the value of the first row with these cells, or None."""
        return next((row.value for row in self.where(**cells)), None)

    def distinct(self, column: str) -> tuple[str, ...]:
        """Return the different cells of a column, in order of appearance."""
        return tuple(dict.fromkeys(getattr(row, column) for row in self._rows))

    def curve(self, **cells: str | float) -> dict[float, float]:
        """Return the values by their place on the axis, ascending."""
        return dict(sorted((row.x, row.value) for row in self.where(**cells)))
