"""Kernels on the streams of a real GPU (figures 10 and 21):

`python -m benchmarks acs gpu [ROUNDS]`. Needs PyTorch with CUDA.

Networks recorded from PyTorch run unchanged. Other recordings have only reads, writes and
durations: a busy-wait kernel on one multiprocessor replaces each of their kernels, with the
duration simulated for one queue. The comparison therefore covers launch order only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, Final

from benchmarks.acs.figures import NETWORK, STEP, table
from benchmarks.acs.kinds import DYNAMIC, SIMULATIONS, STATIC
from timerl_nb.base.errors import ExecutionError
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.recorders import record
from timerl_nb.streams.simulator.gpu_constants import RTX3070
from timerl_nb.streams.workloads import workload

# µs per operation of a thread
WAITING: Final = {**dict.fromkeys(SIMULATIONS, STEP), **dict.fromkeys(STATIC, NETWORK)}
MOST: Final = 8  # streams
WAYS: Final[dict[str, Callable[[Stream], Any]]] = {
    f"{how} {n}": partial(Stream.run, how=how, streams=n)
    for how, n in (("stream-sync", 2), ("stream-sync", MOST), ("events", MOST))
}


def main(rounds: str = "7") -> None:
    """Print both figures.

    Raises:
        SystemExit: No GPU is available.
    """
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no GPU: python -m benchmarks acs simulates one.")
    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, median of {rounds} rounds\n"
    )
    print("### Launching and waiting (figure 10)\n")
    print(_overheads(torch))
    print("\n### Over one queue (figure 21)\n")
    heads = ["", "kernels", "width", "µs in order", *WAYS, f"cuda-graph {MOST}", "constructed, ms"]
    print(table(heads, []))
    for stream in _streams(torch):
        print(table([], [_row(torch, stream, int(rounds))]).splitlines()[-1], flush=True)


def _overheads(torch: Any) -> str:
    """Return the host's overheads of scheduling by streams, in µs."""
    cuda = torch.cuda
    one, other, event = cuda.Stream(), cuda.Stream(), cuda.Event()

    def entered() -> None:
        with cuda.stream(one):
            pass

    def launched() -> None:
        cuda._sleep(1)

    def waited() -> None:
        cuda._sleep(1)
        cuda.current_stream().synchronize()

    what: dict[str, Callable[[], object]] = {
        "launch a kernel that does nothing": launched,
        "launch it, and wait for its stream": waited,
        "make a stream the current one": entered,
        "record an event": lambda: event.record(one),
        "have a stream wait for an event": lambda: other.wait_event(event),
        "ask whether an event has happened": event.query,
        "launch a graph of one kernel": _captured(torch, 1).replay,
    }
    rows = [(name, f"{_each(torch, call):.1f}") for name, call in what.items()]
    many = _captured(torch, 1000)
    many.replay()
    torch.cuda.synchronize()
    begun = perf_counter()
    many.replay()
    torch.cuda.synchronize()
    rows.append(("from one kernel of a graph to the next", f"{(perf_counter() - begun) * 1e3:.1f}"))
    return table(["", "µs"], rows)


def _captured(torch: Any, count: int) -> Any:
    """Capture a CUDA graph of a chain of empty kernels."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            torch.cuda._sleep(1)
    return graph


def _each(torch: Any, call: Callable[[], object], times: int = 500, rounds: int = 9) -> float:
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begun = perf_counter()
        for _ in range(times):
            call()
        found.append((perf_counter() - begun) / times * 1e6)
    return median(found)


def _streams(torch: Any) -> Iterator[Stream]:
    drawn = importlib.import_module("benchmarks.acs.torched").drawn
    for name in DYNAMIC:
        module, image = drawn(name, 0)
        with torch.no_grad():
            yield replace(record(module.cuda(), image.cuda()), name=name)
    cycles = _cycles(torch)
    for name, operation in WAITING.items():
        stream, gpu = workload(name), replace(RTX3070, operation=operation)
        waits = [
            replace(k, run=partial(torch.cuda._sleep, round(gpu.microseconds(k) * cycles)))
            for k in stream.kernels
        ]
        yield Stream(name, tuple(waits))


def _cycles(torch: Any) -> float:
    """Return the GPU clock cycles per microsecond."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(10_000_000)
    begin.record()
    torch.cuda._sleep(10_000_000)
    end.record()
    torch.cuda.synchronize()
    return 10_000_000 / (begin.elapsed_time(end) * 1e3)


def _row(torch: Any, stream: Stream, rounds: int) -> Sequence[Any]:
    """Return a row of speedups over in-order launches on one stream."""

    def in_order(_: Stream) -> None:
        for kernel in stream.kernels:
            assert kernel.run is not None
            kernel.run()

    took: dict[str, list[float]] = {}
    for k in range(rounds + 1):
        for way, run in {"": in_order, **WAYS}.items():
            torch.cuda.synchronize()
            begun = perf_counter()
            run(stream)
            torch.cuda.synchronize()
            if k:
                took.setdefault(way, []).append((perf_counter() - begun) * 1e6)
    base = median(took.pop(""))
    row = [stream.name, len(stream), f"{stream.width:.2f}", round(base)]
    row += [f"{base / median(times):.2f}" for times in took.values()]
    try:
        found = [stream.run("cuda-graph", streams=MOST) for _ in range(rounds + 1)][1:]
    except ExecutionError as error:
        return [*row, f"- ({error.what})", ""]
    made = median(one.construction for one in found) / 1e3
    return [*row, f"{base / median(one.us for one in found):.2f}", f"{made:.1f}"]
