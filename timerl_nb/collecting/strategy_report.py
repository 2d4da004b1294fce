"""Report of all collection strategies: speed, counts and the selected one (`Collector.strategies`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import NamedTuple

from timerl_nb.base.text_formatting import align_columns
from timerl_nb.compiler.language.foreign_names import missing


class Speed(NamedTuple):
    """Environment steps per second over several batches."""

    median: float
    least: float
    greatest: float

    @staticmethod
    def from_batches(batches: Sequence[float]) -> Speed:
        """Return median, minimum and maximum of several batches."""
        return Speed(median(batches), min(batches), max(batches))

    def __str__(self) -> str:
        return f"{self.median:,.0f} ({self.least:,.0f} to {self.greatest:,.0f})"


@dataclass(frozen=True)
class StrategyRow:
    """Row of the report.

    Attributes:
        name: value of `how`.
        provenance: strategies of equal provenance return the same trajectories.
        speed: steps per second; None if not measured.
        calls, launches, copies: per batch, see `Counts`; None if unknown.
        why_not: reason why the strategy does not apply; None if it does.
    """

    name: str
    provenance: str
    speed: Speed | None = None
    calls: int | None = None
    launches: int | None = None
    copies: int | None = None
    why_not: str | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """Texts of the row."""
        counts = (self.calls, self.launches, self.copies)
        speed = "" if self.speed is None else str(self.speed)
        return self.name, speed, *("" if n is None else f"{n:,}" for n in counts)


_HEAD = ("strategy", "steps a second", "calls", "launches", "copies")


@dataclass(frozen=True, repr=False)
class StrategyReport:
    """Report of all strategies for a task; `str` returns a table.

    Attributes:
        rows: one row per strategy.
        chosen: name of the selected strategy.
        why: reason for the selection.
        remembered: whether it was measured in an earlier process.
    """

    rows: tuple[StrategyRow, ...]
    chosen: str
    why: str
    remembered: bool = False

    def __getitem__(self, at: int | str) -> StrategyRow:
        """Return a row by the name of the strategy, or by index."""
        if not isinstance(at, str):
            return self.rows[at]
        named = {row.name: row for row in self}
        if at not in named:
            raise missing("the table of strategies", at, named, {})
        return named[at]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[StrategyRow]:
        return iter(self.rows)

    @property
    def summary(self) -> str:
        """The selection as a sentence."""
        earlier = " (measured in an earlier process)" if self.remembered else ""
        return f"{self.chosen}: {self.why}{earlier}."

    def __str__(self) -> str:
        head, *table = align_columns([_HEAD, *(row.cells for row in self)], left={0})
        width = max(len(row.name) for row in self)
        lines = [f"  {head}"]
        for row, line in zip(self, table, strict=True):
            text = line if row.why_not is None else f"{row.name:<{width}}  {row.why_not}"
            lines.append(f"{'*' if row.name == self.chosen else ' '} {text}")
        return "\n".join([*lines, self.summary])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(row: StrategyRow) -> str:
            name, *rest = (escape(cell) for cell in row.cells)
            name = f"<b>{name}</b>" if row.name == self.chosen else name
            if row.why_not is not None:
                why_not = f'<td colspan=4 style="text-align:left">{escape(row.why_not)}</td>'
                return f"<tr><td>{name}</td>{why_not}</tr>"
            return f"<tr><td>{name}</td>" + "".join(f"<td>{x}</td>" for x in rest) + "</tr>"

        head = "".join(f"<th>{name}</th>" for name in _HEAD)
        body = "".join(map(line, self))
        return f"<table><tr>{head}</tr>{body}</table><p>{escape(self.summary)}</p>"
