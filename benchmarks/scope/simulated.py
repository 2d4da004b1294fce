"""A machine with GPUs that is not there: its clock goes by what it is told, and all that happens on it is known.

It writes what a recorder and a tracer would have written of it, the latter by a clock of its own; and it knows the
truth, which it adds up from its own list of intervals, one by one.
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
    """One thread, which has operations, calls libraries, and launches kernels on one stream of a device.

    Args:
        number: its id.
        launch: nanoseconds of a launch.
        traced: nanoseconds by which tracing makes calls of a name longer.
        tapped: nanoseconds by which a tap makes each call longer, inside of its edges and outside; both even.
        drift: nanoseconds by which the tracer's clock goes ahead in all.
    """

    number: int = 1
    launch: int = 5_000
    traced: Mapping[str, int] = field(default_factory=dict)
    tapped: tuple[int, int] = (0, 0)
    drift: int = 0
    now: int = START
    device: int = START  # until when the device is busy
    names: list[str] = field(default_factory=lambda: [""])
    edges: list[tuple[int, int, int, int]] = field(default_factory=list)
    spent: list[tuple[int, int, str, str]] = field(
        default_factory=list
    )  # begin, end, operation, library
    kernels: list[tuple[int, int, int]] = field(default_factory=list)  # begin, end, of which launch
    launches: list[tuple[int, int, str]] = field(default_factory=list)  # begin, end, name
    operation: str = ""

    def _top(self, library: int, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return library << NAME_BITS | self.names.index(name)

    @contextmanager
    def within(self, operation: str) -> Iterator[None]:
        """An operation, which is inside of no other."""
        self.edges.append((self.now, self._top(0, operation), Kind.OPERATION_ENTER, 1))
        self.operation = operation
        yield
        self.operation = ""
        self.edges.append((self.now, 0, Kind.OPERATION_EXIT, 0))

    def runs(
        self, library: str, ns: int, kernels: Sequence[int] = (), name: str = "", copies: int = 0
    ) -> None:
        """A library runs so long, in parts between which it launches kernels of so many nanoseconds; and copies then."""
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
        """A tapped function of a library, unless that is Python's."""
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
        """Until the device has done all."""
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

    # --- what was recorded of it -----------------------------------------------------------------

    def _theirs(self, moment: int) -> int:
        """A moment by the tracer's clock."""
        return moment + AHEAD + self.drift * (moment - START) // max(1, self.now - START)

    def lane(self) -> Lane:
        edges = np.array([(START, 0, Kind.MARK, 0), *self.edges], EDGE)
        return Lane(self.number, self.number, "", edges, self.now)

    def trace(self) -> Trace:
        """What a tracer saw, by our clock."""
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

    # --- the truth -------------------------------------------------------------------------------

    def busy(self, operation: str | None = None) -> int:
        """Nanoseconds in which a kernel ran, in all or during an operation; kernels follow each other."""
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
        """Nanoseconds of an operation, in a library, or of all."""
        return sum(
            end - begin
            for begin, end, of, on in self.spent
            if operation in (None, of) and library in (None, on)
        )


def recording(processes: Sequence[Process], *, traced: bool = True) -> Recording:
    """What was recorded of some processes, by a tracer of devices, too, or not."""
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
