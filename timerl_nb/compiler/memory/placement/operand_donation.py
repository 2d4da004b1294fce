"""Donation: outputs that reuse the memory of operands.

A kernel may overwrite an operand's value at a point if this is the value's last read, through this
operand alone, and if an output of the same shape and type can use the memory. Kernels are compiled
once, so a kernel overwrites an operand at all of its points or at none. Some points may need the
value again later, such as an initial value with several reads. There the kernel gets a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from timerl_nb.compiler.ir.operations import DataflowAttrs, Op, Read, Tensor
from timerl_nb.compiler.isl.isl_scheduler import Edge
from timerl_nb.compiler.isl.sets_and_relations import Likeness, Relation, Set, union
from timerl_nb.compiler.memory.liveness.last_uses import Lifetime
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.donation_records import Donation, Leaf, Slot
from timerl_nb.compiler.scheduling.statements import Statement, statement_name
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.index_expressions import FALSE, TRUE, Cond, Lin

WHY_NOT: Final[Mapping[str, str]] = {
    "slice": "it is a slice of several values in different slots",
    "host": "it is computed on the host, which may still use its memory",
    "sum": "it may be the initial constant of a sum",
    "shape": "no remaining output has its shape and type",
    "returned": "the run returns it",
    "later": "it is read again later",
    "shared": "another operand reads it too",
    "length": "under a dynamic bound some points may not read it",
    "few": "this is its last read at too few points",
}


class _Search:
    """Search for donations through all operands of a plan."""

    def __init__(self, plan: MemoryPlan) -> None:
        self.plan, self.pdg = plan, plan.pdg
        self.lifetimes = {t: life for life in plan.lifetimes.values() for t in life.tensors}
        self.pairs: dict[Slot, list[tuple[Tensor, Relation]]] = {}
        self._relations: dict[tuple[int, Read], Relation] = {}

    def run(self) -> Iterator[Donation]:
        for statement in self.plan.statements:
            if statement.executor == "kernel":
                yield from self._kernel(statement)

    def _kernel(self, statement: Statement) -> Iterator[Donation]:
        op = statement.op
        left = [
            out
            for out, output in enumerate(op.outputs)
            if output.reduce is None and (op.id, out) not in self.plan.placed.blocks
        ]
        for slot in range(len(statement.operands)):
            found = self._operand(statement, slot, left)
            if found.output is not None:
                left.remove(found.output)
            yield found

    def _operand(self, statement: Statement, slot: int, left: list[int]) -> Donation:
        """Return the donation of an operand, or a refusal with its reason.

        Args:
            statement: the statement of the kernel.
            slot: the number of the operand.
            left: the outputs of the kernel without a donated operand.
        """
        op, operand = statement.op, statement.operands[slot]

        def refuse(reason: str, more: str = "") -> Donation:
            return Donation(op.id, slot, None, WHY_NOT[reason] + more)

        if operand.is_sliced:
            return refuse("slice")
        if self.pdg.dims.dynamic:
            return refuse("length")
        behind = [access.read for access in operand.accesses]
        sources = [self.pdg[leaf.source] for leaf in behind]
        outputs = [self.pdg.output(leaf) for leaf in behind]
        if not all(isinstance(source.attrs, DataflowAttrs) for source in sources):
            return refuse("host")
        if any(output.reduce is not None for output in outputs):
            return refuse("sum")
        shapes = {self._array(leaf.source, leaf.out) for leaf in behind}
        fitting = [out for out in left if {self._array(op.id, out)} == shapes]
        if not fitting:
            return refuse("shape")
        reads = [self._reads(op, leaf) for leaf in behind]
        dying = [
            self._last_reads(op, leaf, pairs) for leaf, pairs in zip(behind, reads, strict=True)
        ]
        if all(pairs.is_empty() for pairs in dying):
            return refuse("returned" if self._is_returned(behind, reads) else "later")
        alone = [
            self._read_by_one_operand(statement, slot, leaf, pairs)
            for leaf, pairs in zip(behind, dying, strict=True)
        ]
        if all(pairs.is_empty() for pairs in alone):
            return refuse("shared")
        whole = self.pdg.points(op).with_bounds(*self.plan.isl_bounds)
        taken = _condition(_domain(alone), whole)
        where = self._share(op, taken)
        if 2 * where.sum() < len(where):
            return refuse("few", f" ({int(where.sum())} of {len(where)})")
        self.pairs[op.id, slot] = [
            (leaf.tensor, pairs) for leaf, pairs in zip(behind, alone, strict=True)
        ]
        found = tuple(
            Leaf(
                leaf.tensor,
                tuple(e for e in leaf.index if isinstance(e, Lin)),
                leaf.cond,
                _condition(mine.domain(), pairs.domain()),
            )
            for leaf, pairs, mine in zip(behind, reads, alone, strict=True)
        )
        name = self.plan.names[op.id, fitting[0]]
        why = f"{name} reuses its memory"
        if taken is not TRUE:
            why += f" if {taken}, else that of a copy"
        return Donation(op.id, slot, fitting[0], why, found, taken)

    def _array(self, op_id: int, out: int) -> tuple[tuple[int, ...], str]:
        """Return the shape and type of a tensor's values."""
        op = self.pdg[op_id]
        kind = op.outputs[out].type
        return self.plan.sizes.shape(op, kind.shape), kind.dtype

    def _reads(self, op: Op, leaf: Read) -> Relation:
        """Return the operation's points -> the values they read, under the plan's bounds."""
        if (op.id, leaf) not in self._relations:
            sink = self.pdg.points(op) & Set.from_condition(self.pdg.dims, op.domain, leaf.cond)
            source = self.pdg.defined(leaf)
            pairs = Relation.reads(sink, leaf.index, source).restrict_range(source)
            self._relations[op.id, leaf] = pairs.with_bounds(*self.plan.isl_bounds)
        return self._relations[op.id, leaf]

    def _last_reads(self, op: Op, leaf: Read, pairs: Relation) -> Relation:
        """Return the pairs in which a value is read for the last time."""
        life = self.lifetimes[leaf.tensor]
        last = [e.pairs.inverse() for e in life.frees if e.sink == statement_name(op)]
        ends = union(last)
        return pairs - pairs if ends is None else pairs & ends

    def _is_returned(self, behind: list[Read], reads: list[Relation]) -> bool:
        """Return whether the run returns all values of an operand."""
        kept = self.plan.constraints.returned_points
        return all(
            leaf.tensor in kept and pairs.subtract_range(kept[leaf.tensor]).is_empty()
            for leaf, pairs in zip(behind, reads, strict=True)
            if not pairs.is_empty()
        )

    def _read_by_one_operand(
        self, statement: Statement, slot: int, leaf: Read, pairs: Relation
    ) -> Relation:
        """Return the pairs without another read of the same value at the same point."""
        tensor = leaf.tensor
        for k, other in enumerate(statement.operands):
            if k == slot or self.plan.operand_parts(statement.op, k):
                continue
            for access in other.accesses:
                if access.tensor == tensor:
                    reads = pairs if other.is_sliced else self._reads(statement.op, access.read)
                    pairs = pairs - reads
        return pairs

    def _share(self, op: Op, taken: Cond) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return for each point of the operation whether it overwrites the operand."""
        rows = self.plan.clock.points[statement_name(op)]
        where = values(taken, self.plan.clock.env(op.domain, rows))
        return np.broadcast_to(where, len(rows))


def _domain(relations: list[Relation]) -> Set:
    total = relations[0].domain()
    for relation in relations[1:]:
        total = total | relation.domain()
    return total


def _condition(inside: Set, given: Set) -> Cond:
    if (given - inside).is_empty():
        return TRUE
    return FALSE if inside.is_empty() else inside.condition(given)


def donate(plan: MemoryPlan) -> MemoryPlan:
    """Return the plan with all possible donations, and without frees of donated values."""
    search = _Search(plan)
    found = {(d.op_id, d.slot): d for d in search.run()}
    taken: dict[Tensor, list[Edge]] = {}
    for (op_id, _), pairs in search.pairs.items():
        name = statement_name(plan.pdg[op_id])
        for tensor, reads in pairs:
            if not reads.is_empty():
                taken.setdefault(tensor, []).append(Edge("", name, reads.inverse()))
    lifetimes = tuple(_remove_donated_frees(plan, taken))
    return MemoryPlan(
        plan.constraints,
        plan.clock,
        lifetimes,
        plan.placed,
        smallest=plan.smallest,
        donations=found,
        undonated=plan,
        fold=plan.fold,
    )


def _remove_donated_frees(
    plan: MemoryPlan, taken: Mapping[Tensor, list[Edge]]
) -> Iterator[Lifetime]:
    """Yield the lifetimes without frees of donated values.

    Tensors with different donations get separate lifetimes.
    """
    count = 0
    for life in plan.lifetimes.values():
        alike: dict[tuple[tuple[str, Likeness], ...], list[Tensor]] = {}
        for tensor in life.tensors:
            key = tuple((e.sink, e.pairs.identity_key) for e in taken.get(tensor, ()))
            alike.setdefault(key, []).append(tensor)
        for tensors in alike.values():
            name = f"V{count}"
            count += 1
            mine = tuple(replace(e, source=name) for e in taken.get(tensors[0], ()))
            frees = [replace(e, source=name, pairs=_rest(e, mine)) for e in life.frees]
            yield replace(
                life,
                name=name,
                tensors=tuple(tensors),
                frees=tuple(
                    e for e in frees if not e.pairs.with_bounds(*plan.isl_bounds).is_empty()
                ),
                taken=mine,
            )


def _rest(edge: Edge, taken: tuple[Edge, ...]) -> Relation:
    pairs = edge.pairs
    for one in taken:
        if one.sink == edge.sink:
            pairs = pairs - one.pairs
    return pairs
