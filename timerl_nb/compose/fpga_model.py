"""An FPGA by the paper's equations: a stage for each level of the tree, and for each layer (003_bc3f8b946743a61e, §4, §5.1).

Nothing here was measured. Our copy of the paper lacks Eqs. 3 to 5; they are rebuilt from its text: a pipeline takes its slowest
stage's time for each row of a batch, and for each stage once more to fill and to drain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compose.primitive_latency_table import Device, Latency, Manager
from timerl_nb.replay.prioritization.sum_tree import FANOUTS
from timerl_nb.replay.prioritization.tree_levels import Levels

_CYCLES = 2  # of a stage for each number that it looks at


@dataclass(frozen=True)
class Fpga:
    """What an FPGA has.

    Attributes:
        frequency: hertz.
        sram: bits of memory on the chip.
        dsps: multipliers.
        source: where these figures are from.

    Raises:
        ShapeError: the frequency is not above 0, or another figure no integer of at least 0.
    """

    frequency: float
    sram: int
    dsps: int
    source: str

    def __post_init__(self) -> None:
        if not number("the frequency", self.frequency, least=0) > 0:
            raise ShapeError(f"the frequency must be above 0, not {self.frequency!r}.")
        integer("sram", self.sram, least=0)
        integer("dsps", self.dsps, least=0)

    def manager(self, capacity: int, fanout: int, batch: int, inserted: int) -> Manager:
        """A replay manager whose stages are the levels of its tree: one descends while the next begins."""
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
        """A step of gradient descent: the layers forward, and backward by weights and inputs, are the stages.

        Args:
            layers: inputs and outputs of each.
            copies: pipelines beside each other, which share the batch and the multipliers.

        Raises:
            ShapeError: an argument is no integer of at least 1, or there are too few multipliers.
        """
        work = stages(layers)
        integer("batch", batch, least=1)
        if integer("copies", copies, least=1) * len(work) > self.dsps:
            raise ShapeError(
                f"{copies} pipelines of {len(work)} stages have {self.dsps} multipliers.",
                hint="each stage needs one.",
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
        """What it takes for both primitives, each alone and together, as far as they fit."""
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
        # the copies of which the batch is done the soonest
        learner = min(
            (self.learner(layers, batch, k) for k in range(1, copies + 1)), key=lambda x: x.seconds
        )
        left = [k for k in range(1, copies + 1) if k * weights + tree <= self.sram]
        if manager is None or not left:
            why += ["both together are more than its memory"] * (manager is not None)
            return Device(manager, learner, None, "; ".join(why))
        beside = min((self.learner(layers, batch, k) for k in left), key=lambda x: x.seconds)
        return Device(manager, learner, (manager, beside))


def _depth(capacity: int, fanout: int) -> int:
    """Return the number of levels of a tree below its root."""
    integer("the capacity", capacity, least=1)
    if fanout not in FANOUTS:
        raise ShapeError(
            f"fanout={fanout!r} is none.", hint=f"one of {', '.join(map(str, FANOUTS))}."
        )
    return len(Levels(capacity, fanout).widths) - 1


def stages(layers: Sequence[tuple[int, int]]) -> list[int]:
    """Products of each stage for a row: a layer forward, by its weights and, but for the first, by its inputs."""
    pairs = [(integer("inputs", n, least=1), integer("outputs", m, least=1)) for n, m in layers]
    if not pairs:
        raise ShapeError("there are no layers.", hint="[(4, 64), (64, 2)]: inputs and outputs.")
    products = [n * m for n, m in pairs]
    return products + products + products[1:]


def balance_multipliers(work: Sequence[int], units: int) -> list[int]:
    """Multipliers for each stage so that the slowest is as fast as can be: at least one each."""
    given = [1] * len(work)
    for _ in range(units - len(work)):
        slowest = max(range(len(work)), key=lambda k: work[k] / given[k])
        given[slowest] += 1
    return given
