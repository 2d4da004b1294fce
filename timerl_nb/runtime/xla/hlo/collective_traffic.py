"""Communication between devices: counted in XLA's optimised HLO, and predicted by the memory plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from sys import float_info
from typing import Final

from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.memory.placement.device_communication import predict_sum_bytes
from timerl_nb.runtime.xla.hlo.calls_per_run import count_calls, count_repetitions
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import Counting, Work
from timerl_nb.runtime.xla.hlo.hlo_parser import Computation, Instruction, computations
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered

_COLLECTIVES: Final = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-")


@dataclass(frozen=True)
class Communication:
    """Communication between the devices of a program in a run.

    Attributes:
        devices: the number of devices.
        processes: the number of processes.
        turns: the number of iterations of the outermost loop.
        predicted: bytes of the sums over the divided dimension, by operation, as predicted by the memory plan.
        collectives: the number of executed collective operations, such as all-reduce.
        nbytes: bytes of the results of these collectives, on one device.
        is_exact: False if their number depends on values of the run. Then the branch with most work counts, and a loop
            of unknown length counts as one iteration.

    A ring all-reduce of n bytes sends 2 (d - 1) / d * n bytes from each of d devices.
    """

    devices: int
    processes: int
    turns: int
    predicted: dict[str, int]
    collectives: int
    nbytes: int
    is_exact: bool = True

    def predict_weak_scaling(
        self,
        turn_seconds: float,
        devices: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
        *,
        latency: float = 20e-6,
        bandwidth: float = 12.5e9,
    ) -> dict[int, float]:
        """Predict the efficiency of more devices that each have as many instances as now.

        A collective of n bytes over d devices is assumed to take `2 log2(d) latency + 2 (d - 1) / d * n / bandwidth`,
        without overlap with computation. Nothing is measured.

        Args:
            turn_seconds: the seconds of an iteration on one device without communication, such as
                `program.turn_seconds()`.
            devices: numbers of devices.
            latency: seconds of one message; by default that of a data centre's Ethernet.
            bandwidth: bytes per second of one device's link; by default 100 Gbit/s.

        Returns:
            the efficiency by number of devices: the time of an iteration without communication, divided by its time with
            communication.

        Raises:
            ShapeError: an argument is not a number, or too small.
        """
        seconds = number("turn_seconds", turn_seconds, "call program.turn_seconds().", least=0)
        number("latency", latency, least=0)
        number("bandwidth", bandwidth, least=1)
        for d in devices:
            number("a number of devices", d, least=1)
        calls, nbytes = self.collectives / max(1, self.turns), self.nbytes / max(1, self.turns)
        lost = lambda d: calls * 2 * log2(d) * latency + 2 * (d - 1) / d * nbytes / bandwidth  # noqa: E731
        return {d: seconds / max(seconds + lost(d), float_info.min) for d in devices}

    def __str__(self) -> str:
        each = max(1, self.turns)
        per = f"per iteration of {self.turns:,}" if each > 1 else "in the whole run"
        lines = [
            f"{format_count(self.devices, 'device')} in {format_count(self.processes, 'process')}, {per}:",
            f"  predicted by the plan: {sum(self.predicted.values()) / each:,.0f} bytes of sums",
            f"  in XLA's program: {'' if self.is_exact else 'about '}{self.nbytes / each:,.0f} bytes in {self.collectives / each:,.1f} collectives",
        ]
        largest = sorted(self.predicted.items(), key=lambda pair: -pair[1])[:5]
        return "\n".join([*lines, *(f"    {name}: {n / each:,.0f} bytes" for name, n in largest)])


def communication_of(lowered: Lowered, turns: int | None) -> Communication | None:
    """Return the communication of a run; None for one device, or if the number of calls depends on values of the run.

    Waits for XLA to compile.
    """
    made, shards = count_calls(lowered), lowered.shards
    if shards is None or made is None:
        return None
    total = Work()
    for call_number, times in made.items():
        call = lowered.calls[call_number - 1]
        each = _collectives(lowered.hlo(call_number), None if call.loop is None else 1)
        total += each * count_repetitions(call, times)
    predicted = dict(predict_sum_bytes(lowered.plan, shards.share))
    counted = total.launches, total.nbytes, total.is_exact
    return Communication(shards.count, shards.processes, turns or 1, predicted, *counted)


def _collectives(text: str, turns: int | None) -> Work:
    entry, named = computations(text)
    loops = (x for x in entry.values() if x.kind == "while" and x.turns is None)
    known = {} if turns is None else {loop.called_computation("body"): turns for loop in loops}
    return _CollectiveCounter(named, known).count_computation(entry)


class _CollectiveCounter(Counting):
    """Counter of collectives only, with the bytes of their results."""

    def launch(self, one: Instruction, around: Computation) -> Work:
        started = one.kind.startswith(_COLLECTIVES) and not one.kind.endswith("-done")
        return Work(1, nbytes=one.nbytes) if started else Work()
