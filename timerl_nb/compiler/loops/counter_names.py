"""What the counters of a loop nest are called where it is read: as the dimension that they run along."""

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
    """Every node of a nest and guard of one, by its `id`, with the counters of the loops around it as they are called.

    A counter is called as a dimension if everything inside its loop runs along that dimension alone,
    at the counter or so many points before or behind it, and if no loop around it has that name.
    Loops within each other have different names. Only nodes themselves are renamed: their parts are
    still the nest's.

    Args:
        domains: of the operations that are executed.
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
    at = None if guard.at is None else tuple(subst(e, by) for e in guard.at)
    return Guard(subst_cond(guard.cond, by), guard.name, at)


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
