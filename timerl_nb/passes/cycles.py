"""Which operations cannot be vectorised over a dimension because of cycles.

A cycle is trivial on d if every index of d on it is d itself or constant
(000_9a2364bc51ddf94b.txt §5.2). Operations on a non-trivial cycle run one d after the other;
those on a trivial one are vectorised together or not at all. Edges that strictly advance another
dimension which no edge goes back along (the iterations) do not close a cycle within one d.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from timerl_nb.ir.ops import Op, Read
from timerl_nb.ir.pdg import Pdg
from timerl_nb.symbolic.expr import Entry, Lin, Slice, sym


@dataclass(frozen=True)
class Cycles:
    """Per dimension: operations on non-trivial cycles, and groups that go together."""

    sequential: frozenset[int]
    together: tuple[frozenset[int], ...]


def cycles_of(pdg: Pdg, dim: str) -> Cycles:
    """The cycles of the graph as far as they matter for `dim`."""
    forward = [d.name for d in pdg.dims if d.name != dim and _never_goes_back(pdg, d.name)]
    edges: dict[int, list[int]] = {op.id: [] for op in pdg}
    trivial: dict[tuple[int, int], bool] = {}
    for op in pdg:
        for read in op.inputs:
            if any(_advances(pdg, op, read, d) for d in forward):
                continue
            edges[op.id].append(read.source)
            key = (op.id, read.source)
            trivial[key] = trivial.get(key, True) and _is_trivial(pdg, op, read, dim)
    sequential: set[int] = set()
    together: list[frozenset[int]] = []
    for component in components(edges):
        inside = set(component)
        cyclic = [(a, b) for a in component for b in edges[a] if b in inside]
        if not cyclic:
            continue
        members = frozenset(k for k in component if dim in pdg[k].domain)
        if all(trivial[edge] for edge in cyclic):
            together.append(members)
        else:
            sequential |= members
    return Cycles(frozenset(sequential), tuple(together))


def _entry(pdg: Pdg, op: Op, read: Read, dim: str) -> Entry | None:
    """The index of `dim` on an edge; None where the source or the reader does not vary over it."""
    domain = pdg.output(read).domain
    if dim not in domain or dim not in op.domain:
        return None
    return read.index[domain.index(dim)]


def _is_trivial(pdg: Pdg, op: Op, read: Read, dim: str) -> bool:
    entry = _entry(pdg, op, read, dim)
    if entry is None or dim not in entry.symbols:
        return True
    return isinstance(entry, Lin) and entry.as_symbol == dim


def _back(entry: Lin, dim: str) -> int | None:
    """k where the index is dim - k."""
    distance = sym(dim) - entry
    return distance.const if distance.is_const else None


def _never_goes_back(pdg: Pdg, dim: str) -> bool:
    """Whether no edge reads a later point of the dimension."""
    for op in pdg:
        for read in op.inputs:
            entry = _entry(pdg, op, read, dim)
            if entry is None:
                continue
            last = entry.hi - 1 if isinstance(entry, Slice) else entry
            distance = _back(last, dim)
            at_start = last.is_const and last.const == 0
            if not at_start and (distance is None or distance < 0):
                return False
    return True


def _advances(pdg: Pdg, op: Op, read: Read, dim: str) -> bool:
    """Whether the edge always reads a strictly earlier point of the dimension."""
    entry = _entry(pdg, op, read, dim)
    if not isinstance(entry, Lin):
        return False
    distance = _back(entry, dim)
    return distance is not None and distance >= 1


def components(edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Strongly connected components (Tarjan 1972), each after those it points to."""
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
