"""Simulated machine with GPUs and a controlled clock: a recording with known truth.

It writes the recordings of a recorder and of a tracer; the tracer has a separate clock. It computes
the truth from its own list of intervals, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.device_activity.clock_alignment import Anchor, Joint
from timerl_nb.scope.device_activity.device_operations import Sort
from timerl_nb.scope.device_activity.trace_data import Rows, Trace
from timerl_nb.scope.device_activity.traced_windows import merge_traces
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, NAME_MASK, Kind, Library

START = 1_000_000_000  # nanoseconds
AHEAD = 3_600_000_000_000  # of the tracer's clock
NAMES = {one.name.lower(): one for one in Library}


@dataclass
class Process:
    """One thread that has operations, calls libraries, and launches kernels on one stream of a device.

    Args:
        number: Process id.
        launch: Nanoseconds of a launch.
        traced: Extra nanoseconds of a traced call, by name.
        tapped: Extra nanoseconds of a wrapped call, inside and outside of its begin/end events;
        both even.
        drift: Total drift of the tracer's clock, in nanoseconds.
    """

    number: int = 1
    launch: int = 5_000
    traced: Mapping[str, int] = field(default_factory=dict)
    tapped: tuple[int, int] = (0, 0)
    drift: int = 0
    now: int = START
    device: int = START  # end of the device's queued work
    names: list[str] = field(default_factory=lambda: [""])
    edges: list[tuple[int, int, int, int]] = field(default_factory=list)
    spent: list[tuple[int, int, str, str]] = field(
        default_factory=list
    )  # begin, end, operation, library
    kernels: list[tuple[int, int, int]] = field(default_factory=list)  # begin, end, launch
    launches: list[tuple[int, int, str]] = field(default_factory=list)  # begin, end, name
    operation: str = ""

    def _top(self, library: int, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return library << NAME_BITS | self.names.index(name)

    @contextmanager
    def within(self, operation: str) -> Iterator[None]:
        """Enter an outermost operation."""
        self.edges.append((self.now, self._top(0, operation), Kind.OPERATION_ENTER, 1))
        self.operation = operation
        yield
        self.operation = ""
        self.edges.append((self.now, 0, Kind.OPERATION_EXIT, 0))

    def runs(
        self, library: str, ns: int, kernels: Sequence[int] = (), name: str = "", copies: int = 0
    ) -> None:
        """Run a library for some time that includes launches of kernels; then copy."""
        with self.calls(library, name or f"{library}.call"):
            each = ns // (len(kernels) + 1)
            for kernel in kernels:
                self._spend(each, library)
                self._launch("cudaLaunchKernel", kernel)
            self._spend(ns - each * len(kernels), library)
            for _ in range(copies):
                self._launch("cudaMemcpyAsync", 1_000)

    @contextmanager
    def calls(self, library: str, name: str) -> Iterator[None]:
        """Call a wrapped function of a library; Python itself has no wrapper."""
        if library == "python":
            yield
            return
        inside, outside = (ns // 2 for ns in self.tapped)
        self._spend(outside, "python")
        self.edges.append((self.now, self._top(NAMES[library], name), Kind.CALL_ENTER, 1))
        self._spend(inside, library)
        yield
        self._spend(inside, library)
        self.edges.append((self.now, 0, Kind.CALL_EXIT, 0))
        self._spend(outside, "python")

    def waits(self) -> None:
        """Wait until the device is idle."""
        until = max(self.now, self.device)
        self.launches.append((self.now, until, "cudaStreamSynchronize"))
        self._spend(until - self.now, "waiting")

    def _launch(self, name: str, kernel: int) -> None:
        begin = self.now
        self._spend(self.launch + self.traced.get(name, 0), "api")
        self.launches.append((begin, self.now, name))
        start = max(self.device, begin + self.launch // 2)
        self.device = start + kernel
        self.kernels.append((start, self.device, len(self.launches)))

    def _spend(self, ns: int, library: str) -> None:
        self.spent.append((self.now, self.now + ns, self.operation, library))
        self.now += ns

    # --- recording
    # -----------------------------------------------------------------------------------

    def _theirs(self, moment: int) -> int:
        """Convert a moment to the tracer's clock."""
        return moment + AHEAD + self.drift * (moment - START) // max(1, self.now - START)

    def lane(self) -> Lane:
        edges = np.array([(START, 0, Kind.MARK, 0), *self.edges], EDGE)
        return Lane(self.number, self.number, "", edges, self.now)

    def trace(self) -> Trace:
        """Return the tracer's intervals, in our clock."""
        rows = Rows()
        for number, (begin, end, name) in enumerate(self.launches, 1):
            rows.call(name, self._theirs(begin), self._theirs(end), self.number, number)
        for begin, end, launch in self.kernels:
            times = self._theirs(begin), self._theirs(end)
            rows.run(Sort.KERNEL, "kernel", *times, 0, 7, launch)
        window = self._theirs(START), self._theirs(self.now)
        seen = rows.trace(self.number, "a simulated tracer", *window, {0: "simulated GPU"})
        ends = (Anchor(self._theirs(t), t, 0) for t in (START, self.now))
        return seen.to_our_clock(Joint(*ends))

    # --- the truth
    # -----------------------------------------------------------------------------------

    def busy(self, operation: str | None = None) -> int:
        """Return the busy nanoseconds of the device, in total or during an operation; kernels do not overlap."""
        total, k = 0, 0
        for begin, end, of, _ in self.spent:
            while k < len(self.kernels) and self.kernels[k][1] <= begin:
                k += 1
            at = k
            while at < len(self.kernels) and self.kernels[at][0] < end:
                ran = min(end, self.kernels[at][1]) - max(begin, self.kernels[at][0])
                total += ran if operation in (None, of) else 0
                at += 1
        return total

    def took(self, operation: str | None = None, library: str | None = None) -> int:
        """Return the nanoseconds of an operation, in a library or in total."""
        return sum(
            end - begin
            for begin, end, of, on in self.spent
            if operation in (None, of) and library in (None, on)
        )


def recording(processes: Sequence[Process], *, traced: bool = True) -> Recording:
    """Return the recording of some processes, with or without device tracing."""
    table: dict[str, int] = {"": 0}
    lanes: list[Lane] = []
    for process in processes:
        lane = process.lane()
        numbers = np.array(
            [table.setdefault(name, len(table)) for name in process.names], np.uint32
        )
        name = lane.edges["top"] & NAME_MASK
        lane.edges["top"] = lane.edges["top"] >> NAME_BITS << NAME_BITS | numbers[name]
        lanes.append(lane)
    traces = [process.trace() for process in processes if traced]
    seen, devices = merge_traces(lanes, traces, table)
    return Recording(seen, tuple(table), devices=devices)
