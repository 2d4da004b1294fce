"""Schedules of programs with an unbounded dimension.

One loop along the unbounded dimension encloses all statements over it; all others run before it. No
read goes forwards along such a dimension, so this loop is valid, and no second loop could start
after it. Each iteration runs the given inputs first and the returned values last, so everything in
between is one call. isl orders the statements in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from timerl_nb.compiler.isl.isl_scheduler import Edge, ScheduleTree, in_loop, one_by_one, solve
from timerl_nb.compiler.isl.sets_and_relations import Relation, Set, primed_name
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims
from timerl_nb.compiler.symbolic.index_expressions import const, eq, sym


def schedule_turns(
    dims: Dims,
    dim: Dim,
    statements: Mapping[str, Set],
    validity: Sequence[Edge],
    proximity: Sequence[Edge],
    first: Collection[str],
    last: Collection[str],
    ceiling: int,
) -> ScheduleTree:
    """Return a schedule with one loop along an unbounded dimension.

    For the other arguments and exceptions see `isl_scheduler.solve`.

    Args:
        dim: the unbounded dimension.
        first, last: the statements at the start and at the end of every iteration.
    """
    turn = {name for name, points in statements.items() if dim.name in points.domain}
    while more := {edge.sink for edge in validity if edge.source in turn} - turn:
        turn |= more

    def schedule_changed(names: set[str], change: Callable[[Edge], Edge]) -> ScheduleTree:
        some = {name: points for name, points in statements.items() if name in names}
        valid, near = (
            [change(edge) for edge in edges if {edge.source, edge.sink} <= names]
            for edges in (validity, proximity)
        )
        return solve(dims, some, [e for e in valid if not e.pairs.is_empty()], near, ceiling)

    ahead, found = set(statements) - turn, list[ScheduleTree]()
    if ahead:
        found.append(schedule_changed(ahead, lambda edge: edge))
    parts = (turn & set(first), turn - set(first) - set(last), turn & set(last))
    each = [
        schedule_changed(part, lambda edge: within_turn(edge, dim.name)) for part in parts if part
    ]
    if each:
        found.append(in_loop(dim.name, 1, one_by_one(each)))
    return one_by_one(found)


def within_turn(edge: Edge, dim: str) -> Edge:
    """Return the pairs of an edge within one iteration along a dimension.

    A statement without the dimension runs in iteration 0.
    """
    dims, left, right = edge.pairs.dims, edge.pairs.left, edge.pairs.right
    turns = (
        sym(dim) if dim in left else const(0),
        sym(primed_name(dim)) if dim in right else const(0),
    )
    pairs = edge.pairs & Relation.from_condition(dims, left, right, eq(*turns))
    return Edge(edge.source, edge.sink, pairs)
