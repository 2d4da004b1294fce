"""The ways of collecting as they are drawn: a bar for each that was measured, and why others were not."""

from __future__ import annotations

from dataclasses import dataclass

from timerl_nb.collecting.strategy_report import StrategyRow, Ways
from timerl_nb.show.view_model import View


@dataclass(frozen=True)
class WaySpeed:
    """Steps of environments a second: the median of some batches, the least, the greatest."""

    median: float
    least: float
    greatest: float


@dataclass(frozen=True)
class WayRow:
    """A way.

    Attributes:
        speed: None where it was not measured.
        calls, launches, copies: of a batch; None where nobody counts them.
        why_not: why it does not apply; empty where it does.
    """

    name: str
    provenance: str
    is_chosen: bool
    speed: WaySpeed | None
    calls: int | None
    launches: int | None
    copies: int | None
    why_not: str


@dataclass(frozen=True, repr=False)
class WaysView(View):
    """All ways of collecting from so many environments, so many steps a batch.

    Attributes:
        name: of the environment.
        rows: the fastest first, then those that were not measured.
        told: which was chosen, and why.
    """

    view = "ways"

    name: str
    envs: int
    steps: int
    rows: tuple[WayRow, ...]
    told: str

    @classmethod
    def from_strategies(cls, ways: Ways, name: str, envs: int, steps: int) -> WaysView:
        """The view of `c.ways`, of environments of a name."""
        rows = [_row(row, row.name == ways.chosen) for row in ways]
        rows.sort(key=lambda row: (bool(row.why_not), -row.speed.median if row.speed else 0.0))
        return cls(name, envs, steps, tuple(rows), ways.told)

    def __str__(self) -> str:
        lines = [f"{self.name}, N = {self.envs:,}, K = {self.steps:,}"]
        for row in self.rows:
            mark = "*" if row.is_chosen else " "
            lines.append(f"{mark} {row.name}: {_format_speed(row)}")
        return "\n".join([*lines, self.told])


def _row(row: StrategyRow, chosen: bool) -> WayRow:
    speed = None if row.speed is None else WaySpeed(*row.speed)
    counts = row.calls, row.launches, row.copies
    return WayRow(row.name, row.provenance, chosen, speed, *counts, row.why_not or "")


def _format_speed(row: WayRow) -> str:
    if row.speed is None:
        return row.why_not or "not measured"
    speed = row.speed
    return f"{speed.median:,.0f} steps/s ({speed.least:,.0f} to {speed.greatest:,.0f})"
