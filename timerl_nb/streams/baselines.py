"""What a window is compared with: kernels in order, and a graph of all of them that is made ahead (§II-D)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from time import perf_counter

from timerl_nb.errors import OptionError, user_origin
from timerl_nb.streams.kernels import Kernel, failure, refuse, taken_by
from timerl_nb.streams.report import Launch, Report
from timerl_nb.streams.scheduling_window import Window
from timerl_nb.streams.stream import Stream, upstream_of
from timerl_nb.streams.threads import Threads, runnable


def run_serial(stream: Stream) -> Report:
    """In order, on the thread that asks."""
    launches: list[Launch] = []
    origin, first = user_origin(), perf_counter()
    with taken_by(refuse):
        for k, kernel in enumerate(stream.kernels):
            run = runnable(kernel)
            begun = perf_counter()
            try:
                run()
            except Exception as error:
                raise failure(kernel, error, origin) from error
            times = ((t - first) * 1e6 for t in (begun, begun, perf_counter()))
            launches.append(Launch(k, kernel.name, kernel.line, kernel.op_ids, 0, -1, (), *times))
    us = launches[-1].ended if launches else 0.0
    return Report("serial", 0, 1, us, launches, len(launches))


@dataclass(frozen=True)
class Graph:
    """All kernels of a stream, and who waits for whom among them: constructed once, run as often as one likes.

    Attributes:
        upstream, downstream: of each kernel those that it waits for, and that wait for it.
        construction: µs that it took to find them.
    """

    kernels: tuple[Kernel, ...]
    upstream: tuple[tuple[int, ...], ...]
    downstream: tuple[tuple[int, ...], ...]
    construction: float


def graph(stream: Stream) -> Graph:
    """The graph of a stream, for `stream.run("graph", built=…)`."""
    begun = perf_counter()
    upstream = upstream_of(stream.kernels)
    downstream: list[list[int]] = [[] for _ in upstream]
    for k, waits in enumerate(upstream):
        for u in waits:
            downstream[u].append(k)
    lists = tuple(map(tuple, downstream))
    return Graph(stream.kernels, upstream, lists, (perf_counter() - begun) * 1e6)


class Unfolding(Window):
    """A run of a graph: a window that all its kernels are in from the beginning."""

    def __init__(self, graph: Graph) -> None:
        self.kernels = list(graph.kernels)
        self.size = self._count = len(self.kernels)
        self.free = []
        self._waits = [len(waits) for waits in graph.upstream]
        self._downstream = graph.downstream
        self.ready = deque(k for k, waits in enumerate(self._waits) if not waits)

    @property
    def count(self) -> int:
        return self._count

    def complete(self, slot: int) -> None:
        waits, ready = self._waits, self.ready
        for other in self._downstream[slot]:
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
        self._count -= 1


def run_graph(
    stream: Stream, streams: int = 2, built: Graph | None = None, record: int = 10_000
) -> Report:
    """By a graph on threads.

    Args:
        built: one that was constructed before (`trl.streams.graph`); none is then.

    Raises:
        OptionError: it is of another stream.
    """
    if built is not None and built.kernels is not stream.kernels:
        raise OptionError("the graph is of another stream.", hint="trl.streams.graph(stream).")
    made = graph(stream) if built is None else built
    for kernel in made.kernels:
        runnable(kernel)
    unfolding = Unfolding(made)
    with Threads(unfolding, streams, "graph", record=record, ahead=made.upstream) as opened:
        pass
    construction = 0.0 if built is not None else made.construction
    return replace(opened.report, size=0, construction=construction)
