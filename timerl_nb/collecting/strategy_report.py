"""The table of all ways: what each takes and makes, and which was chosen, and why (`c.ways`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import NamedTuple

from timerl_nb.base.text_formatting import align_columns
from timerl_nb.compiler.language.foreign_names import missing


class Speed(NamedTuple):
    """Steps of environments per second, as several batches had it."""

    median: float
    least: float
    greatest: float

    @staticmethod
    def from_batches(batches: Sequence[float]) -> Speed:
        """That of several batches."""
        return Speed(median(batches), min(batches), max(batches))

    def __str__(self) -> str:
        return f"{self.median:,.0f} ({self.least:,.0f} to {self.greatest:,.0f})"


@dataclass(frozen=True)
class StrategyRow:
    """A way.

    Attributes:
        name: by which it is asked for.
        provenance: ways of one give the same trajectories.
        speed: steps a second; None where it was not measured.
        calls, launches, copies: of a batch, as `Counts`; None where nobody counts them.
        why_not: why it does not apply; None where it does.
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
        """As it is printed."""
        counts = (self.calls, self.launches, self.copies)
        speed = "" if self.speed is None else str(self.speed)
        return self.name, speed, *("" if n is None else f"{n:,}" for n in counts)


_HEAD = ("way", "steps a second", "calls", "launches", "copies")


@dataclass(frozen=True, repr=False)
class Ways:
    """All ways of collecting a task; it prints as a table.

    Attributes:
        rows: one for each.
        chosen: the name of the one that is taken.
        why: it is.
        remembered: whether it was measured in an earlier process.
    """

    rows: tuple[StrategyRow, ...]
    chosen: str
    why: str
    remembered: bool = False

    def __getitem__(self, at: int | str) -> StrategyRow:
        """The row of a way's name, or of a number."""
        if not isinstance(at, str):
            return self.rows[at]
        named = {row.name: row for row in self}
        if at not in named:
            raise missing("the table of ways", at, named, {})
        return named[at]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[StrategyRow]:
        return iter(self.rows)

    @property
    def told(self) -> str:
        """The choice, as a sentence."""
        earlier = " (measured in an earlier process)" if self.remembered else ""
        return f"{self.chosen}: {self.why}{earlier}."

    def __str__(self) -> str:
        head, *table = align_columns([_HEAD, *(row.cells for row in self)], left={0})
        width = max(len(row.name) for row in self)
        lines = [f"  {head}"]
        for row, line in zip(self, table, strict=True):
            text = line if row.why_not is None else f"{row.name:<{width}}  {row.why_not}"
            lines.append(f"{'*' if row.name == self.chosen else ' '} {text}")
        return "\n".join([*lines, self.told])

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
        return f"<table><tr>{head}</tr>{body}</table><p>{escape(self.told)}</p>"
