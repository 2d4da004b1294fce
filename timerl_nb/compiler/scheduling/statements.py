"""Statements of a fused graph: their operands and executors.

Merges and outputs are not statements. An operand that reads a merge reads the outputs of the
statements behind it. An output names a tensor to return after the last statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from timerl_nb.compiler.ir.analysis.resolved_reads import Access, accesses
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.host.host_functions import UdfAttrs
from timerl_nb.compiler.ir.operations import Op, Read, Tensor, is_sliced

# "function" is a function of the user; "bound" finds the end of a dynamic dimension.
Executor = Literal["kernel", "function", "checkpoint", "bound"]
_EXECUTORS: Final[Mapping[str, Executor]] = {
    "udf": "function",
    "call": "function",
    "checkpoint": "checkpoint",
    "bound": "bound",
}


@dataclass(frozen=True)
class Operand:
    """One operand of a statement.

    Attributes:
        read: the read in the graph, possibly of a merge.
        accesses: the possible statement outputs, each with its condition.
    """

    read: Read
    accesses: tuple[Access, ...]

    @classmethod
    def from_read(cls, pdg: Pdg, read: Read) -> Operand:
        return cls(read, tuple(accesses(pdg, read)))

    @property
    def tensors(self) -> frozenset[Tensor]:
        return frozenset(access.tensor for access in self.accesses)

    @property
    def is_sliced(self) -> bool:
        return is_sliced(self.read)


@dataclass(frozen=True)
class Statement:
    """An operation that runs at every point of its domain at which its condition holds.

    Attributes:
        op: the operation.
        operands: the arguments of its executor.
        waits_for: the token of a shared resource, passed on by the previous user of the resource.
    """

    op: Op
    operands: tuple[Operand, ...]
    waits_for: tuple[Operand, ...] = ()

    @property
    def id(self) -> int:
        return self.op.id

    @property
    def name(self) -> str:
        """Name of the statement in isl."""
        return statement_name(self.op)

    @property
    def executor(self) -> Executor:
        return _EXECUTORS.get(self.op.kind, "kernel")

    @property
    def reads(self) -> tuple[Operand, ...]:
        return (*self.operands, *self.waits_for)


@dataclass(frozen=True)
class Statements:
    """Statements of a fused graph by name, and the outputs of the run in the form of statements."""

    pdg: Pdg
    by_name: dict[str, Statement]
    outputs: tuple[Statement, ...]

    @classmethod
    def from_graph(cls, pdg: Pdg) -> Statements:
        running = (op for op in pdg if op.kind not in ("merge", "output"))
        outputs = (op for op in pdg.sinks if op.kind == "output")
        return cls(
            pdg,
            {statement_name(op): _statement(pdg, op) for op in running},
            tuple(_statement(pdg, op) for op in outputs),
        )

    def __iter__(self) -> Iterator[Statement]:
        return iter(self.by_name.values())

    def of_op(self, op_id: int) -> Statement:
        """Return the statement of an operation; for an output, its operands in the form of one."""
        return self._by_id[op_id]

    @cached_property
    def _by_id(self) -> Mapping[int, Statement]:
        return {one.id: one for one in (*self, *self.outputs)}

    @cached_property
    def ops(self) -> Mapping[str, Op]:
        """The operations by statement name."""
        return {name: statement.op for name, statement in self.by_name.items()}

    @cached_property
    def returned_tensors(self) -> frozenset[Tensor]:
        """The tensors with returned values."""
        found = (operand.tensors for output in self.outputs for operand in output.operands)
        return frozenset().union(*found)


def _statement(pdg: Pdg, op: Op) -> Statement:
    operands = tuple(Operand.from_read(pdg, read) for read in op.inputs)
    if isinstance(op.attrs, UdfAttrs) and op.attrs.resource:
        return Statement(op, operands[:-1], operands[-1:])
    return Statement(op, operands)


def statement_name(op: Op) -> str:
    """Return the name of an operation's statement in isl."""
    return f"S{op.id}"
