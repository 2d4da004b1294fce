"""Edges between displayed operations, followed through kernel operands and merges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from timerl_nb.compiler.ir.analysis.resolved_reads import Access, accesses
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import compose
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Read, is_own
from timerl_nb.compiler.symbolic.index_expressions import TRUE, index_text
from timerl_nb.show.graph.region_hierarchy import Clusters, Leaf
from timerl_nb.show.view_model import HIDDEN


@dataclass(frozen=True)
class Flow:
    """Read of one operation by another.

    Attributes:
        tail, head: the keys of the leaves that are read, and that read.
        index: the index expression φ; empty for a read at the reader's own point.
        cond: the condition ψ; empty for an unconditional read.
        chosen: whether a merge lies between them, or is the reader.
        orders: an order without a read, requested by the user.
    """

    tail: Annotated[str, HIDDEN]
    head: Annotated[str, HIDDEN]
    index: str
    cond: str
    chosen: Annotated[bool, HIDDEN]
    orders: Annotated[bool, HIDDEN] = False

    @property
    def label(self) -> str:
        return " ".join(part for part in (self.index, f"if {self.cond}" * bool(self.cond)) if part)


def flows(pdg: Pdg, clusters: Clusters) -> Iterator[Flow]:
    """Yield every read, by reader, then the orders. Merges without a node are skipped."""
    for leaf in clusters.leaves.values():
        for read in leaf.op.inputs:
            if leaf.kernel is None:
                yield from _flows_into(pdg, clusters, leaf, read)
            elif read.source == OPERAND:
                yield from _flows_into(pdg, clusters, leaf, pdg[leaf.kernel].inputs[read.out])
            else:
                yield Flow(clusters.places[leaf.kernel, read.source], leaf.key, "", "", False)

    yield from _orders(pdg, clusters)


def _orders(pdg: Pdg, clusters: Clusters) -> Iterator[Flow]:
    for order in pdg.orders:
        before, after = pdg[order.before], pdg[order.after]
        waits = Read(before.id, 0, order.index(pdg.dims, before.domain, after.domain))
        for real in _source_reads(pdg, clusters, waits):
            domain = pdg[real.source].domain
            index = "" if is_own(real.index, domain) else index_text(real.index)
            cond = "" if real.cond is TRUE else str(real.cond)
            tail, head = _place(clusters, real.source), _place(clusters, after.id)
            yield Flow(tail, head, index, cond, False, orders=True)


def _place(clusters: Clusters, op_id: int) -> str:
    """Return the leaf of an operation; for a kernel, its first leaf."""
    known = clusters.places.get((None, op_id))
    return known or next(key for key, leaf in clusters.leaves.items() if leaf.kernel == op_id)


def _flows_into(pdg: Pdg, clusters: Clusters, leaf: Leaf, read: Read) -> Iterator[Flow]:
    for real in _source_reads(pdg, clusters, read):
        index = "" if is_own(real.index, pdg.output(real).domain) else index_text(real.index)
        cond = "" if real.cond is TRUE else str(real.cond)
        chosen = leaf.op.kind == "merge" or real is not read
        for tail in _makers(pdg, clusters, real):
            yield Flow(tail, leaf.key, index, cond, chosen)


def _source_reads(pdg: Pdg, clusters: Clusters, read: Read) -> list[Read]:
    """Return the reads of statement outputs to which a read resolves."""
    return [
        _compose_branches(pdg, access)
        for access in accesses(pdg, read, clusters.operations_outside_kernels)
    ]


def _compose_branches(pdg: Pdg, access: Access) -> Read:
    """Return a read composed with the branches of the merges on its way."""
    read, *rest = access.way
    for branch in rest:
        read = compose(read, pdg[read.source].domain, branch) or branch
    return read


def _makers(
    pdg: Pdg, clusters: Clusters, read: Read, seen: frozenset[int] = frozenset()
) -> Iterator[str]:
    """Yield the leaves that compute a value, inside kernels or before kernels that pass it on."""
    op = pdg[read.source]
    if not isinstance(op.attrs, DataflowAttrs):
        yield clusters.places[None, op.id]
        return
    source, out = op.attrs.results[read.out]
    if source != OPERAND:
        yield clusters.places[op.id, source]
    elif op.id not in seen:
        for handed in _source_reads(pdg, clusters, op.inputs[out]):
            yield from _makers(pdg, clusters, handed, seen | {op.id})
