"""Report of a stream's run: times, threads and dependences of its kernels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.chrome_trace import event, lanes, write_events
from timerl_nb.base.display_registry import Inspectable
from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.graphviz_text import Dot
from timerl_nb.base.text_formatting import format_count

_SHOWN: Final = 60  # maximal number of kernels in a report's text


@dataclass(slots=True)
class Launch:
    """Execution of one kernel. Times are in µs since the submission of the first kernel.

    Attributes:
        kernel: the position of the kernel in the stream.
        name: the name of the kernel.
        line: the user's line of the launch.
        op_ids: the operations of a recorded program.
        lane: its stream.
        slot: its slot in the window; -1 without a window.
        upstream: the kernels that it had to wait for when it entered the window.
        entered, started, ended: the times of its entry into the window, start and end.

    Example:
        >>> report = trl.streams.workload("ant").simulate("acs-sw")
        >>> first = report.launches[0]
        >>> first.ended > first.started
        True
    """

    kernel: int
    name: str
    line: str = ""
    op_ids: tuple[int, ...] = ()
    lane: int = -1
    slot: int = -1
    upstream: tuple[int, ...] = ()
    entered: float = 0.0
    started: float = 0.0
    ended: float = 0.0

    @property
    def us(self) -> float:
        return self.ended - self.started


class Launches(Sequence[Launch]):
    """Launches that are created at the first access."""

    def __init__(self, count: int, make: Callable[[], Sequence[Launch]]) -> None:
        self._count, self._make = count, make

    @cached_property
    def _made_launches(self) -> Sequence[Launch]:
        return self._make()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        return self._made_launches[at]


@dataclass(frozen=True, repr=False)
class Report(Inspectable):
    """Result of running a stream.

    Attributes:
        how: the strategy.
        size: the number of slots in the window; 0 without a window.
        streams: the number of streams, an upper limit for concurrent kernels.
        us: the time from the submission of the first kernel to the end of the last one, in µs.
        launches: the executions in the order of their ends; only the last ones of a long run.
        count: the number of kernels.
        construction: the time to build a graph in µs, not included in `us`.
        result: the results of a recorded program or module, else None.

    Example:
        >>> @trl.kernel(reads=lambda a, out: a, writes=lambda a, out: out)
        ... def double(a, out):
        ...     np.multiply(a, 2.0, out=out)
        >>> a, b = np.ones(4), np.zeros(4)
        >>> with trl.streams.window() as w:
        ...     double(a, b)
        >>> w.report.count
        1
    """

    how: str
    size: int
    streams: int
    us: float
    launches: Sequence[Launch]
    count: int
    construction: float = 0.0
    result: Any = field(default=None, compare=False)

    @property
    def utilization(self) -> float:
        """The fraction of time in which streams ran kernels, averaged over streams. Only recorded launches
        count.
        """
        begun = min((one.started for one in self.launches), default=0.0)
        ended = max((one.ended for one in self.launches), default=0.0)
        there = (ended - begun) * self.streams
        return sum(one.us for one in self.launches) / there if there else 0.0

    @property
    def waits(self) -> tuple[tuple[int, int, float], ...]:
        """For each kernel that had to wait: the kernel, its upstream kernel that ended last, and the µs it
        waited in the window.
        """
        ends = {one.kernel: one.ended for one in self.launches}
        found: list[tuple[int, int, float]] = []
        for one in sorted(self.launches, key=lambda one: one.kernel):
            last = max((u for u in one.upstream if u in ends), key=lambda u: ends[u], default=None)
            if last is not None:
                found.append((one.kernel, last, ends[last] - one.entered))
        return tuple(found)

    @property
    def edges(self) -> int:
        """The number of dependences between kernels."""
        return sum(len(one.upstream) for one in self.launches)

    def __str__(self) -> str:
        window = f", window {self.size}" if self.size else ""
        made = f", {self.construction:,.0f} µs to construct" if self.construction else ""
        lines = [
            f"{self.how}: {format_count(self.count, 'kernel')} on {format_count(self.streams, 'stream')}{window} in {self.us:,.0f} µs{made}; "
            f"utilization {self.utilization:.2f}, {format_count(self.edges, 'edge')}"
        ]
        for one in sorted(self.launches, key=lambda one: one.started)[:_SHOWN]:
            after = f" after {', '.join(map(str, one.upstream))}" if one.upstream else ""
            at = f" at {one.line}" if one.line else ""
            times = f"{one.started:10,.0f} {one.us:8,.0f} µs"
            lines.append(f"{times}  stream {one.lane}  {one.kernel} {one.name}{at}{after}")
        if self.count > _SHOWN:
            lines.append(f"… {self.count - min(len(self.launches), _SHOWN):,} more")
        return "\n".join(lines)

    def to_svg(self) -> str:
        return entry_point("streams.view")(self).to_svg()

    def explore(self, *others: Report, name: str = "") -> Any:
        """Open the run as a widget, with other runs of the same stream below it."""
        return entry_point("streams.explore")(self, *others, name=name)

    def to_dot(self) -> str:
        dot = Dot("report", rankdir="LR", many=len(self.launches) > 300)
        for lane in range(self.streams):
            dot.open_cluster(f"stream {lane}")
            for one in self.launches:
                if one.lane == lane:
                    dot.node(str(one.kernel), f"{one.kernel} {one.name}")
            dot.close_cluster()
        kept = {one.kernel for one in self.launches}
        for one in self.launches:
            for u in one.upstream:
                if u in kept:
                    dot.edge(str(u), str(one.kernel))
        return str(dot)

    def to_json(self) -> dict[str, Any]:
        said = {"how": self.how, "size": self.size, "streams": self.streams, "us": self.us}
        said |= {"count": self.count, "construction": self.construction}
        return {**said, "launches": [asdict(one) for one in self.launches]}

    def chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write a trace for chrome://tracing or Perfetto, with one track per stream.

        Args:
            path: the file.

        Raises:
            ExecutionError: the file cannot be written.
        """
        return write_events(path, self.events())

    def events(self, process: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the events of the trace, as a separate process, for `profile.chrome_trace(path, report)`."""
        yield from lanes(
            process, f"streams ({self.how})", (f"stream {k}" for k in range(self.streams))
        )
        for one in self.launches:
            args = {"kernel": one.kernel, "line": one.line, "op_ids": one.op_ids}
            args |= {"slot": one.slot, "upstream": one.upstream}
            place = process, one.lane + 1
            yield event("X", one.name, place, one.started, one.us, cat="kernel", args=args)
