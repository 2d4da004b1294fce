"""Baselines for the window: serial execution, and a graph of all dependences built before the run. Source: ACS
§II-D.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from time import perf_counter

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.language.foreign_names import expect_type, explain_call_errors
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.kernel_stream import Stream, upstream_of
from timerl_nb.streams.run_report import Report
from timerl_nb.streams.scheduling_window import SchedulingWindow
from timerl_nb.streams.thread_execution import Threads, one_by_one, run_in, runnable


def run_serial(stream: Stream) -> Report:
    """Run the kernels one after the other on the calling thread."""
    alone = one_by_one("serial", lambda kernel: runnable(kernel)(), len(stream))
    return replace(run_in(alone, stream), size=0)


@dataclass(frozen=True)
class Graph:
    """All kernels of a stream with their dependences: built once, run any number of times.

    Attributes:
        kernels: the kernels of the stream.
        upstream: for each kernel, its upstream kernels.
        downstream: for each kernel, its downstream kernels.
        construction: the duration of the dependence analysis in µs.

    Example:
        >>> stream = trl.streams.workload("ant")
        >>> built = trl.streams.graph(stream)
        >>> len(built.kernels) == len(stream)
        True
    """

    kernels: tuple[Kernel, ...]
    upstream: tuple[tuple[int, ...], ...]
    downstream: tuple[list[int], ...]
    construction: float


@explain_call_errors
def graph(stream: Stream) -> Graph:
    """Return the dependence graph of a stream, for `stream.run("graph", built=…)`.

    Args:
        stream: a stream, recorded or loaded.

    Raises:
        CallError: `stream` is not a stream.

    Example:
        >>> @trl.kernel(reads=lambda a, out: a, writes=lambda a, out: out)
        ... def double(a, out):
        ...     np.multiply(a, 2.0, out=out)
        >>> a, b, c = np.ones(4), np.zeros(4), np.zeros(4)
        >>> stream = trl.streams.record(lambda: (double(a, b), double(b, c)))
        >>> trl.streams.graph(stream).upstream
        ((), (0,))
    """
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
    """Run of a graph: a window that contains all kernels from the start."""

    def __init__(self, graph: Graph) -> None:
        self.kernels = [*graph.kernels]
        self.size = len(self.kernels)
        self.free = []
        self.waits = [len(waits) for waits in graph.upstream]
        self.upstream_slots = [list(waits) for waits in graph.upstream]
        self.downstream = [*graph.downstream]
        self.ready = deque(k for k, count in enumerate(self.waits) if not count)
        self._remove = _nothing


def _nothing(slot: int) -> None: ...


def run_graph(
    stream: Stream, streams: int = 2, built: Graph | None = None, record: int = 10_000
) -> Report:
    """Run a stream by a dependence graph, on threads.

    Args:
        stream: the stream.
        streams: the number of threads.
        built: the graph from `trl.streams.graph`; by default this function builds it.
        record: the maximal number of kernels in the report.

    Raises:
        OptionError: the graph belongs to another stream.
    """
    if built is not None and built.kernels is not stream.kernels:
        raise OptionError(
            "the graph belongs to another stream.", hint="build it by trl.streams.graph(stream)."
        )
    made = graph(stream) if built is None else built
    for kernel in made.kernels:
        runnable(kernel)
    unfolding = Unfolding(made)
    with Threads(unfolding, streams, "graph", record=record, ahead=made.upstream) as opened:
        pass
    construction = 0.0 if built is not None else made.construction
    return replace(opened.report, size=0, construction=construction)
