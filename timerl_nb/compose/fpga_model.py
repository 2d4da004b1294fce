"""FPGA modelled by the paper's equations: one pipeline stage per tree level and per network layer.

Nothing is measured. Our copy of the paper lacks Eqs. 3 to 5; they are reconstructed from its text.
A pipeline takes the time of its slowest stage once per row of a batch, and once per stage to fill
and drain. Source: PEARL, sections 4 and 5.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.compose.primitive_latency_table import Device, Latency, Manager
from timerl_nb.replay.prioritization.sum_tree import FANOUTS
from timerl_nb.replay.prioritization.tree_levels import Levels

_CYCLES = 2  # cycles of a stage per number


@explain_constructor
@dataclass(frozen=True)
class Fpga:
    """An FPGA, described by its resources.

    Attributes:
        frequency: clock frequency in hertz.
        sram: on-chip memory in bits.
        dsps: number of multipliers.
        source: origin of these figures.

    Raises:
        ShapeError: the frequency is not positive, or another figure is negative or not an integer.

    Example:
        >>> fpga = trl.compose.Fpga(frequency=4e8, sram=10**8, dsps=1000, source="made up")
        >>> device = fpga.device(1000, fanout=16, layers=[(4, 64), (64, 2)], batch=32, inserted=8)
        >>> device.both is not None
        True
    """

    frequency: float
    sram: int
    dsps: int
    source: str

    def __post_init__(self) -> None:
        if not number("the frequency", self.frequency, least=0) > 0:
            raise ShapeError(
                f"the frequency is {self.frequency!r}.", hint="pass hertz, more than 0."
            )
        integer("sram", self.sram, least=0)
        integer("dsps", self.dsps, least=0)

    def manager(self, capacity: int, fanout: int, batch: int, inserted: int) -> Manager:
        """Return latencies of the replay manager, a pipeline with one stage per tree level.

        Args:
            capacity: capacity of the buffer.
            fanout: children per tree node.
            batch, inserted: rows per iteration.
        """
        depth = _depth(capacity, fanout)
        integer("batch", batch, least=1)
        integer("inserted", inserted, least=0)
        cycle = _CYCLES / self.frequency

        def pass_latency(rows: int, each: int) -> Latency:
            return Latency(cycle * each * (rows + depth), is_modelled=True)

        return Manager(
            pass_latency(batch, fanout), pass_latency(inserted, 1), pass_latency(batch, 1)
        )

    def learner(self, layers: Sequence[tuple[int, int]], batch: int, copies: int) -> Latency:
        """Return the latency of a gradient step.

        The stages are the layers forward, and backward with respect to weights and inputs.

        Args:
            layers: inputs and outputs of each layer.
            batch: rows.
            copies: number of parallel pipelines; they share the batch and the multipliers.

        Raises:
            ShapeError: an argument is not a positive integer, or there are too few multipliers.
        """
        work = stages(layers)
        integer("batch", batch, least=1)
        if integer("copies", copies, least=1) * len(work) > self.dsps:
            raise ShapeError(
                f"{copies} pipelines of {len(work)} stages need more than {self.dsps} multipliers.",
                hint="use fewer pipelines; each stage needs a multiplier.",
            )
        rows = -(-batch // copies)
        slowest = max(
            n / u for n, u in zip(work, balance_multipliers(work, self.dsps // copies), strict=True)
        )
        return Latency(slowest * (rows + len(work)) / self.frequency, is_modelled=True)

    def device(
        self,
        capacity: int,
        fanout: int,
        layers: Sequence[tuple[int, int]],
        batch: int,
        inserted: int,
    ) -> Device:
        """Return latencies of both primitives, each alone and together, as far as they fit.

        Args:
            capacity: capacity of the buffer.
            fanout: children per tree node.
            layers: inputs and outputs of each layer.
            batch, inserted: rows per iteration.
        """
        _depth(capacity, fanout)
        integer("batch", batch, least=1)
        tree = 32 * sum(Levels(capacity, fanout).widths)
        weights = 32 * sum((n + 1) * m for n, m in layers)
        work = stages(layers)
        copies = max(
            (
                k
                for k in range(1, batch + 1)
                if k * len(work) <= self.dsps and k * weights <= self.sram
            ),
            default=0,
        )
        why = [f"the tree takes {tree:,} bits of {self.sram:,}"] * (tree > self.sram)
        why += [f"the network takes {weights:,} bits and {len(work)} multipliers"] * (not copies)
        manager = None if tree > self.sram else self.manager(capacity, fanout, batch, inserted)
        if not copies:
            return Device(manager, None, None, "; ".join(why))
        # the number of copies with the shortest time for the batch
        learner = min(
            (self.learner(layers, batch, k) for k in range(1, copies + 1)), key=lambda x: x.seconds
        )
        left = [k for k in range(1, copies + 1) if k * weights + tree <= self.sram]
        if manager is None or not left:
            why += ["both together exceed its memory"] * (manager is not None)
            return Device(manager, learner, None, "; ".join(why))
        beside = min((self.learner(layers, batch, k) for k in left), key=lambda x: x.seconds)
        return Device(manager, learner, (manager, beside))


def _depth(capacity: int, fanout: int) -> int:
    """Return the number of tree levels below the root."""
    integer("the capacity", capacity, least=1)
    if fanout not in FANOUTS:
        raise ShapeError(
            f"fanout={fanout!r} is not supported.", hint=f"use {', '.join(map(str, FANOUTS))}."
        )
    return len(Levels(capacity, fanout).widths) - 1


def stages(layers: Sequence[tuple[int, int]]) -> list[int]:
    """Return multiplications per row of each pipeline stage.

    Stages are the layers forward, backward by weights, and backward by inputs except for the first
    layer.
    """
    pairs = [(integer("inputs", n, least=1), integer("outputs", m, least=1)) for n, m in layers]
    if not pairs:
        raise ShapeError(
            "layers is empty.", hint="pass inputs and outputs of each layer: [(4, 64), (64, 2)]."
        )
    products = [n * m for n, m in pairs]
    return products + products + products[1:]


def balance_multipliers(work: Sequence[int], units: int) -> list[int]:
    """Distribute multipliers over the stages, at least one each, to minimize the slowest one."""
    given = [1] * len(work)
    for _ in range(units - len(work)):
        slowest = max(range(len(work)), key=lambda k: work[k] / given[k])
        given[slowest] += 1
    return given
