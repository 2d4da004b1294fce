"""Blocks: one array over the sliced dimension for a tensor with sliced reads.

The kernel of the tensor writes each value into the block, and readers slice the block without
gathering. If some reads are at single points, the tensor gets a second output for these: copying
one value is cheaper than cutting every value out of the block. Only slices (and the outputs of the
run) then read the block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit
from timerl_nb.compiler.ir.operations import DataflowAttrs, Op, Read, Tensor, is_own, read_symbols
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.memory.liveness.value_lifetimes import ValueLiveRanges
from timerl_nb.compiler.memory.memory_timeline import Span
from timerl_nb.compiler.memory.placement.ring_sizes import Axis
from timerl_nb.compiler.memory.placement.slice_reads import PointRange, split
from timerl_nb.compiler.scheduling.statements import Statements
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate

Slot = tuple[int, int]  # an operation's id, and the number of an operand


@dataclass(frozen=True)
class RowBlock:
    """Rows of a tensor's blocks: `size` points from `first` along one dimension.

    Attributes:
        along: the position of the dimension in the domain.
        first: the coordinate of the first row.
        size: the number of rows.
        cut: whether values outside these rows exist; no slice reads them.
    """

    along: int
    first: int
    size: int
    cut: bool

    @property
    def axis(self) -> Axis:
        """The axis of the rows."""
        return Axis(self.along, self.size, self.first, ring=False)


@dataclass
class Candidates:
    """Tensors that the graph's structure allows to be blocks.

    Attributes:
        along: the position of the sliced dimension in the domain of each candidate.
        parts: the parts of each sliced operand, for operands that blocks can serve.
        mixed: the candidates with reads at single points as well.
        refused: the reason why a sliced tensor cannot be a block.
    """

    along: dict[Tensor, int] = field(default_factory=dict[Tensor, int])
    parts: dict[Slot, tuple[PointRange, ...]] = field(
        default_factory=dict[Slot, tuple[PointRange, ...]]
    )
    mixed: set[Tensor] = field(default_factory=set[Tensor])
    refused: dict[Tensor, str] = field(default_factory=dict[Tensor, str])

    def refuse(self, why: Mapping[Tensor, str]) -> None:
        """Remove tensors, and all tensors that share an operand with them."""
        pending = dict(why)
        while pending:
            tensor, reason = pending.popitem()
            self.refused.setdefault(tensor, reason)
            self.along.pop(tensor, None)
            self.mixed.discard(tensor)
            for slot, parts in list(self.parts.items()):
                rows = [p.tensor for p in parts if p.along is not None]
                if tensor in rows:
                    del self.parts[slot]
                    together = "it is read together with a tensor that cannot be a block"
                    pending.update(dict.fromkeys(set(rows) - {tensor} - {*self.refused}, together))
        used = {p.tensor for parts in self.parts.values() for p in parts if p.along is not None}
        for tensor in set(self.along) - used:
            del self.along[tensor]
            self.mixed.discard(tensor)


def candidates(statements: Statements, bounds: Point) -> Candidates:
    """Return all tensors with slices that a block could serve."""
    found = Candidates()
    why: dict[Tensor, str] = {}
    points: set[Tensor] = set()
    pdg = statements.pdg
    for statement in statements:
        op = statement.op
        for slot, operand in enumerate(statement.reads):
            read = operand.read
            if not operand.is_sliced:
                points |= operand.tensors
                continue
            parts = split(pdg, bounds, read)
            if statement.executor != "kernel":
                parts = "it is read in slices on the host"
            if pdg.dims.mention(read_symbols(read)) or pdg.dims.ending(pdg.output(read).domain):
                parts = "its number of values varies"
            if isinstance(parts, str):
                why.update(dict.fromkeys(operand.tensors, parts))
                continue
            found.parts[op.id, slot] = parts
            for part in parts:
                if part.along is None:
                    continue
                known = found.along.setdefault(part.tensor, part.along)
                reason = _unfit(pdg, op, part) or (
                    "it is read in slices of two dimensions" if known != part.along else None
                )
                if reason:
                    why[part.tensor] = reason
    for (op_id, slot), parts in found.parts.items():
        made = tuple(_as_row(part, found.along) for part in parts)
        found.parts[op_id, slot] = made
        for before, part in zip(parts, made, strict=True):
            if part is not before and (reason := _unfit(pdg, pdg[op_id], part)):
                why[part.tensor] = reason
    found.mixed = points & set(found.along)
    found.refuse(why)
    return found


def _as_row(part: PointRange, along: Mapping[Tensor, int]) -> PointRange:
    """Return a single value of a candidate as one row.

    The other parts of the operand are read from its block.
    """
    if part.along is not None or part.tensor not in along:
        return part
    return replace(part, along=along[part.tensor])


def _unfit(pdg: Pdg, reader: Op, part: PointRange) -> str | None:
    """Return why a tensor cannot be a block for a part of an operand, or None."""
    op = pdg[part.tensor[0]]
    if not isinstance(op.attrs, DataflowAttrs):
        return "it is computed on the host"
    output = op.outputs[part.tensor[1]]
    if output.reduce is not None:
        return "several points add to it"
    rest = tuple(d for k, d in enumerate(output.domain) if k != part.along)
    if op.id == reader.id and not is_own(part.other_indices, rest):
        return "the kernel that writes a block of it reads another block of it"
    return None


def rows_read(
    found: Candidates, statements: Statements, bounds: Point, spans: Mapping[Tensor, Span]
) -> dict[Tensor, RowBlock]:
    """Return the sliced rows of each candidate; all rows for returned tensors."""
    read: dict[Tensor, tuple[int, int]] = {}
    whole = set(statements.returned_tensors)
    for parts in found.parts.values():
        for part in parts:
            if part.along is None:
                continue
            lo, count = part.index[part.along], part.count
            if (lo.symbols | count.symbols) <= bounds.keys():
                low, high = evaluate(lo, bounds), evaluate(lo + count, bounds) - 1
                known = read.get(part.tensor, (low, high))
                read[part.tensor] = min(low, known[0]), max(high, known[1])
            else:
                whole.add(part.tensor)
    made: dict[Tensor, RowBlock] = {}
    for tensor, along in found.along.items():
        at = spans[tensor].points[:, along]
        if len(at):
            first, last = int(at.min()), int(at.max())
            low, high = (first, last) if tensor in whole else read[tensor]
            if low > high:
                continue
            made[tensor] = RowBlock(along, low, high + 1 - low, first < low or high < last)
    return made


def too_large(block: RowBlock, span: Span, gathered: int) -> str | None:
    """Return why blocks would hold more values than are live or gathered without them, or None.

    Args:
        block: the rows of the block.
        span: the live ranges of the tensor's values.
        gathered: the greatest number of values gathered for an operand.
    """
    rest = np.delete(span.points, block.along, axis=1)
    code = np.zeros(len(rest), np.int64)
    for column in rest.T:
        code = code * (int(column.max(initial=0)) + 1) + column
    _, which = np.unique(code, return_inverse=True)
    count = int(which.max(initial=-1)) + 1
    born, dies = np.full(count, span.birth_times.max()), np.full(count, -1)
    np.minimum.at(born, which, span.birth_times)
    np.maximum.at(dies, which, span.dies)
    blocks = ValueLiveRanges(np.zeros((count, 0)), born, dies, dies).most_at_once
    if blocks * block.size <= span.lives.most_at_once + gathered:
        return None
    return "a block would hold more values than are live simultaneously"


# --- separate outputs ----------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockStorage:
    """A graph in which only slices read blocks.

    Attributes:
        pdg: the graph.
        blocks: the tensors stored as blocks.
        parts: the parts of operands in blocks.
        refused: the reason why a sliced tensor is not a block.
        copied: the second outputs.
    """

    pdg: Pdg
    blocks: Mapping[Tensor, RowBlock] = field(default_factory=dict[Tensor, RowBlock])
    parts: Mapping[Slot, tuple[PointRange, ...]] = field(
        default_factory=dict[Slot, tuple[PointRange, ...]]
    )
    refused: Mapping[Tensor, str] = field(default_factory=dict[Tensor, str])
    copied: frozenset[Tensor] = frozenset()


def separate_point_outputs(
    pdg: Pdg, found: Candidates, blocks: Mapping[Tensor, RowBlock]
) -> BlockStorage:
    """Return the graph with a second output for each candidate with reads at single points."""
    edit = Edit(pdg)
    second: dict[Tensor, Tensor] = {}
    for op_id, out in sorted(found.mixed):
        op = edit.ops[op_id]
        attrs = op.attrs
        assert isinstance(attrs, DataflowAttrs)
        second[op_id, out] = op_id, len(op.outputs)
        results = (*attrs.results, attrs.results[out])
        outputs = (*op.outputs, op.outputs[out])
        edit.insert(op.with_(outputs=outputs, attrs=DataflowAttrs(attrs.body, results)))
    clones: dict[int, int] = {}

    def read_point_output(read: Read) -> Read:
        """Return the same read of the second outputs."""
        if pdg[read.source].kind == "merge":
            source, out = clone(read.source), read.out
        else:
            source, out = second.get(read.tensor, read.tensor)
        return Read(source, out, read.index, read.cond)

    def clone(merge_id: int) -> int:
        if merge_id not in clones:
            clones[merge_id] = merge_id
            merge = pdg[merge_id]
            inputs = tuple(map(read_point_output, merge.inputs))
            if inputs != merge.inputs:
                clones[merge_id] = edit.fresh_id()
                edit.insert(merge.with_(id=clones[merge_id], inputs=inputs))
        return clones[merge_id]

    for op_id, slot in sorted(found.parts):
        op = edit.ops[op_id]
        inputs = list(op.inputs)
        inputs[slot] = read_point_output(inputs[slot])
        edit.insert(op.with_(inputs=tuple(inputs)))

    def rename_part(part: PointRange) -> PointRange:
        tensor = second.get(part.tensor, part.tensor) if part.along is not None else part.tensor
        return PointRange(tensor, part.index, part.along, part.count)

    return BlockStorage(
        edit.finish().pdg,
        {second.get(tensor, tensor): block for tensor, block in blocks.items()},
        {slot: tuple(map(rename_part, parts)) for slot, parts in found.parts.items()},
        found.refused,
        frozenset(second.values()),
    )
