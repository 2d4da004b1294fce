"""View-model of the cost of each operation: bytes, launches, estimated and measured time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.memory.budget.candidate_cost import point_seconds
from timerl_nb.compiler.memory.byte_sizes import sizes_of
from timerl_nb.driver.compiling.machine_dependent_options import machine_of
from timerl_nb.driver.program import Program, a_program
from timerl_nb.show.view_model import View


@dataclass(frozen=True)
class CostRow:
    """Cost of a tensor or of a kernel, with the operations that it belongs to."""

    op_ids: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class Measure:
    """One measure of cost.

    Attributes:
        name: `bytes`, `launches`, `estimated time` or `measured time`.
        unit: `bytes`, `seconds`, or "" for a number.
        rows: by tensor for bytes, by kernel for the others. A kernel's row starts with the id of the kernel; those of
            its operations follow.
    """

    name: str
    unit: str
    rows: tuple[CostRow, ...]


@dataclass(frozen=True)
class CostView(View):
    """The cost of each operation of a program.

    Bytes are the most that the plan stores of each tensor at the same time. Launches are the points of each kernel,
    without regard to conditions. Passes compare plans by the estimated time; only its ratios are meaningful.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> [measure.name for measure in trl.show.CostView.from_program(program).measures]
        ['bytes', 'launches', 'estimated time']
    """

    view = "cost"

    measures: tuple[Measure, ...]

    @classmethod
    def from_program(cls, program: Program, seconds: Mapping[int, float] | None = None) -> CostView:
        """Return the costs of a program.

        Args:
            program: the program.
            seconds: measured seconds by operation, such as `Profile.by_op`; None if nothing is measured.
        """
        plan = a_program(program).memory
        stored = tuple(
            CostRow((plan.computing_operation(*tensor).id,), store.most * store.unit)
            for tensor, store in plan.stores.items()
        )
        ops, counts = plan.statements.ops.values(), launch_counts(program).values()

        def by_kernel(values: list[float]) -> tuple[CostRow, ...]:
            return tuple(CostRow(_ids(op), v) for op, v in zip(ops, values, strict=True))

        each = estimated_seconds(program).values()
        estimated = [n * seconds for n, seconds in zip(counts, each, strict=True)]
        measures = [
            Measure("bytes", "bytes", stored),
            Measure("launches", "", by_kernel([float(n) for n in counts])),
            Measure("estimated time", "seconds", by_kernel(estimated)),
        ]
        if seconds:
            spent = [seconds.get(op.id, 0.0) for op in ops]
            measures.append(Measure("measured time", "seconds", by_kernel(spent)))
        return cls(tuple(measures))

    def __str__(self) -> str:
        return "\n".join(
            f"{one.name}: {sum(row.value for row in one.rows):,.6g} {one.unit}".rstrip()
            for one in self.measures
        )

    __repr__ = __str__


def launch_counts(program: Program) -> dict[int, int]:
    """Return the number of launches of each kernel in a run, without regard to conditions."""
    plan = program.memory
    return {
        op.id: prod(plan.pdg.dims[d].count(program.bounds) for d in op.domain)
        for op in plan.statements.ops.values()
    }


def estimated_seconds(program: Program) -> dict[int, float]:
    """Return the estimated seconds of one launch of each kernel."""
    plan, machine = program.memory, machine_of(program.options)
    sizes = sizes_of(plan.pdg, program.bounds)
    return {op.id: point_seconds(sizes, op, machine) for op in plan.statements.ops.values()}


def computing_operations(op: Op) -> tuple[Op, ...]:
    """Return the operations of a statement without constants, which other kernels copy at no cost, too."""
    return tuple(one for one in op.body or (op,) if one.inputs or one.kind == "rng")


def _ids(op: Op) -> tuple[int, ...]:
    """Return the ids of a kernel and of its operations, without constants."""
    return tuple(dict.fromkeys((op.id, *(one.id for one in computing_operations(op)))))
