"""Comparison of all strategies for one stream by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.language.foreign_names import expect_type, explain_call_errors
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.simulator.gpu_constants import Gpu, by_name
from timerl_nb.streams.simulator.simulated_run import Simulated
from timerl_nb.streams.strategies import SIMULATED


@dataclass(frozen=True)
class ComparedStrategy:
    """Result of one strategy.

    Attributes:
        how: the strategy.
        us: the total time in µs.
        occupancy: the average occupancy in this time.
        device: the speedup over a single queue of a device.
        accel_sim: the speedup over a single queue of Accel-Sim.
    """

    how: str
    us: float
    occupancy: float
    device: float
    accel_sim: float


@dataclass(frozen=True, repr=False)
class Comparison:
    """Simulated results of all strategies for one stream.

    Attributes:
        stream, gpu, size, streams: the arguments of the comparison.
        rows: one result per strategy; the first two are baselines. `comparison["acs-sw"]` finds one by name.

    Example:
        >>> comparison = trl.streams.compare(trl.streams.workload("ant"))
        >>> comparison["acs-hw"].device > 1
        True
    """

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
    gpu: Gpu | str = "RTX3070",
    size: int = 32,
    streams: int = 8,
    scheduled: int = 48,
) -> Comparison:
    """Simulate a stream under all strategies.

    The baselines are a single queue of a device, in which a queued kernel starts soon after the previous one,
    and a single queue of Accel-Sim, in which every kernel pays its launch. "graph, built before" is the graph
    without its construction.

    Args:
        stream: the stream.
        gpu, size, streams, scheduled: as in `stream.simulate`.

    Returns:
        A table of times and speedups.

    Raises:
        CallError: `stream` is not a stream.

    Example:
        >>> comparison = trl.streams.compare(trl.streams.workload("ant"), gpu="RTX3060")
        >>> comparison.rows[0].how
        'serial'
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
