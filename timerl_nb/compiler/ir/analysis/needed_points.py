"""Points at which operations are needed.

`y[t + 2] = y + y[t + 1]` writes only points in the domain of y, so its right-hand side is not needed at the
points that would read y[T]. Operations with reads outside a domain are restricted to their needed points. A
read that remains outside is an error of the program (`graph_verifier.prove_reads`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import MergeAttrs
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import Op, Read, reached_from
from timerl_nb.compiler.isl.operation_limit import limit_isl_work
from timerl_nb.compiler.isl.sets_and_relations import Point, Relation, Set
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond, Lin, negate
from timerl_nb.compiler.symbolic.substitution import subst_cond

# Some reads are outside only under small bounds, such as x[3] with T = 2. They are checked under the actual
# bounds.
_LARGE = 1000


def restrict_to_needed(pdg: Pdg, roots: Iterable[int] = (), under: Point | None = None) -> Pdg:
    """Return the graph with out-of-domain reads removed, by restricting operations to needed points.

    Merges, sinks and `roots` are needed everywhere. An operation without any needed point is removed, with
    its readers and the branches that would take its value.

    Args:
        pdg: the graph.
        roots: further operations needed everywhere.
        under: the bounds to check; by default large ones.
    """
    with limit_isl_work("finding the points that are needed"):
        return _restrict_operations(pdg, roots, under)


def _restrict_operations(pdg: Pdg, roots: Iterable[int], under: Point | None) -> Pdg:
    if not any(_is_partial(pdg, op, under) for op in pdg):
        return pdg
    needed = needed_points(pdg, frozenset(roots))
    current = pdg
    dropped: set[int] = set()
    for op_id in pdg.order:
        op = pdg[op_id]
        if not _is_partial(current, op, under):
            continue
        points = needed[op_id]
        if points is None or points.is_empty():
            dropped.add(op_id)
        else:
            cond = points.condition(Set.from_condition(pdg.dims, op.domain))
            restricted_op = op.with_(where=cond)
            current = Pdg(pdg.dims, {**current.ops, op_id: restricted_op}, pdg.orders)
    return remove_operations(current, dropped)


def remove_operations(pdg: Pdg, dropped: set[int]) -> Pdg:
    """Return the graph without some operations, their readers, and the branches with their values."""
    dead = _readers_too(pdg, dropped)
    orders = [order for order in pdg.orders if not {order.before, order.after} & dead]
    ops = {k: _remove_dead_branches(op, dead) for k, op in pdg.ops.items() if k not in dead}
    return Pdg(pdg.dims, ops, orders)


def _readers_too(pdg: Pdg, ops: set[int]) -> set[int]:
    """Return the operations and their transitive readers; a merge only loses a branch."""

    def readers(op_id: int) -> list[int]:
        return [k for k, _ in pdg.readers[op_id] if pdg[k].kind != "merge"]

    return set(reached_from(ops, readers))


def _remove_dead_branches(op: Op, dead: set[int]) -> Op:
    """Return a merge without the branches of removed operations."""
    kept = [k for k, read in enumerate(op.inputs) if read.source not in dead]
    if len(kept) == len(op.inputs):
        return op
    attrs = op.attrs
    if isinstance(attrs, MergeAttrs) and attrs.lines:  # merges made by passes have no lines
        attrs = replace(attrs, lines=tuple(attrs.lines[k] for k in kept))
    return op.with_(inputs=tuple(op.inputs[k] for k in kept), attrs=attrs)


def _is_partial(pdg: Pdg, op: Op, under: Point | None) -> bool:
    """Whether some reads of the operation are outside under the bounds."""
    if op.kind in SINKS | {"merge"}:
        return False
    return any(_leaves(pdg, op, read, under) for read in op.inputs)


def _leaves(pdg: Pdg, op: Op, read: Read, under: Point | None) -> bool:
    if pdg.is_identity(read) and pdg[read.source].where in (TRUE, op.where):
        return False
    outside = pdg.reads(op, read).subtract_range(pdg.defined(read))
    met = outside.with_least_bounds(_LARGE) if under is None else outside.with_bounds(under)
    return not met.is_empty()


def needed_points(
    pdg: Pdg, roots: frozenset[int] = frozenset(), *, chosen: bool = False
) -> Mapping[int, Set | None]:
    """Return the needed points of every operation; None for no point.

    Args:
        pdg: the graph.
        roots: further operations needed everywhere.
        chosen: whether the operands of a `where` with an index condition count only at their selected
            points.
    """
    found: dict[int, Set | None] = {}
    for op_id in reversed(pdg.order):
        op = pdg[op_id]
        if op.kind in SINKS | {"merge"} or op_id in roots:
            found[op_id] = pdg.points(op)
            continue
        total: Set | None = None
        for reader_id, slot in pdg.readers[op_id]:
            reader = pdg[reader_id]
            # A merge precedes its branches in the order, and is needed everywhere.
            points = pdg.points(reader) if reader.kind == "merge" else found[reader_id]
            if points is None:
                continue
            read = reader.inputs[slot]
            if read.cond is not TRUE:
                points = points & Set.from_condition(pdg.dims, reader.domain, read.cond)
            if chosen and reader.kind == "where" and slot:
                points = points & Set.from_condition(
                    pdg.dims, reader.domain, _side(pdg, reader, slot)
                )
            full = Set.from_condition(pdg.dims, op.outputs[read.out].domain)
            image = Relation.reads(points, read.index, full).restrict_range(full).inverse().domain()
            total = image if total is None else total | image
        found[op_id] = None if total is None else total & pdg.points(op)
    return found


def _side(pdg: Pdg, op: Op, slot: int) -> Cond:
    """Return the condition under which a `where` selects an operand, if it is an index condition."""
    read = op.inputs[0]
    condition = pdg[read.source]
    if condition.kind != "value":
        return TRUE
    at = {d: e for d, e in zip(condition.domain, read.index, strict=True) if isinstance(e, Lin)}
    if len(at) < len(condition.domain):
        return TRUE
    held = subst_cond(condition.attrs.expr, at)
    return held if slot == 1 else negate(held)
