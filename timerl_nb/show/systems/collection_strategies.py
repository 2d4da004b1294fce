"""View-model of collection strategies: measured speeds, and reasons for inapplicable strategies."""

from __future__ import annotations

from dataclasses import dataclass

from timerl_nb.collecting.strategy_report import StrategyReport, StrategyRow
from timerl_nb.show.view_model import View


@dataclass(frozen=True)
class StrategySpeed:
    """Environment steps per second: median, minimum and maximum over several batches."""

    median: float
    least: float
    greatest: float


@dataclass(frozen=True)
class ShownStrategy:
    """One collection strategy.

    Attributes:
        speed: None without a measurement.
        calls, launches, copies: numbers per batch; None if not counted.
        why_not: the reason if the strategy does not apply, else "".
    """

    name: str
    provenance: str
    is_chosen: bool
    speed: StrategySpeed | None
    calls: int | None
    launches: int | None
    copies: int | None
    why_not: str


@dataclass(frozen=True, repr=False)
class StrategiesView(View):
    """All collection strategies for a number of environments and of steps per batch.

    Attributes:
        name: the name of the environment.
        rows: the fastest first, then those without a measurement.
        summary: the chosen strategy and the reason.
    """

    view = "strategies"

    name: str
    envs: int
    steps: int
    rows: tuple[ShownStrategy, ...]
    summary: str

    @classmethod
    def from_strategies(
        cls, strategies: StrategyReport, name: str, envs: int, steps: int
    ) -> StrategiesView:
        """Return the view of a collector's `strategies`."""
        rows = [_row(row, row.name == strategies.chosen) for row in strategies]
        rows.sort(key=lambda row: (bool(row.why_not), -row.speed.median if row.speed else 0.0))
        return cls(name, envs, steps, tuple(rows), strategies.summary)

    def __str__(self) -> str:
        lines = [f"{self.name}, N = {self.envs:,}, K = {self.steps:,}"]
        for row in self.rows:
            mark = "*" if row.is_chosen else " "
            lines.append(f"{mark} {row.name}: {_format_speed(row)}")
        return "\n".join([*lines, self.summary])


def _row(row: StrategyRow, chosen: bool) -> ShownStrategy:
    speed = None if row.speed is None else StrategySpeed(*row.speed)
    counts = row.calls, row.launches, row.copies
    return ShownStrategy(row.name, row.provenance, chosen, speed, *counts, row.why_not or "")


def _format_speed(row: ShownStrategy) -> str:
    if row.speed is None:
        return row.why_not or "not measured"
    speed = row.speed
    return f"{speed.median:,.0f} steps/s ({speed.least:,.0f} to {speed.greatest:,.0f})"
