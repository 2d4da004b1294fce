"""Operations as data: one record for every kind.

An operation reads other operations' outputs at points given by index expressions (`Read`).
`operation_kinds` defines the operands and types of each kind. The rules for evaluation, gradients,
vectorisation and lowering are in tables of these transformations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.operation_attributes import NO_ATTRS, Attrs
from timerl_nb.compiler.ir.shapes import DType, Shape, TensorType
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond, Index, Lin, Slice

Tensor = tuple[int, int]  # an operation's id, and the number of an output


@dataclass(frozen=True)
class Read:
    """One operand: output `out` of operation `source` at the points `index`.

    `index` has one entry per dimension of the source output's domain, in order. Each slice in it adds a
    leading axis to the value. `cond` restricts the reader's points, in branches of a merge only.
    """

    source: int
    out: int
    index: Index
    cond: Cond = TRUE

    @property
    def tensor(self) -> Tensor:
        return self.source, self.out


@dataclass(frozen=True)
class Output:
    """One result of an operation.

    It varies over `domain`. If the operation has further dimensions, its values are combined over these by
    the reduction `reduce`, in any order.
    """

    type: TensorType
    domain: Domain
    reduce: str | None = None
    label: str = field(default="", compare=False)  # the label of the reduction

    def __str__(self) -> str:
        how = f" by {self.reduce}" if self.reduce else ""
        return f"{self.type} @ ({', '.join(self.domain)}){how}"


@dataclass(frozen=True)
class Op:
    """One operation, evaluated at every point of its domain that satisfies `where`."""

    id: int
    kind: str
    domain: Domain
    inputs: tuple[Read, ...]
    outputs: tuple[Output, ...]
    attrs: Any = NO_ATTRS
    where: Cond = TRUE
    origin: Origin = field(default=Origin(), compare=False)
    region: tuple[str, ...] = field(default=(), compare=False)
    label: str = field(default="", compare=False)

    def __hash__(self) -> int:  # ids rarely agree by chance, and hashing all fields is slow
        return hash(self.id)

    @property
    def type(self) -> TensorType:
        return self.outputs[0].type

    @property
    def shape(self) -> Shape:
        return self.outputs[0].type.shape

    @property
    def dtype(self) -> DType:
        return self.outputs[0].type.dtype

    @property
    def name(self) -> str:
        """A short name: the label, or else the kind, with the id."""
        return f"{self.label}.{self.id}" if self.label else f"{self.kind}.{self.id}"

    @property
    def body(self) -> tuple[Op, ...]:
        """The operations inside a kernel; empty for all other operations."""
        return self.attrs.body if isinstance(self.attrs, DataflowAttrs) else ()

    @property
    def op_ids(self) -> tuple[int, ...]:
        """The ids of the operation and of its body."""
        return (self.id, *(inner.id for inner in self.body))

    @property
    def sources(self) -> tuple[int, ...]:
        """The operations that it reads."""
        return tuple(read.source for read in self.inputs)

    def with_(self, **changes: Any) -> Op:
        """Return the operation with some fields changed, four times as fast as `dataclasses.replace`."""
        assert changes.keys() <= Op.__dataclass_fields__.keys(), changes
        made = object.__new__(Op)
        made.__dict__.update(self.__dict__, **changes)
        return made


@dataclass(frozen=True)
class DataflowAttrs(Attrs):
    """A fused region: operations in order, and the sources of the region's outputs.

    Inside, a read of source `OPERAND` is the region's own operand number `out`.
    """

    body: tuple[Op, ...]
    results: tuple[tuple[int, int], ...]


OPERAND = -1


@lru_cache(maxsize=100_000)  # called many times for every operand, with few distinct arguments
def is_own(index: Index, domain: Domain) -> bool:
    """Whether an index into a tensor over `domain` is the reader's own point."""
    pairs = zip(index, domain, strict=True)
    return all(isinstance(e, Lin) and e.as_symbol == d for e, d in pairs)


def own_dims(index: Index, domain: Domain) -> set[str]:
    """Return the dimensions of a tensor over `domain` that are read at the reader's own coordinate."""
    pairs = zip(domain, index, strict=True)
    return {d for d, e in pairs if isinstance(e, Lin) and e.as_symbol == d}


def reached_from(starts: Iterable[int], onward: Callable[[int], Iterable[int]]) -> dict[int, None]:
    """Return the operations reachable from `starts` by steps `onward`, with `starts`; depth first."""
    found: dict[int, None] = {}
    stack = list(starts)
    while stack:
        op_id = stack.pop()
        if op_id not in found:
            found[op_id] = None
            stack += onward(op_id)
    return found


def is_sliced(read: Read) -> bool:
    """Whether the read covers several points."""
    return any(isinstance(entry, Slice) for entry in read.index)


def read_symbols(read: Read) -> frozenset[str]:
    """Return the symbols of a read's index and condition."""
    return read.cond.symbols.union(*(entry.symbols for entry in read.index))
