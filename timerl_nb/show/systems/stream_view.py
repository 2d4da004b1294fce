"""View-model of kernel stream runs: one track per stream, and the slots of the window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.show.view_model import View
from timerl_nb.streams.run_report import Report

MOST: Final = 4_000  # maximal number of launches drawn per run, the first ones


@dataclass(frozen=True)
class StreamLaunch:
    """Execution of one kernel. Times are in µs since the start of the run.

    Attributes:
        kernel: its position in the stream.
        slot: its slot in the window from `entered` to `ended`; -1 without a window.
        upstream: the kernels it waited for at its entry.
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
    """Run of a stream.

    Attributes:
        size: the number of slots in the window; 0 without a window.
        utilization: the fraction of time in which streams ran kernels.
        launches: in the order of their ends.
        left_out: the number of launches not drawn.
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
    """Runs of one stream below each other, on a common time axis."""

    view = "streams"

    name: str
    runs: tuple[StreamRun, ...]

    @classmethod
    def from_reports(cls, *reports: Report, name: str = "") -> StreamView:
        """Return the view of reports of one stream's runs.

        Raises:
            CallError: an argument is not a report.
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
