"""Search for cyclic dependences between points, under small bounds.

Most strongly connected components of a graph contain no cycle of points. If no read of a component
goes forwards along some dimension, or none goes backwards, no cycle can contain a read along it.
The search removes all such reads and follows the others point by point.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, product
from math import prod
from typing import Final

from timerl_nb.compiler.ir.analysis.dynamic_lengths import exprs
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import all_edges, cyclic_components
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Entry, Lin, Slice, lin, sym

PointOf = tuple[int, tuple[int, ...]]
ReadDirection = tuple[str, int]  # a dimension, and 1 if reads go backwards along it, -1 if forwards

MOST: Final = 200_000  # limit on the number of points to follow under one set of bounds
PARTIAL: Final = 50_000  # the same if there are more points than this limit
EDGES: Final = 1_000_000  # limit on the number of dependences to follow


@dataclass(frozen=True)
class PointCycle:
    """A cycle of points under some bounds.

    Each point depends on the next, and the last equals the first.
    """

    points: tuple[PointOf, ...]
    bounds: Mapping[str, int]


@dataclass(frozen=True)
class Search:
    """Result of a search of cycles under one set of bounds.

    If there is no cycle in it, an incomplete search proves nothing.
    """

    bounds: Mapping[str, int]
    cycle: PointCycle | None
    is_complete: bool


def find_cycle_of_points(pdg: Pdg, sizes: Sequence[int]) -> PointCycle | None:
    """Return a cycle of points, or None. Bounds with too many points are left out.

    Args:
        pdg: the graph.
        sizes: values to try for all bounds. A fixed bound always has its own value.
    """
    home = _homes(pdg)
    tried: list[Mapping[str, int]] = []
    for size in sizes:
        bounds = {d.bound: d.value or size for d in pdg.dims}
        if bounds in tried or _count(pdg, bounds, home) > MOST:
            continue
        tried.append(bounds)
        found = _find_cycle(pdg, bounds, home).cycle
        if found is not None:
            return found
    return None


def search_cycles(pdg: Pdg, sizes: Sequence[int]) -> list[Search]:
    """Search cycles under fixed bounds and under smaller ones, until one is found.

    Each search stops at a limited number of points. Smaller values of fixed bounds follow only if
    the search under their own values has stopped there.

    Args:
        pdg: the graph.
        sizes: values to try for all bounds that are not fixed.

    Returns:
        The searches in order. Only the last may have found a cycle.
    """
    home, done = _homes(pdg), list[Search]()
    own = [{d.bound: d.value or size for d in pdg.dims} for size in sizes]
    smaller = [{d.bound: min(d.value or size, size) for d in pdg.dims} for size in sizes]
    for bounds in own:
        if all(bounds != other.bounds for other in done):
            done.append(_find_cycle(pdg, bounds, home))
            if done[-1].cycle is not None:
                return done
            if not done[-1].is_complete:  # larger bounds have more points
                break
    if done and not done[-1].is_complete and pdg.dims.values:
        for bounds in smaller:
            if all(bounds != other.bounds for other in done):
                done.append(_find_cycle(pdg, bounds, home))
                if done[-1].cycle is not None or not done[-1].is_complete:
                    break
    return done


def has_no_cycle(pdg: Pdg, bounds: Mapping[str, int]) -> bool:
    """Return whether a complete search under the given bounds finds no cycle."""
    found = _find_cycle(pdg, bounds, _homes(pdg))
    return found.is_complete and found.cycle is None


def _count(pdg: Pdg, bounds: Mapping[str, int], ops: Iterable[int]) -> int:
    """Return the number of points of operations."""
    return sum(prod(pdg.dims[d].count(bounds) for d in pdg[k].domain) for k in ops)


def _homes(pdg: Pdg) -> dict[int, int]:
    """Return the number of the component of each operation with possible cycles."""
    return {k: number for number, part in enumerate(suspects(pdg)) for k in part}


def is_cycle(pdg: Pdg, cycle: PointCycle) -> bool:
    """Return whether the points exist under the cycle's bounds and depend on each other."""

    def exists(node: PointOf) -> bool:
        counts = (pdg.dims[d].count(cycle.bounds) for d in pdg[node[0]].domain)
        return all(k < count for k, count in zip(node[1], counts, strict=True))

    return all(
        exists(node) and following in _needs(pdg, node, cycle.bounds)
        for node, following in itertools.pairwise(cycle.points)
    )


def is_needed(pdg: Pdg, cycle: PointCycle) -> bool:
    """Return whether a sink, such as an output, depends on a point of the cycle.

    The result is also True if there are too many points to decide.
    """
    bounds = cycle.bounds
    if _count(pdg, bounds, (op.id for op in pdg.sinks)) > MOST:
        return True
    stack: list[PointOf] = [
        (op.id, point) for op in pdg.sinks for point in _points(pdg, op, bounds)
    ]
    seen, wanted = set(stack), set(cycle.points)
    while stack and len(seen) <= MOST:
        fresh = {n for n in _needs(pdg, stack.pop(), bounds) if n not in seen}
        if fresh & wanted:
            return True
        seen |= fresh
        stack += fresh
    return bool(stack)


def suspects(pdg: Pdg) -> list[frozenset[int]]:
    """Return groups of operations with possible cycles of points, one per component."""
    directions = [(d.name, sign) for d in pdg.dims for sign in (1, -1)]
    found: list[frozenset[int]] = []
    pending = [all_edges(pdg)]
    while pending:
        for component, within in cyclic_components(pending.pop()):
            still = [True] * len(within)
            for direction in directions:
                steps = _steps(pdg, within, direction)
                if steps is not None:
                    still = [one and not step for one, step in zip(still, steps, strict=True)]
            kept = list(compress(within, still))
            if len(kept) < len(within):
                pending.append(kept)
            else:
                found.append(frozenset(component))
    return found


def _steps(
    pdg: Pdg, edges: Iterable[tuple[Op, Read]], direction: ReadDirection
) -> list[int] | None:
    """Return the smallest distance of each read along a direction; None if one may be negative."""
    found: list[int] = []
    for _, read in edges:
        step = _step(pdg, read, direction)
        if step is None or step < 0:
            return None
        found.append(step)
    return found


def _step(pdg: Pdg, read: Read, direction: ReadDirection) -> int | None:
    """Return the smallest distance of a read along a direction; None if it is unknown.

    If the source does not vary over the dimension, the distance is 0: all further reads start from
    a point without a coordinate in this dimension.
    """
    domain = pdg.output(read).domain
    return (
        _least_step(read.index[domain.index(direction[0])], *direction, pdg.dims[direction[0]].size)
        if direction[0] in domain
        else 0
    )


@lru_cache(maxsize=10_000)
def _least_step(entry: Entry, dim: str, sign: int, bound: Lin) -> int | None:
    nearest = (entry.hi - 1 if sign > 0 else entry.lo) if isinstance(entry, Slice) else entry
    if nearest == (lin(0) if sign > 0 else bound - 1):
        return 0
    step = sym(dim) - nearest
    return sign * step.const if step.is_const else None


def _points(pdg: Pdg, op: Op, bounds: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Return all points of an operation's domain."""
    return product(*(range(pdg.dims[d].count(bounds)) for d in op.domain))


def _find_cycle(pdg: Pdg, bounds: Mapping[str, int], home: Mapping[int, int]) -> Search:
    """Search a cycle among operations with the same home, up to a limited number of points."""
    state: dict[PointOf, int] = {}  # 1: on the path, 2: done
    limit = MOST if _count(pdg, bounds, home) <= MOST else PARTIAL
    followed = 0

    def find_dependences(node: PointOf) -> Iterator[PointOf]:
        return (n for n in _needs(pdg, node, bounds) if home.get(n[0]) == home[node[0]])

    for op_id in home:
        for point in _points(pdg, pdg[op_id], bounds):
            start = (op_id, point)
            if start in state:
                continue
            if len(state) >= limit:
                return Search(bounds, None, is_complete=False)
            path: list[tuple[PointOf, Iterator[PointOf]]] = [(start, find_dependences(start))]
            state[start] = 1
            while path:
                node, rest = path[-1]
                following = next(rest, None)
                followed += 1
                if followed > EDGES:
                    return Search(bounds, None, is_complete=False)
                if following is None:
                    state[node] = 2
                    path.pop()
                elif following not in state:
                    if len(state) >= limit:
                        return Search(bounds, None, is_complete=False)
                    state[following] = 1
                    path.append((following, find_dependences(following)))
                elif state[following] == 1:
                    nodes = [n for n, _ in path]
                    points = (*nodes[nodes.index(following) :], following)
                    return Search(bounds, PointCycle(points, bounds), is_complete=True)
    return Search(bounds, None, is_complete=True)


def _needs(pdg: Pdg, node: PointOf, bounds: Mapping[str, int]) -> Iterator[PointOf]:
    op = pdg[node[0]]
    env = {**bounds, **dict(zip(op.domain, node[1], strict=True))}
    if not evaluate(op.where, env):
        return
    for read in (*op.inputs, *pdg.waits(op)):
        if evaluate(read.cond, env):
            yield from _sources(pdg, pdg[read.source], read, env, bounds)
    yield from _decisions(pdg, op, env, bounds)


def _decisions(
    pdg: Pdg, op: Op, env: dict[str, int], bounds: Mapping[str, int]
) -> Iterator[PointOf]:
    """Yield the deciding points of dynamic bounds that a point depends on."""
    known = pdg.dims.known(op.domain)
    if not known or op.kind == "merge":
        return

    def seen(lengths: Mapping[str, int]) -> object:
        here = {**env, **lengths}
        if any(here[dim.name] >= here[dim.bound] for dim in pdg.dims.ending(op.domain)):
            return None
        reads = [list(_sources(pdg, pdg[r.source], r, here, bounds)) for r in op.inputs]
        own = [e for e in exprs(pdg, op) if e.symbols <= here.keys()]
        return evaluate(op.where, here), reads, [evaluate(e, here) for e in own]

    names = [dim.bound for dim in known]
    for dim in known:
        (read,) = pdg.ends[dim.name].inputs
        # all lengths of the other dimensions, as any of them may occur
        others = [range(1, bounds[name] + 1) for name in names if name != dim.bound]
        given = [
            dict(zip((n for n in names if n != dim.bound), values, strict=True))
            for values in product(*others)
        ]
        most = [seen({**lengths, dim.bound: bounds[dim.bound]}) for lengths in given]
        for end in range(1, bounds[dim.bound]):
            if [seen({**lengths, dim.bound: end}) for lengths in given] != most:
                there = {**env, dim.name: end - 1}
                yield from _sources(pdg, pdg[read.source], read, there, bounds)


def _sources(
    pdg: Pdg, source: Op, read: Read, env: dict[str, int], bounds: Mapping[str, int]
) -> Iterator[PointOf]:
    known: dict[str, range] = {}
    for d, entry in zip(pdg.output(read).domain, read.index, strict=True):
        if isinstance(entry, Slice):
            known[d] = range(evaluate(entry.lo, env), evaluate(entry.hi, env))
        else:
            at = evaluate(entry, env)
            known[d] = range(at, at + 1)
    whole = {d: range(pdg.dims[d].count(bounds)) for d in source.domain}
    inside = {d: range(max(r.start, 0), min(r.stop, whole[d].stop)) for d, r in known.items()}
    for point in product(*({**whole, **inside}[d] for d in source.domain)):
        yield source.id, point
