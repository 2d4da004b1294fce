"""Execution of streams on a GPU with PyTorch: windows and CUDA graphs. Tests use a fake of `torch.cuda`.

A kernel's `run` launches its work on PyTorch's current stream and returns without waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from time import perf_counter
from typing import Any

from timerl_nb.base.errors import ExecutionError, MissingPartError
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.streams.dependence_analysis import finder
from timerl_nb.streams.kernel_declaration import Kernel, run_inside
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.run_report import Launch, Report
from timerl_nb.streams.scheduling_window import SchedulingWindow
from timerl_nb.streams.thread_execution import Threads, run_in, runnable


def _cuda(how: str) -> Any:
    """Return `torch.cuda`.

    Raises:
        MissingPartError: PyTorch is not installed or finds no GPU.
    """
    simulated = {"stream-sync": "acs-sw", "events": "events", "cuda-graph": "graph"}[how]
    try:
        found: Any = import_module("torch").cuda
    except ImportError:
        found = None
    if found is None or not found.is_available():
        raise MissingPartError(
            f"{how!r} needs PyTorch with a GPU, which is not available.",
            hint=f"simulate a GPU by stream.simulate({simulated!r}).",
        )
    return found


def run_stream_sync(
    stream: Stream, size: int = 32, streams: int = 2, deps: str = "auto", record: int = 10_000
) -> Report:
    """Run a stream by ACS-SW: one thread per CUDA stream launches a kernel and waits for it. Source: ACS
    Algorithm 2.
    """
    cuda = _cuda("stream-sync")
    lanes = [cuda.Stream() for _ in range(integer("streams", streams, least=1))]

    def caller_for(lane: Any) -> Callable[[Callable[[], object]], None]:
        def run(kernel: Callable[[], object]) -> None:
            with cuda.stream(lane):
                kernel()
            lane.synchronize()

        return run

    cuda.synchronize()  # completes earlier writes to the kernels' inputs
    window, by_lane = SchedulingWindow(size, finder(deps)), [*map(caller_for, lanes)]
    return run_in(Threads(window, streams, "stream-sync", record=record, lanes=by_lane), stream)


class _Launcher:
    """Launches kernels without waiting. Dependences become CUDA events.

    A kernel goes to the CUDA stream of an upstream kernel if that is the last kernel there. The stream then
    waits for the events of the other upstream kernels.
    """

    def __init__(self, cuda: Any, lanes: Sequence[Any]) -> None:
        self._cuda, self._lanes = cuda, lanes
        self._last: list[Any] = [None] * len(lanes)  # by CUDA stream, the event of its last kernel
        self._next = 0

    def launch(self, kernel: Kernel, upstream: Sequence[tuple[int, Any]]) -> tuple[int, Any]:
        """Launch a kernel.

        Args:
            kernel: the kernel.
            upstream: the results of this method for its upstream kernels.

        Returns:
            The number of the CUDA stream, and an event after the kernel.
        """
        behind = next((lane for lane, event in upstream if self._last[lane] is event), None)
        if behind is None:
            behind, self._next = self._next, (self._next + 1) % len(self._lanes)
        stream = self._lanes[behind]
        with self._cuda.stream(stream):
            for lane, event in upstream:
                if lane != behind:
                    stream.wait_event(event)
            run_inside(runnable(kernel))
            event = self._cuda.Event()
            event.record(stream)
        self._last[behind] = event
        return behind, event


def run_events(stream: Stream, size: int = 32, streams: int = 2, deps: str = "auto") -> Report:
    """Run a stream with events: the host launches each kernel on its entry into the window, and the device waits
    for dependences. Source: ACS §III-A.
    """
    cuda = _cuda("events")
    lanes = [cuda.Stream() for _ in range(integer("streams", streams, least=1))]
    window, launcher = SchedulingWindow(size, finder(deps)), _Launcher(cuda, lanes)
    flying: dict[int, tuple[int, Any]] = {}  # by slot, the oldest first
    held = [0] * window.size
    launches: list[Launch] = []
    cuda.synchronize()
    first = perf_counter()
    for k, kernel in enumerate(stream.kernels):
        if window.is_full:
            done = [s for s, (_, event) in flying.items() if event.query()]
            if not done:
                done = [next(iter(flying))]
                flying[done[0]][1].synchronize()
            for slot in done:
                window.complete(slot)
                del flying[slot]
        slot = window.insert(kernel)
        window.ready.clear()  # all kernels are launched; the device waits
        upstream = window.upstream_slots[slot]
        flying[slot] = launcher.launch(kernel, [flying[s] for s in upstream])
        held[slot] = k
        at = (perf_counter() - first) * 1e6
        waits = tuple(held[s] for s in upstream)
        launches.append(Launch(k, *kernel.description, flying[slot][0], slot, waits, at, at, at))
    cuda.synchronize()
    us = (perf_counter() - first) * 1e6
    return Report("events", window.size, streams, us, launches, len(launches))


def run_cuda_graph(stream: Stream, streams: int = 2) -> Report:
    """Run a stream as one CUDA graph, captured from several CUDA streams. The report lists the time of
    construction separately.

    Raises:
        ExecutionError: a kernel cannot be captured, for example because it copies data to the host.
    """
    cuda = _cuda("cuda-graph")
    lanes = [cuda.Stream() for _ in range(integer("streams", streams, least=1))]
    cuda.synchronize()
    begun = perf_counter()
    graph, main, launcher = cuda.CUDAGraph(), cuda.Stream(), _Launcher(cuda, lanes)
    made: list[tuple[int, Any]] = []
    try:
        with cuda.graph(graph, stream=main):
            fork = cuda.Event()
            fork.record(main)
            for lane in lanes:
                lane.wait_event(fork)
            for kernel, upstream in zip(stream.kernels, stream.edges, strict=True):
                made.append(launcher.launch(kernel, [made[u] for u in upstream]))
            for lane in lanes:
                join = cuda.Event()
                join.record(lane)
                main.wait_event(join)
    except Exception as error:
        if len(made) == len(stream):
            raise
        first_said: BaseException = (
            error.__context__ or error
        )  # the end of the capture fails too; its context has the first error
        raise ExecutionError(
            f"kernel {len(made)}, {stream.kernels[len(made)]}, cannot be captured in a CUDA graph: {first_said}",
            hint='run it by "events" or "stream-sync". A captured kernel must not wait for the device or copy to the host.',
        ) from error
    first = perf_counter()
    graph.replay()
    cuda.synchronize()
    us = (perf_counter() - first) * 1e6
    launches = [
        Launch(k, *one.description, lane, -1, waits)
        for k, (one, (lane, _), waits) in enumerate(
            zip(stream.kernels, made, stream.edges, strict=True)
        )
    ]
    construction = (first - begun) * 1e6
    return Report("cuda-graph", 0, streams, us, launches, len(made), construction)
