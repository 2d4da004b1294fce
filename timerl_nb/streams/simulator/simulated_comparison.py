"""A stream by all ways of running it, simulated beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.language.foreign_names import expect_type, explain_call_errors
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.simulator.gpu_constants import RTX3070, Gpu, by_name
from timerl_nb.streams.simulator.simulated_run import Simulated
from timerl_nb.streams.strategies import SIMULATED


@dataclass(frozen=True)
class ComparedStrategy:
    """A way of running a stream: µs, occupancy over these µs, and how much faster it is than one queue of a device, and of Accel-Sim's."""

    how: str
    us: float
    occupancy: float
    device: float
    accel_sim: float


@dataclass(frozen=True, repr=False)
class Comparison:
    """Of a stream the ways of running it; `rows` begin with the two baselines."""

    stream: Stream
    gpu: Gpu
    size: int
    streams: int
    rows: Sequence[ComparedStrategy]

    def __getitem__(self, how: str) -> ComparedStrategy:
        return next(row for row in self.rows if row.how == how)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [
            f"{self.stream.name}: {format_count(len(self.stream), 'kernel')}, width {self.stream.width:.2f}, on {self.gpu.name}; "
            f"window {self.size}, {format_count(self.streams, 'stream')}",
            f"{'':24}{'µs':>12}{'occupancy':>11}{'faster than serial':>20}{'than Accel-Sim’s':>18}",
        ]
        lines += [
            f"{r.how:24}{r.us:12,.1f}{r.occupancy:11.2f}{r.device:20.2f}{r.accel_sim:18.2f}"
            for r in self.rows
        ]
        return "\n".join(lines)


@explain_call_errors
def compare(
    stream: Stream,
    *,
    gpu: Gpu | str = RTX3070,
    size: int = 32,
    streams: int = 8,
    scheduled: int = 48,
) -> Comparison:
    """Simulate a stream by every way there is.

    Baselines are one queue of a device, where a kernel that is queued starts soon after the one ahead, and one
    of Accel-Sim's, where each pays its launch. "graph, built before" is the graph without its construction.

    Args:
        gpu, size, streams, scheduled: as for `stream.simulate`.
    """
    expect_type(stream, Stream, "a stream", "trl.streams.record(…).")
    gpu = by_name(gpu)
    slow = replace(gpu, queued=gpu.launch)
    runs: dict[str, Simulated] = {
        "serial": stream.simulate("serial", gpu=gpu),
        "serial, Accel-Sim": stream.simulate("serial", gpu=slow),
    }
    options = {"gpu": gpu, "size": size, "streams": streams, "scheduled": scheduled}
    runs |= {how: stream.simulate(how, **options) for how in SIMULATED if how not in runs}
    found = [(how, one.total, one.occupancy) for how, one in runs.items()]
    graph = runs["graph"]
    if graph.us:
        found.append(("graph, built before", graph.us, graph.occupancy * graph.total / graph.us))
    baselines = [one.us for one in list(runs.values())[:2]]
    rows = [
        ComparedStrategy(how, us, occupancy, *(of / us if us else 1.0 for of in baselines))
        for how, us, occupancy in found
    ]
    return Comparison(stream, gpu, size, streams, tuple(rows))
