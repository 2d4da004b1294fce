"""Display names of loop counters: the names of the dimensions along which they run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from timerl_nb.compiler.loops.loop_nodes import (
    Execute,
    Guard,
    If,
    Loop,
    Node,
    Sequence,
    Transfer,
    children,
)
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import Lin, sym
from timerl_nb.compiler.symbolic.substitution import subst, subst_cond, subst_entry

Called = Mapping[str, Lin]


def shown_nodes(root: Node, domains: Mapping[int, Domain]) -> dict[int, Node | Guard]:
    """Return every node and guard of a nest by its `id`, with display names for the counters of outer loops.

    A counter gets the name of a dimension if all statements in its loop run along that dimension only, at a
    constant distance from the counter, and no outer loop has this name. Nested loops have different names.
    Only the nodes themselves are renamed; their children are those of the nest.

    Args:
        root: the nest.
        domains: the domains of the executed operations.
    """
    found: dict[int, Node | Guard] = {}

    def visit(node: Node, by: Called, taken: frozenset[str]) -> None:
        if isinstance(node, Loop):
            dim = _dimension(node, domains)
            name = node.counter if dim is None or dim in taken else dim
            while name in taken:
                name += "_"
            by, taken = {**by, node.counter: sym(name)}, taken | {name}
        found[id(node)] = _rename_counters(node, by)
        if isinstance(node, Execute | Transfer) and node.guard is not None:
            found[id(node.guard)] = _rename_guard(node.guard, by)
        for part in children(node):
            visit(part, by, taken)

    visit(root, {}, frozenset())
    return found


def _rename_counters(node: Node, by: Called) -> Node:
    if isinstance(node, Sequence):
        return node
    if isinstance(node, If):
        return replace(node, cond=subst_cond(node.cond, by))
    if isinstance(node, Loop):
        name, turns = str(by[node.counter]), _guard(node.turns, by)
        first, last = subst(node.first, by), subst(node.last, by)
        return replace(node, counter=name, first=first, last=last, turns=turns)
    guard = _guard(node.guard, by)
    if isinstance(node, Execute):
        return replace(node, point=tuple(subst(e, by) for e in node.point), guard=guard)
    return replace(node, point=tuple(subst_entry(e, by) for e in node.point), guard=guard)


def _guard(guard: Guard | None, by: Called) -> Guard | None:
    return None if guard is None else _rename_guard(guard, by)


def _rename_guard(guard: Guard, by: Called) -> Guard:
    lengths = tuple(
        (name, None if at is None else tuple(subst(e, by) for e in at))
        for name, at in guard.lengths
    )
    return Guard(subst_cond(guard.cond, by), lengths)


def _dimension(loop: Loop, domains: Mapping[int, Domain]) -> str | None:
    along: set[str] = set()
    for node in _execute_nodes(loop.body):
        for dim, at in zip(domains[node.op_id], node.point, strict=True):
            if loop.counter in at.symbols:
                if not (at - sym(loop.counter)).is_const:
                    return None
                along.add(dim)
    return along.pop() if len(along) == 1 else None


def _execute_nodes(node: Node) -> Iterator[Execute]:
    if isinstance(node, Execute):
        yield node
    for part in children(node):
        yield from _execute_nodes(part)
