"""Recomputation of stored values at their readers.

Acting, point by point along a dimension, and learning, from all points together, often need the same
values, such as activations. These are stored, or recomputed from other stored values: their operations are
copied outside the loop and vectorised over the dimension, and later passes tile the copies. A copy draws
the same random numbers, since these depend on seed, stream and point only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit, RewriteStep, Rewritten, chain
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import Op, Read, reached_from
from timerl_nb.compiler.passes.vectorization.vectorize import length_reason, vectorize_over
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import TRUE

# kinds without copies: branches, sums over points, effects
_ONCE = SINKS | {"merge", "accumulate", "udf"}


@dataclass(frozen=True)
class Recomputable:
    """Values stored along a dimension because readers outside its loops read all points together.

    Attributes:
        dim: the dimension.
        values: operations whose values could be recomputed, in topological order.
        why: for the other stored values, the reason against recomputation.
    """

    dim: Dim
    values: tuple[int, ...]
    why: Mapping[int, str]

    def recomputed_operations(self, pdg: Pdg, values: Iterable[int]) -> frozenset[int]:
        """Return the operations to repeat for some of the values, with the others stored."""
        wanted = set(values)
        kept = (set(self.values) | set(self.why)) - wanted
        found: set[int] = set()
        for op_id in wanted:
            more = _closure(pdg, self.dim, op_id, kept)
            assert not isinstance(more, str)
            found |= more
        return frozenset(found)


def find_recomputable(pdg: Pdg, dim: Dim) -> Recomputable:
    """Return the stored values along a dimension, with the recomputable ones."""
    kept = [op_id for op_id in pdg.order if any(_together(pdg, dim, op_id))]
    why: dict[int, str] = {}
    for op_id in kept:
        found = _closure(pdg, dim, op_id, set(kept) - {op_id})
        if isinstance(found, str):
            why[op_id] = found
    return Recomputable(dim, tuple(k for k in kept if k not in why), why)


def _together(pdg: Pdg, dim: Dim, op_id: int) -> Iterable[tuple[int, int]]:
    """Yield the readers of an operation at all points of a dimension, with operand slots."""
    op = pdg[op_id]
    if dim.name not in op.domain or len(op.outputs) != 1 or dim.name not in op.outputs[0].domain:
        return
    at = op.outputs[0].domain.index(dim.name)
    for reader, slot in pdg.readers[op_id]:
        outside = dim.name not in pdg[reader].domain and pdg[reader].kind not in SINKS
        if outside and pdg[reader].inputs[slot].index[at] is dim.full_range:
            yield reader, slot


def renewable(pdg: Pdg, dim: Dim) -> frozenset[int]:
    """Return the repeatable operations over a dimension, given its merges."""
    found: set[int] = set()
    for op_id in pdg.order:
        op = pdg[op_id]
        if dim.name in op.domain and _reason(pdg, dim, op) is None:
            along = (r.source for r in op.inputs if dim.name in pdg.output(r).domain)
            if all(k in found or pdg[k].kind == "merge" for k in along):
                found.add(op_id)
    return frozenset(found)


def _closure(pdg: Pdg, dim: Dim, op_id: int, kept: Set[int]) -> frozenset[int] | str:
    """Return the operations to repeat for a value, back to stored or invariant values; or the reason against
    it.
    """

    def recomputed_operands(ids: Iterable[int]) -> list[int]:
        return [k for k in ids if dim.name in pdg[k].domain and k not in kept]

    found = reached_from(
        recomputed_operands([op_id]), lambda k: recomputed_operands(pdg[k].sources)
    )
    reasons = (_reason(pdg, dim, pdg[k]) for k in found)
    return next((reason for reason in reasons if reason is not None), frozenset(found))


def _reason(pdg: Pdg, dim: Dim, op: Op) -> str | None:
    """Return the reason why an operation cannot be repeated for all points of a dimension, or None."""
    if op.kind in _ONCE or len(op.outputs) != 1 or op.where is not TRUE or op.id in pdg.ordered:
        return f"it needs {op.name}, which is neither stored nor recomputable"
    if op.kind == "jaxed":
        return f"it needs {op.name}, which is not stored, and whose duration is unknown"
    if (why := length_reason(pdg, op, dim)) is not None:
        return f"{op.name} cannot be an axis along {dim.name}: {why}"
    for read in op.inputs:
        domain = pdg.output(read).domain
        along = read.index[domain.index(dim.name)] if dim.name in domain else dim.var
        if along is not dim.var:
            return f"it needs {pdg[read.source].name} at {along}"
    return None


def recompute(pdg: Pdg, found: Recomputable, values: Iterable[int]) -> Rewritten:
    """Return the graph with some values recomputed for their joint readers.

    Raises:
        Refused: an operation cannot be vectorised over the dimension.
    """
    dim, wanted = found.dim, set(values)
    edit = Edit(pdg)
    copied = found.recomputed_operations(pdg, wanted)
    copies: dict[int, Op] = {}
    for op_id in pdg.order:
        if op_id in copied:
            op = pdg[op_id]
            reads = tuple(_of_copy(copies, read) for read in op.inputs)
            copy = op.with_(id=edit.fresh_id(), inputs=reads)
            edit.insert(copy)
            copies[op_id] = copy
    for op_id in wanted:
        for reader, slot in _together(pdg, dim, op_id):
            op = edit.ops[reader]
            reads = list(op.inputs)
            reads[slot] = _of_copy(copies, reads[slot])
            edit.insert(op.with_(inputs=tuple(reads)))
    for op_id, copy in copies.items():
        edit.record_replacement(op_id, (op_id, copy.id))
        edit.steps.append(RewriteStep("compute again", (op_id,), (op_id, copy.id)))
    made = edit.finish()
    return chain(made, vectorize_over(made.pdg, dim, frozenset(c.id for c in copies.values())))


def _of_copy(copies: Mapping[int, Op], read: Read) -> Read:
    return replace(read, source=copies[read.source].id) if read.source in copies else read
