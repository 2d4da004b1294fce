"""Clusters of statements, each scheduled by isl as one statement.

The work of isl grows much faster than the number of statements, and unfused programs have hundreds.
So isl schedules the groups found by fusion (`compiler/passes/fusion/fusion_groups`). Such groups
rule out no order of execution. The members of a cluster then run one after the other at each of its
points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from timerl_nb.compiler.isl.isl_scheduler import Edge
from timerl_nb.compiler.isl.sets_and_relations import Relation, Set, primed_name, union
from timerl_nb.compiler.passes.fusion.fusion_groups import joined
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import components
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.statements import statement_name
from timerl_nb.compiler.symbolic.index_expressions import all_of, eq, sym


@dataclass(frozen=True)
class Grouped:
    """Statements and dependences with each cluster as one statement, named after a member.

    Attributes:
        statements: the points of each statement or cluster.
        validity, proximity: the edges between them.
        members: the statements of each cluster, in order of execution at one point.
    """

    statements: dict[str, Set]
    validity: list[Edge]
    proximity: list[Edge]
    members: dict[str, tuple[str, ...]]


def cluster_statements(constraints: Constraints) -> Grouped | None:
    """Return the statements as clusters; None if no cluster has several members."""
    pdg = constraints.pdg
    home: dict[str, str] = {}
    needs: dict[str, dict[int, list[int]]] = {}  # dependences within a cluster, at one point
    for key, group in joined(pdg).groups.items():
        if len(group.members) > 1:
            first = statement_name(pdg[key])
            home |= {statement_name(pdg[k]): first for k in group.members}
            needs[first] = {k: [] for k in sorted(group.members)}
    for edge in constraints.validity:
        if _own(edge, home) is not None:
            source, sink = (
                constraints.statements.ops[edge.source],
                constraints.statements.ops[edge.sink],
            )
            needs[home[edge.source]][sink.id].append(source.id)
    members: dict[str, tuple[str, ...]] = {}
    for first, within in needs.items():
        order = components(within)
        if len(order) == len(within):  # without cycles
            members[first] = tuple(statement_name(pdg[k]) for (k,) in order)
    if not members:
        return None
    home = {name: first for first, names in members.items() for name in names}
    statements = constraints.points
    alone = {name: points for name, points in statements.items() if home.get(name, name) == name}
    return Grouped(
        alone,
        _edges_between_clusters(constraints.validity, home),
        _edges_between_clusters(constraints.proximity, home),
        members,
    )


def _own(edge: Edge, home: Mapping[str, str]) -> Relation | None:
    """Return the pairs of two members of a cluster at the same point; None if there are none."""
    first = home.get(edge.source)
    if first is None or home.get(edge.sink) != first or edge.source == edge.sink:
        return None
    pairs = edge.pairs
    same = all_of(*(eq(sym(d), sym(primed_name(d))) for d in pairs.left))
    own = pairs & Relation.from_condition(pairs.dims, pairs.left, pairs.right, same)
    return None if own.is_empty() else own


def _edges_between_clusters(edges: Iterable[Edge], home: Mapping[str, str]) -> list[Edge]:
    """Return the edges between clusters, without those satisfied by the order of members."""
    found: dict[tuple[str, str], list[Relation]] = {}
    for edge in edges:
        own = _own(edge, home)
        pairs = edge.pairs if own is None else edge.pairs - own
        ends = home.get(edge.source, edge.source), home.get(edge.sink, edge.sink)
        if not pairs.is_empty():
            found.setdefault(ends, []).append(pairs)
    return [Edge(*ends, whole) for ends, each in found.items() if (whole := union(each))]
