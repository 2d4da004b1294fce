"""Loop-carried cycles: obstacles to vectorisation over a dimension.

A cycle is trivial on d if every index of d on it is d itself or constant (TimeRL §5.2).
Operations on a non-trivial cycle are sequential along d. Operations on a trivial cycle are vectorised
together or not at all. Edges with a strict advance along another dimension (the iterations) do not close a
cycle within one d, if no edge goes back along it. Under a dynamic bound, a point also depends on the
conditions for its existence and length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from timerl_nb.compiler.ir.analysis.dynamic_lengths import waits
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import Entry, Extremum, Index, Lin, Slice, sym

Edge = tuple[Op, Read]  # an operation, and one of its reads


@dataclass(frozen=True)
class Cycles:
    """Cycles of a graph along one dimension.

    Attributes:
        sequential: operations over the dimension on non-trivial cycles.
        together: groups of operations on trivial cycles.
        loops: the non-trivial cycles, each with all its operations.
    """

    sequential: frozenset[int]
    together: tuple[frozenset[int], ...]
    loops: tuple[frozenset[int], ...]


def cycles_of(pdg: Pdg, dim: str) -> Cycles:
    """Return the relevant cycles of the graph for `dim`."""
    return pdg.analysis(_find, dim)


def _find(pdg: Pdg, dim: str) -> Cycles:
    sequential: set[int] = set()
    together: list[frozenset[int]] = []
    loops: list[frozenset[int]] = []
    pending = [pdg.analysis(_all_components)]
    while pending:
        for component, inner in pending.pop():
            kept = _within_one_point(pdg, inner, dim)
            if len(kept) < len(inner):
                pending.append(cyclic_components(kept))
                continue
            members = frozenset(k for k in component if dim in pdg[k].domain)
            if all(_is_trivial(pdg, read, dim) for _, read in inner):
                together.append(members)
            else:
                sequential |= members
                if all(
                    read in op.inputs for op, read in inner
                ):  # a dependence of values, rather than on the end of a dimension
                    loops.append(frozenset(component))
    return Cycles(frozenset(sequential), tuple(together), tuple(loops))


def _all_components(pdg: Pdg) -> list[tuple[Sequence[int], list[Edge]]]:
    """Return the strongly connected components of a graph, which are the same for all dimensions."""
    return cyclic_components(all_edges(pdg))


def all_edges(pdg: Pdg) -> list[Edge]:
    """Return the reads of all operations, and their other dependences as reads."""
    return [(op, read) for op in pdg for read in (*op.inputs, *pdg.waits(op), *waits(pdg, op))]


def cyclic_components(edges: Sequence[Edge]) -> list[tuple[Sequence[int], list[Edge]]]:
    """Return the strongly connected components with internal edges, and these edges."""
    targets: dict[int, list[int]] = {k: [] for op, read in edges for k in (op.id, read.source)}
    for op, read in edges:
        targets[op.id].append(read.source)
    found = components(targets)
    home = {k: number for number, component in enumerate(found) for k in component}
    inner: dict[int, list[Edge]] = {}
    for op, read in edges:
        if home[op.id] == home[read.source]:
            inner.setdefault(home[op.id], []).append((op, read))
    return [(found[number], within) for number, within in inner.items()]


def _within_one_point(pdg: Pdg, edges: list[Edge], dim: str) -> list[Edge]:
    """Return the edges of a component without edges to later points of another dimension.

    No edge of the component may look ahead in the other dimension.
    """
    moved = [moves(read.index, pdg.output(read).domain) for _, read in edges]
    ahead = frozenset[str]().union(*(one for one, _ in moved))
    outer = frozenset(pdg.dims.names) - ahead - {dim}
    return [edge for edge, (_, back) in zip(edges, moved, strict=True) if back.isdisjoint(outer)]


def _entry(pdg: Pdg, read: Read, dim: str) -> Entry | None:
    """Return the index of `dim` on an edge; None if the source does not vary over it."""
    domain = pdg.output(read).domain
    return read.index[domain.index(dim)] if dim in domain else None


def _is_trivial(pdg: Pdg, read: Read, dim: str) -> bool:
    entry = _entry(pdg, read, dim)
    if entry is None or dim not in entry.symbols:
        return True
    return isinstance(entry, Lin) and entry.as_symbol == dim


@cache  # expressions are interned, and queried repeatedly
def steps_back(entry: Entry, dim: str) -> int | None:
    """Return k if the index is dim - k, else None."""
    if isinstance(entry, Slice):
        return None
    distance = sym(dim) - entry
    return distance.const if distance.is_const else None


def directions(pdg: Pdg, ops: Iterable[int], dim: str) -> frozenset[bool]:
    """Return the directions of dependences along a dimension: later points (True), earlier ones (False)."""
    among, found = set(ops), set[bool]()
    for op_id in among:
        for read in pdg[op_id].inputs:
            entry = _entry(pdg, read, dim) if read.source in among else None
            if entry is not None and dim in entry.symbols:
                back = steps_back(entry, dim)
                found |= {True, False} if back is None else {back < 0} if back else set()
    return frozenset(found)


def _never_ahead(entry: Entry, dim: str) -> bool:
    last = entry.hi - 1 if isinstance(entry, Slice) else entry
    atom = last.terms[0][0] if last.is_atom else None
    if isinstance(atom, Extremum):  # such as max(i - 3, 0)
        enough = all if atom.which == "max" else any
        return enough(_never_ahead(arg, dim) for arg in atom.args)
    at_start = last.is_const and last.const == 0
    back = steps_back(last, dim)
    return at_start or (back is not None and back >= 0)


@cache
def moves(index: Index, domain: Domain) -> tuple[frozenset[str], frozenset[str]]:
    """Return the dimensions of possible steps ahead in an index, and of certain steps back."""
    pairs = list(zip(domain, index, strict=True))
    ahead = frozenset(d for d, e in pairs if not _never_ahead(e, d))
    return ahead, frozenset(d for d, e in pairs if (steps_back(e, d) or 0) >= 1)


def components(edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return the strongly connected components (Tarjan 1972), each after its targets."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for root in edges:
        if root in order:
            continue
        work: list[tuple[int, Iterable[int]]] = [(root, iter(edges[root]))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in order:
                    order[target] = low[target] = len(order)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in on_stack:
                    low[node] = min(low[node], order[target])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == order[node]:
                    component: list[int] = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    found.append(component)
    return found
