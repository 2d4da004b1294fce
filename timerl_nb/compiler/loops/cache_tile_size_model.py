"""How large the blocks of a loop had better be: what one holds between two turns is to stay in the cache.

A closed form, for choosing: what a turn makes and reads crosses to memory as far as it does not fit the
cache, whole or block by block, and takes its time beside the arithmetic; what nothing in the loop reads
again crosses in any case. Each block begins every kernel of a turn anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from timerl_nb.base.machine_model import Machine
from timerl_nb.compiler.ir.analysis.cost_terms import MADE, READ, moving
from timerl_nb.compiler.ir.operation_attributes import ConvAttrs, DotAttrs
from timerl_nb.compiler.ir.operations import DataflowAttrs, Op, Tensor
from timerl_nb.compiler.memory.budget.candidate_cost import computing_seconds
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.scheduling.statements import Statement

_LEAST: Final = 16  # points: fewer fill no vector registers
_WORTH: Final = 1.1  # times as fast, or it is left whole


@dataclass(frozen=True)
class TileModel:
    """What a turn of a loop does, per point of a dimension.

    Attributes:
        count: of the points.
        read, made: bytes that it reads and makes of what stays in the loop,
        left: and makes of what nothing in it reads.
        inner: and holds within kernels, from one product to the next.
        shared: bytes that it reads in every block.
        seconds: of arithmetic, all points together.
        kernels: that a block begins in a turn.
    """

    count: int
    read: float
    made: float
    left: float
    inner: float
    shared: int
    seconds: float
    kernels: int

    @staticmethod
    def from_plan(
        plan: MemoryPlan,
        statements: Sequence[Statement],
        has_axis: Mapping[Tensor, bool],
        count: int,
        machine: Machine,
    ) -> TileModel:
        """The model of a loop around statements.

        Args:
            has_axis: by tensor that they make or read, whether it has an axis for the points.
        """
        made = {(one.id, k) for one in statements for k in range(len(one.op.outputs))}
        read = {t for one in statements for operand in one.operands for t in operand.tensors}

        def nbytes(tensors: set[Tensor]) -> int:
            return sum(plan.sizes.output_bytes(plan.pdg[t[0]], t[1]) for t in tensors)

        def bytes_of(op: Op, inner: Op) -> int:
            return plan.sizes.type_bytes(op, inner.type)

        parted = {tensor for tensor in made | read if has_axis[tensor]}
        products = [
            (one.op, inner)
            for one in statements
            if isinstance(one.op.attrs, DataflowAttrs)
            for inner in one.op.attrs.body
            if isinstance(inner.attrs, DotAttrs | ConvAttrs)
        ]
        return TileModel(
            count,
            nbytes(read & parted) / count,
            nbytes(made & read & parted) / count,
            nbytes((made - read) & parted) / count,
            sum(bytes_of(one, inner) for one, inner in products) / count,
            nbytes(read - parted),
            sum(computing_seconds(plan.sizes, one.op, machine) for one in statements),
            len(statements) + len(products),
        )

    def of_each(self, devices: int) -> TileModel:
        """The model of what each device does, where points are divided among them."""
        return replace(self, count=self.count // devices, seconds=self.seconds / devices)

    def turn(self, size: int, machine: Machine) -> float:
        """Seconds of a turn of all points, so many at a time."""
        held = int(size * (self.read + self.made + self.inner)) + self.shared
        crossing = int(self.count * (READ * self.read + MADE * self.made))
        moved = moving(crossing, held, machine)
        moved += MADE * self.left * self.count / machine.bandwidth
        return self.seconds + moved + -(-self.count // size) * self.kernels * machine.call

    def size(self, machine: Machine) -> tuple[int | None, str]:
        """The size of blocks that is fastest, or None for none; and why."""
        sizes = [1 << k for k in range(_LEAST.bit_length() - 1, self.count.bit_length())]
        whole = self.turn(self.count, machine)
        best = min(sizes, key=lambda size: self.turn(size, machine), default=self.count)
        if best >= self.count or whole < _WORTH * self.turn(best, machine):
            held = self.count * (self.read + self.made) / (1 << 10)
            return None, f"blocks would gain nothing: a turn holds {held:,.0f} KiB in all"
        return best, "what a block holds stays in the cache"
