"""What a window is compared with: kernels in order, and a graph of all of them that is made ahead (§II-D)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from time import perf_counter

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.kernel_stream import Stream, upstream_of
from timerl_nb.streams.run_report import Report
from timerl_nb.streams.scheduling_window import SchedulingWindow
from timerl_nb.streams.thread_execution import Threads, one_by_one, run_in, runnable


def run_serial(stream: Stream) -> Report:
    """In order, on the thread that asks."""
    alone = one_by_one("serial", lambda kernel: runnable(kernel)(), len(stream))
    return replace(run_in(alone, stream), size=0)


@dataclass(frozen=True)
class Graph:
    """All kernels of a stream, and who waits for whom among them: constructed once, run as often as one likes.

    Attributes:
        upstream, downstream: of each kernel those that it waits for, and that wait for it.
        construction: µs that it took to find them.
    """

    kernels: tuple[Kernel, ...]
    upstream: tuple[tuple[int, ...], ...]
    downstream: tuple[list[int], ...]
    construction: float


def graph(stream: Stream) -> Graph:
    """The graph of a stream, for `stream.run("graph", built=…)`."""
    expect_type(
        stream, Stream, "a stream", "trl.streams.record(function, …), or trl.streams.load(path)."
    )
    begun = perf_counter()
    upstream = upstream_of(stream.kernels)
    downstream: list[list[int]] = [[] for _ in upstream]
    for k, waits in enumerate(upstream):
        for u in waits:
            downstream[u].append(k)
    return Graph(stream.kernels, upstream, tuple(downstream), (perf_counter() - begun) * 1e6)


class Unfolding(SchedulingWindow):
    """A run of a graph: a window that all its kernels are in from the beginning."""

    def __init__(self, graph: Graph) -> None:
        self.kernels = [*graph.kernels]
        self.size = len(self.kernels)
        self.free = []
        self.waits = [len(waits) for waits in graph.upstream]
        self.downstream = [*graph.downstream]
        self.ready = deque(k for k, count in enumerate(self.waits) if not count)
        self._remove = _nothing


def _nothing(slot: int) -> None: ...


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
