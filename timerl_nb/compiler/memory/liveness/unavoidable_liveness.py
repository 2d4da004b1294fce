"""A lower bound on simultaneously live bytes of a graph, before fusion and scheduling.

Suppose that an operation depends on a value v through other reads, and a reader r of v depends on
the operation: v -> op -> r. Then v is live while the operation runs. For example, activations are live when
the loss is computed. Fusion removes a value if only its own kernel reads it. So the bound counts
only readers in other kernels, and readers for which XLA stores the value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import inf, prod
from typing import Any, Final, NamedTuple

import numpy as np

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import ConstAttrs
from timerl_nb.compiler.ir.operation_kinds import LAYOUT
from timerl_nb.compiler.ir.operations import Op, Tensor
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.memory.budget.kernel_temporaries import CONTRACTIONS, FUSED, contracts
from timerl_nb.compiler.memory.budget.memory_lower_bound import NO_KERNELS
from timerl_nb.compiler.memory.byte_sizes import Sizes, sizes_of
from timerl_nb.compiler.passes.fusion.fusion_groups import inlineable
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Index, Lin, Slice

_NO_VALUES: Final = NO_KERNELS - {"merge"}
_MOST: Final = 100_000  # limit on the points of a merge to examine
# A reader, the source, the number of its output, and the kind of read (`_Graph.kinds_of_reads`).
_Edge = tuple[int, int, int, int]


class _LiveInterval(NamedTuple):
    """Values with a known live interval between operations; sets of operations are bit sets.

    Attributes:
        bit: the operation of the values.
        ahead: the operations at the start of which the values are live.
        behind: the operations at the end of which the values are live.
        but: operations with results in place of the values. If one of them is needed, the interval
            is unknown.
        held: the bytes of each tensor.
    """

    bit: int
    ahead: int
    behind: int
    but: int
    held: dict[Tensor, int]


def live_across(pdg: Pdg, bounds: Point) -> int:
    """Return a lower bound on the bytes of any plan without swaps.

    It holds for all fusions and schedules.
    """
    if pdg.dims.dynamic:
        return 0
    graph = _Graph(pdg, bounds)
    return max((_Over(graph, domain).peak_bytes() for domain in graph.pivots), default=0)


class _Graph:
    """Unconditional reads of a graph, and the operations at which live bytes are counted."""

    def __init__(self, pdg: Pdg, bounds: Point) -> None:
        self.pdg, self.bounds, self.sizes = pdg, bounds, sizes_of(pdg, bounds)
        self.inlined = inlineable(pdg)
        self.bit = {op.id: 1 << place for place, op in enumerate(pdg)}
        self.kinds_of_reads: dict[tuple[Index, Domain, Domain], int] = {}
        self.readers: dict[int, list[_Edge]] = {op.id: [] for op in pdg}
        self.edges: list[_Edge] = []  # those of operands first
        self.pivots: dict[Domain, list[Op]] = defaultdict(list)
        self.stored = {op.id for op in pdg if is_stored(self.sizes, op)}
        for op_id in pdg.order:
            op = pdg[op_id]
            if op.where is not TRUE:
                continue
            if op_id in self.stored:
                self.pivots[op.domain].append(op)
            for read in op.inputs:
                if read.cond is TRUE and pdg[read.source].where is TRUE:
                    key = read.index, pdg.output(read).domain, op.domain
                    kind = self.kinds_of_reads.setdefault(key, len(self.kinds_of_reads))
                    self.edges.append((op_id, read.source, read.out, kind))
                    self.readers[read.source].append(self.edges[-1])

    def count(self, dims: Iterator[str]) -> int:
        return prod(self.pdg.dims[d].count(self.bounds) for d in dims)


class _Over:
    """Live values while operations over one domain run; sets of operations are bit sets.

    Blocks may run in any order. So live values are counted when the first block runs, whichever it
    is.
    """

    def __init__(self, graph: _Graph, domain: Domain) -> None:
        self.graph, self.pdg, self.domain = graph, graph.pdg, domain
        dims, bounds = graph.pdg.dims, [dim.bound for dim in graph.pdg.dims]
        # block dimensions follow the dimension that they divide
        first = {d for k, d in enumerate(dims.names) if d in domain and bounds[k] in bounds[:k]}
        self.at = frozenset(domain) - first
        self.own = dict.fromkeys(graph.bit, 0)
        self.own |= {pivot.id: graph.bit[pivot.id] for pivot in graph.pivots[domain]}
        # per operation: the operations needed completely, and those over the domain needed by each
        # of its points
        self.before, self.needs = (dict.fromkeys(graph.bit, 0) for _ in range(2))
        whole = [_is_complete(dims, *key, frozenset(domain)) for key in graph.kinds_of_reads]
        some = [_is_certain(dims, *key, self.at) for key in graph.kinds_of_reads]
        for reader, source, _, kind in graph.edges:
            if whole[kind]:
                self.before[reader] |= self.before[source] | graph.bit[source]
            if some[kind]:
                self.needs[reader] |= self.needs[source] | self.own[source]
        # whether all points of a reader with equal coordinates in `at` together read all such
        # points of a source
        self.is_complete = whole
        if first:
            self.is_complete = [_is_complete(dims, *key, self.at) for key in graph.kinds_of_reads]
        needed = 0
        for pivot in graph.pivots[domain]:
            needed |= self.before[pivot.id] | self.own[pivot.id]
        self.needed = [
            op
            for op in graph.pdg
            if graph.bit[op.id] & needed and first.isdisjoint(op.domain) and self._is_one(op)
        ]

    def _is_one(self, op: Op) -> bool:
        """Return whether an operation computes values for readers."""
        return op.where is TRUE and op.kind not in _NO_VALUES

    def peak_bytes(self) -> int:
        """Return the greatest number of simultaneously live bytes."""
        kept = [one for op in self.needed for one in self._live_ranges(op)]
        return max(
            max(self._bytes_at_kernel(pivot, kept)) for pivot in self.graph.pivots[self.domain]
        )

    def _live_ranges(self, op: Op) -> Iterator[_LiveInterval]:
        """Yield the live intervals of an operation's values, or of values derived from them."""
        held: dict[Tensor, int] | None = None
        root = self._root(op)
        own = self.domain in (op.domain, root.domain) and op.kind != "merge"
        for ahead, behind, most, but in self._find_crossing(op, own, inf, 0):
            if held is None:
                held = self._resident_bytes(op) if root is op else self._one_of(op, root)
            nbytes = {tensor: int(min(n, most)) for tensor, n in held.items()}
            yield _LiveInterval(self.graph.bit[op.id], ahead, behind, but, nbytes)

    def _root(self, op: Op) -> Op:
        """Return the operation whose value is live instead, if readers of this one recompute it."""
        while op.id in self.graph.inlined and len(op.inputs) == 1:
            op = self.pdg[op.inputs[0].source]
        return op

    def _one_of(self, op: Op, root: Op) -> dict[Tensor, int]:
        """Return the bytes of the smaller of the operation's value and the root's value."""
        if root.id in self.graph.inlined or not self._is_one(root):
            return {}
        made, held = sum(self._resident_bytes(op).values()), self._resident_bytes(root)
        most = max(held, key=lambda tensor: held[tensor], default=None)
        return {} if most is None else {most: min(made, held[most])}

    def _find_crossing(
        self, op: Op, own: bool, most: float, but: int
    ) -> Iterator[tuple[int, int, float, int]]:
        """Yield operations during which values are live.

        Args:
            op: the operation of the values.
            own: whether the examined kernels may compute the values themselves.
            most: the limit on the bytes so far.
            but: the operations so far with results in place of the values.

        Yields:
            The operations with live values at their start, those with live values at their end, a
            limit on the bytes, and the operations with results in place of the values.
        """
        ahead = behind = 0
        for edge in self.graph.readers[op.id]:
            reader = self.pdg[edge[0]]
            if edge[2] or not self.is_complete[edge[3]] or not self._is_value(op, edge):
                continue
            if self._is_made_of(reader, op):
                size = self._resident_bytes(reader)[reader.id, 0]
                further = but | self.graph.bit[reader.id]
                yield from self._find_crossing(reader, own, min(most, size), further)
            found = self._reachable_operations(edge)
            behind |= found[1]
            if not own or (op.id in self.graph.stored and reader.id not in self.graph.inlined):
                ahead |= found[0]
        if ahead | behind:
            yield ahead, behind, most, but

    def _is_made_of(self, reader: Op, op: Op) -> bool:
        """Return whether a reader has no other operands. Its value may then replace the operand."""
        if reader.id in self.graph.inlined or reader.kind not in LAYOUT:
            return False
        return all(r.source == op.id or r.source in self.graph.inlined for r in reader.inputs)

    def _reachable_operations(self, edge: _Edge) -> tuple[int, int]:
        """Return the operations over the domain that a reader needs, with itself and without.

        A reader with copies in its own readers is replaced by these.
        """
        reader = self.pdg[edge[0]]
        if reader.kind == "merge":
            return 0, 0
        if reader.id not in self.graph.inlined:
            needs = self.needs[reader.id]
            return needs | self.own[reader.id], needs if reader.domain != self.domain else 0
        ahead = behind = 0
        for further in self.graph.readers[reader.id]:
            if not self._is_value(reader, further):
                found = self._reachable_operations(further)
                ahead, behind = ahead | found[0], behind | found[1]
        return ahead, behind

    def _is_value(self, op: Op, edge: _Edge) -> bool:
        """Return whether a reader receives an operation's value, not a copy of the operation."""
        if op.id not in self.graph.inlined:
            return True
        reads = self.pdg[edge[0]].inputs
        return not any(r.source == op.id and self.pdg.is_identity(r) for r in reads)

    def _resident_bytes(self, op: Op) -> dict[Tensor, int]:
        """Return the bytes per tensor of an operation's values at one point of the domain."""
        if op.kind == "merge":
            return self._merge_bytes(op)
        rest = (d for d in op.outputs[0].domain if d not in self.at)
        return {(op.id, 0): self.graph.count(rest) * self.graph.sizes.output_bytes(op, 0)}

    def _merge_bytes(self, merge: Op) -> dict[Tensor, int]:
        """Return the bytes of a merge at the domain's last point.

        Only distinct values of each branch count.
        """
        dims, bounds = self.pdg.dims, self.graph.bounds
        rest = [d for d in merge.domain if d not in self.at]
        points = self.graph.count(iter(rest))
        if points > _MOST:
            return {}
        env: dict[str, Any] = {d: dims[d].count(bounds) - 1 for d in merge.domain}
        grid = np.indices([env[d] + 1 for d in rest]).reshape(len(rest), points)
        env |= {**bounds, **dict(zip(rest, grid, strict=True))}
        found: dict[Tensor, int] = {}
        for branch in merge.inputs:
            at = [e for e in branch.index if isinstance(e, Lin)]
            if len(at) == len(branch.index) and self.pdg[branch.source].kind not in NO_KERNELS:
                chosen = values(branch.cond, env)
                differ = 1 if np.any(chosen) else 0
                if rest and differ:
                    where = np.flatnonzero(np.broadcast_to(chosen, points))
                    index = [np.broadcast_to(values(e, env), points)[where] for e in at]
                    differ = len(set(zip(*(i.tolist() for i in index), strict=True))) or 1
                nbytes = differ * self.graph.sizes.point_bytes(branch)
                found[branch.tensor] = max(nbytes, found.get(branch.tensor, 0))
        return found

    def _bytes_at_kernel(self, pivot: Op, kept: list[_LiveInterval]) -> tuple[int, int]:
        """Return the live bytes when an operation's kernel starts, and after it has run."""
        needed, own = self.before[pivot.id], self.graph.bit[pivot.id]
        first, then = self._kernel_bytes(pivot), dict[Tensor, int]()
        for one in kept:
            if one.but & needed:
                continue
            if one.bit & needed and one.ahead & own:
                _add(first, one.held)
            if one.bit & (needed | own) and one.behind & own:
                _add(then, one.held)
        return sum(first.values()), sum(then.values())

    def _kernel_bytes(self, pivot: Op) -> dict[Tensor, int]:
        """Return the bytes of an operation's result within its kernel.

        The operands of a contraction count as well if the same kernel computes them.
        """
        sizes = self.graph.sizes
        found = {(pivot.id, 0): sizes.output_bytes(pivot, 0)}
        for read in pivot.inputs if pivot.kind in CONTRACTIONS else ():
            source = self.pdg[read.source]
            near = source.domain == pivot.domain or source.id in self.graph.inlined
            if near and self.pdg.is_identity(read) and source.kind not in NO_KERNELS:
                if not isinstance(source.attrs, ConstAttrs):
                    found[read.tensor] = sizes.type_bytes(pivot, self.pdg.read_type(read))
        return found


def _is_complete(dims: Dims, index: Index, of: Domain, reader: Domain, at: frozenset[str]) -> bool:
    """Return whether points of a reader together read all corresponding source points.

    Points correspond if they have equal coordinates in `at`.
    """
    for d, entry in zip(of, index, strict=True):
        if isinstance(entry, Lin):
            if entry.as_symbol != d:
                return False
        elif entry is not dims[d].full_range and _block(dims, d, entry, reader) in at | {None}:
            return False
    return True


def _is_certain(dims: Dims, index: Index, of: Domain, reader: Domain, at: frozenset[str]) -> bool:
    """Return whether each point of a reader reads some corresponding source point.

    Points correspond if they have equal coordinates in `at`.
    """
    for d, entry in zip(of, index, strict=True):
        if isinstance(entry, Lin):
            if d in at and entry.as_symbol != d:
                return False
        elif entry is not dims[d].full_range and (d in at or not _block(dims, d, entry, reader)):
            return False
    return True


def _block(dims: Dims, d: str, entry: Slice, reader: Domain) -> str | None:
    """Return the reader's block dimension if an entry reads one block of `d`, else None."""
    alike = (b for b in reader if dims[b].bound == dims[d].bound)
    return next((b for b in alike if entry == dims[b].block), None)


def _add(found: dict[Tensor, int], held: dict[Tensor, int]) -> None:
    for tensor, nbytes in held.items():
        found[tensor] = max(nbytes, found.get(tensor, 0))


def is_stored(sizes: Sizes, op: Op) -> bool:
    """Return whether XLA stores an operation's result even within a kernel."""
    if op.kind in CONTRACTIONS:
        return contracts(sizes, op, op, sizes.pdg.read_type)
    fused = op.kind in FUSED | NO_KERNELS | {"accumulate"}
    return not fused and not isinstance(op.attrs, ConstAttrs)
