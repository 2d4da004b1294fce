"""View-model of collection strategies: measured speeds, and reasons for inapplicable strategies."""

from __future__ import annotations

from dataclasses import dataclass

from timerl_nb.collecting.strategy_report import StrategyRow, Ways
from timerl_nb.show.view_model import View


@dataclass(frozen=True)
class WaySpeed:
    """Environment steps per second: median, minimum and maximum over several batches."""

    median: float
    least: float
    greatest: float


@dataclass(frozen=True)
class WayRow:
    """One collection strategy.

    Attributes:
        speed: None without a measurement.
        calls, launches, copies: numbers per batch; None if not counted.
        why_not: the reason if the strategy does not apply, else "".
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
    """All collection strategies for a number of environments and of steps per batch.

    Attributes:
        name: the name of the environment.
        rows: the fastest first, then those without a measurement.
        told: the chosen strategy and the reason.
    """

    view = "ways"

    name: str
    envs: int
    steps: int
    rows: tuple[WayRow, ...]
    told: str

    @classmethod
    def from_strategies(cls, ways: Ways, name: str, envs: int, steps: int) -> WaysView:
        """Return the view of a collector's `ways`."""
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
