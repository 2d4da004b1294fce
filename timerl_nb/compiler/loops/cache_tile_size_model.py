"""Cost model for the block size of a tiled loop: the values between two iterations should fit the cache.

The model is a closed formula, for comparisons. Data of an iteration go to memory as far as they exceed the
cache; results without readers in the loop always do. Arithmetic is added, and each block starts every
kernel of an iteration again.
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

_LEAST: Final = 16  # points; fewer do not fill vector registers
_WORTH: Final = 1.1  # least speed-up of a tiled loop


@dataclass(frozen=True)
class TileModel:
    """Cost of one loop iteration, per point of a dimension.

    Attributes:
        count: the number of points.
        read: bytes read of values that stay in the loop.
        made: bytes written of values that stay in the loop.
        left: bytes written of values without readers in the loop.
        inner: bytes stored inside kernels, between two products.
        shared: bytes read by every block.
        seconds: seconds of arithmetic for all points together.
        kernels: the number of kernels that a block starts in an iteration.
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
        """Return the model of a loop around statements.

        Args:
            plan: the memory plan.
            statements: the statements in the loop.
            has_axis: whether each accessed tensor has an axis for the points.
            count: the number of points.
            machine: the machine model.
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
        """Return the model of one device, with the points divided among devices."""
        return replace(self, count=self.count // devices, seconds=self.seconds / devices)

    def turn(self, size: int, machine: Machine) -> float:
        """Return the seconds of one iteration over all points, with blocks of `size` points."""
        held = int(size * (self.read + self.made + self.inner)) + self.shared
        crossing = int(self.count * (READ * self.read + MADE * self.made))
        moved = moving(crossing, held, machine)
        moved += MADE * self.left * self.count / machine.bandwidth
        return self.seconds + moved + -(-self.count // size) * self.kernels * machine.call

    def size(self, machine: Machine) -> tuple[int | None, str]:
        """Return the fastest block size, or None for no tiling, with the reason."""
        sizes = [1 << k for k in range(_LEAST.bit_length() - 1, self.count.bit_length())]
        whole = self.turn(self.count, machine)
        best = min(sizes, key=lambda size: self.turn(size, machine), default=self.count)
        if best >= self.count or whole < _WORTH * self.turn(best, machine):
            held = self.count * (self.read + self.made) / (1 << 10)
            return None, f"blocks gain nothing: an iteration needs {held:,.0f} KiB in all"
        return best, "the values of a block stay in the cache"
