"""Hierarchy of a graph's operations: nested regions, source lines and kernels.

A graph as written is clustered by the user's regions, then by source line. A fused graph is clustered by
kernel, inside kernels by line; many kernels are also grouped by line. A view shows each cluster open, or
folded to one node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import OutputAttrs
from timerl_nb.compiler.ir.operations import Op

FEW = 48  # number of operations up to which a graph is shown unfolded
FEW_INSIDE = 24  # the same inside a kernel
MANY = 300  # number of nodes above which whole regions are folded

REGION, LINE, KERNEL, RETURNED = "region", "line", "kernel", "returned"
RETURNED_KEY = "parameters"


@dataclass(frozen=True)
class Leaf:
    """Operation in its cluster; `kernel` is the id of the dataflow operation that runs it, if any."""

    key: str
    op: Op
    cluster: str
    kernel: int | None = None


@dataclass(frozen=True)
class Cluster:
    """Operations that can be folded to one node.

    Attributes:
        parent: the key of the enclosing cluster.
        op: the dataflow operation of a kernel; None for other clusters.
    """

    key: str
    sort: str
    label: str
    parent: str
    region: tuple[str, ...]
    op: Op | None = None


@dataclass
class Clusters:
    """All clusters of a graph, outer before inner, and the cluster of each operation.

    Merges of a fused graph have no node: edges pass through them.
    """

    clusters: dict[str, Cluster] = field(default_factory=dict[str, Cluster])
    leaves: dict[str, Leaf] = field(default_factory=dict[str, Leaf])
    places: dict[tuple[int | None, int], str] = field(
        default_factory=dict[tuple[int | None, int], str]
    )

    @cached_property
    def operations_outside_kernels(self) -> frozenset[int]:
        """The operations with a node outside kernels."""
        return frozenset(op_id for kernel, op_id in self.places if kernel is None)

    @classmethod
    def from_graph(cls, pdg: Pdg) -> Clusters:
        made = cls()
        bodies = [op.body for op in pdg]
        counted: dict[int, int] = {}
        for inner in (one for body in bodies for one in body):
            counted[inner.id] = counted.get(inner.id, 0) + 1
        fused = any(op.kind == "dataflow" for op in pdg)
        by_line = sum(not fused or op.kind != "merge" for op in pdg) > FEW
        for op, body in zip(pdg, bodies, strict=True):
            if fused and op.kind == "merge":
                continue
            if fused and isinstance(op.attrs, OutputAttrs) and op.attrs.role != "output":
                place = made._cluster(Cluster(RETURNED_KEY, RETURNED, "returned", "", ()))
            else:
                place = made._region(op.region)
                place = made._line(op, place) if by_line else place
            if body:
                place = made._cluster(Cluster(f"op{op.id}", KERNEL, "", place, op.region, op))
            for inner in body:
                inside = made._line(inner, place) if len(body) > FEW_INSIDE else place
                taken = counted[inner.id] > 1 or inner.id in pdg.ops
                key = f"op{inner.id}in{op.id}" if taken else f"op{inner.id}"
                made._leaf(Leaf(key, inner, inside, op.id))
            if not body:
                made._leaf(Leaf(f"op{op.id}", op, place))
        return made

    def enclosing_clusters(self, key: str) -> Iterator[str]:
        """Yield the clusters around a leaf or cluster, innermost first."""
        at = self.leaves[key].cluster if key in self.leaves else self.clusters[key].parent
        while at:
            yield at
            at = self.clusters[at].parent

    def visible_nodes(self, folded: Iterable[str]) -> Mapping[str, str]:
        """Return the visible node of each leaf: the leaf, or its outermost folded cluster."""
        shut = frozenset(folded)
        found: dict[str, str] = {}
        for leaf in self.leaves:
            found[leaf] = leaf
            for key in self.enclosing_clusters(leaf):
                if key in shut:
                    found[leaf] = key
        return found

    def folds(self) -> frozenset[str]:
        """Return the clusters folded by default: kernels, lines, and regions if there are too many nodes."""
        shut = {key for key, cluster in self.clusters.items() if cluster.sort != REGION}
        regions = [c for c in self.clusters.values() if c.sort == REGION]
        regions.sort(key=lambda cluster: -len(cluster.region))
        for cluster in regions:
            if len(set(self.visible_nodes(shut).values())) <= MANY:
                break
            shut.add(cluster.key)
        return frozenset(shut)

    def _leaf(self, leaf: Leaf) -> None:
        self.leaves[leaf.key] = leaf
        self.places[leaf.kernel, leaf.op.id] = leaf.key

    def _cluster(self, cluster: Cluster) -> str:
        self.clusters.setdefault(cluster.key, cluster)
        return cluster.key

    def _region(self, region: tuple[str, ...]) -> str:
        if not region:
            return ""
        parent = self._region(region[:-1])
        key = _key(REGION, *region)
        return self._cluster(Cluster(key, REGION, region[-1], parent, region))

    def _line(self, op: Op, parent: str) -> str:
        origin = op.origin
        key = _key(LINE, parent, origin.file, str(origin.line), *op.region)
        label = origin.text or origin.place
        return self._cluster(Cluster(key, LINE, label, parent, op.region))


def _key(sort: str, *parts: str) -> str:
    """Return a key that is equal in all stages, and a valid element id for any user name."""
    return f"{sort}{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"
