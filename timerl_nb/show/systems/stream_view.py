"""Runs of a stream of kernels as they are drawn: lanes by stream, and the window's slots under them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.show.view_model import View
from timerl_nb.streams.run_report import Report

MOST: Final = 4_000  # launches of a run that are drawn, the first ones


@dataclass(frozen=True)
class StreamLaunch:
    """A kernel; times are µs since the run began.

    Attributes:
        kernel: its place in the stream.
        slot: of the window, where it was from `entered` to `ended`; -1 where there is none.
        upstream: those it waited for as it entered.
    """

    kernel: int
    name: str
    line: str
    op_ids: tuple[int, ...]
    lane: int
    slot: int
    upstream: tuple[int, ...]
    entered: float
    started: float
    ended: float


@dataclass(frozen=True)
class StreamRun:
    """A run of a stream.

    Attributes:
        size: slots of its window; 0 where it has none.
        utilization: the part of the time in which streams ran kernels.
        launches: in the order in which they ended.
        left_out: how many more there were.
    """

    how: str
    streams: int
    size: int
    us: float
    utilization: float
    launches: tuple[StreamLaunch, ...]
    left_out: int


@dataclass(frozen=True, repr=False)
class StreamView(View):
    """Runs of one stream under each other, on one scale: before and after."""

    view = "streams"

    name: str
    runs: tuple[StreamRun, ...]

    @classmethod
    def from_reports(cls, *reports: Report, name: str = "") -> StreamView:
        """Of what windows, graphs and runs in order report.

        Raises:
            CallError: one is no report.
        """
        return cls(name, tuple(_convert_report(one) for one in reports))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.name:
            yield self.name
        for run in self.runs:
            yield f"{run.how}: {run.us:,.0f} µs, utilization {run.utilization:.2f}"
            for one in run.launches:
                after = f" after {', '.join(map(str, one.upstream))}" if one.upstream else ""
                took = f"{one.started:,.0f} to {one.ended:,.0f} µs"
                yield f"  stream {one.lane}: {one.kernel} {one.name}, {took}{after}"


def _convert_report(report: Any) -> StreamRun:
    found = expect_type(
        report, Report, "a report", "stream.run(…) gives one, or w.report of a window."
    )
    shown = sorted(found.launches, key=lambda one: one.ended)[:MOST]
    launches = tuple(
        StreamLaunch(
            *(one.kernel, one.name, one.line, one.op_ids, one.lane, one.slot),
            *(one.upstream, one.entered, one.started, one.ended),
        )
        for one in shown
    )
    left_out = found.count - len(launches)
    return StreamRun(
        *(found.how, found.streams, found.size, found.us, found.utilization, launches, left_out)
    )
