"""What ran when, on which stream, and who waited for whom."""

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

_SHOWN: Final = 60  # launches in a report's text


@dataclass(slots=True)
class Launch:
    """A kernel that ran; times are µs since the first one was submitted.

    Attributes:
        kernel: its place in the stream.
        lane: the stream that ran it.
        slot: of the window; -1 where there is none.
        upstream: the kernels that it waited for as it entered the window.
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
    """Launches that are made when somebody looks at them."""

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
    """A run of kernels.

    Attributes:
        how: it was run.
        size, streams: of the window; kernels that could be looked at, and run, at once.
        us: from the first kernel's submission to the last one's end.
        launches: in the order in which they ended; of very many the last ones.
        count: of all kernels that ran.
        construction: µs that a graph took to be made, which are not in `us`.
        result: what the stream computes, where it is of one that returns something.
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
        """The part of the time in which streams ran kernels, of those that are kept, averaged over streams."""
        begun = min((one.started for one in self.launches), default=0.0)
        ended = max((one.ended for one in self.launches), default=0.0)
        there = (ended - begun) * self.streams
        return sum(one.us for one in self.launches) / there if there else 0.0

    @property
    def waits(self) -> tuple[tuple[int, int, float], ...]:
        """(a kernel, the upstream kernel that ended last, µs in the window until then), of those that had to wait."""
        ends = {one.kernel: one.ended for one in self.launches}
        found: list[tuple[int, int, float]] = []
        for one in sorted(self.launches, key=lambda one: one.kernel):
            last = max((u for u in one.upstream if u in ends), key=lambda u: ends[u], default=None)
            if last is not None:
                found.append((one.kernel, last, ends[last] - one.entered))
        return tuple(found)

    @property
    def edges(self) -> int:
        """How many kernels were waited for, each as often as it was."""
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
        """The run as a widget, to step through; above others of the same stream, where some are given."""
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
        """Write a trace for chrome://tracing or Perfetto, a lane for each stream.

        Raises:
            ExecutionError: the file cannot be written.
        """
        return write_events(path, self.events())

    def events(self, process: int = 0) -> Iterator[dict[str, Any]]:
        """The trace's events, in a process of its own: `profile.chrome_trace(path, report)` has several."""
        yield from lanes(
            process, f"streams ({self.how})", (f"stream {k}" for k in range(self.streams))
        )
        for one in self.launches:
            args = {"kernel": one.kernel, "line": one.line, "op_ids": one.op_ids}
            args |= {"slot": one.slot, "upstream": one.upstream}
            place = process, one.lane + 1
            yield event("X", one.name, place, one.started, one.us, cat="kernel", args=args)
