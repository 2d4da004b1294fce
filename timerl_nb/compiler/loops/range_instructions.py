"""Promotion of loops that only free or move values to single instructions over a range of points."""

from __future__ import annotations

from dataclasses import replace

from timerl_nb.compiler.loops.dynamic_termination import clip_range
from timerl_nb.compiler.loops.loop_nodes import If, Loop, Node, Sequence, Transfer, children
from timerl_nb.compiler.symbolic.index_expressions import Lin, Slice, span, sym


def tidy(node: Node) -> Node:
    """Return the same nest with every loop around transfers replaced by transfers over ranges."""
    if isinstance(node, Sequence):
        return Sequence(tuple(tidy(part) for part in node.parts))
    if isinstance(node, If):
        return If(node.cond, tidy(node.then), None if node.other is None else tidy(node.other))
    if isinstance(node, Loop):
        body = tidy(node.body)
        return _promote_transfers(node, body) or replace(node, body=body)
    return node


def _promote_transfers(loop: Loop, body: Node) -> Node | None:
    """Return the transfers of a loop's body over all iterations together; None if that is impossible."""
    parts = children(body) if isinstance(body, Sequence) else [body]
    made: list[Node] = []
    for part in parts:
        if not isinstance(part, Transfer) or loop.step != 1:
            return None
        moving = [k for k, e in enumerate(part.point) if loop.counter in e.symbols]
        if len(moving) != 1:
            return None
        (k,) = moving
        entry = part.point[k]
        shift = entry - sym(loop.counter) if isinstance(entry, Lin) else None
        if shift is None or not shift.is_const:
            return None
        rest = clip_range(part.guard, loop.counter, shift.const, loop.last + shift.const + 1)
        if rest is None:
            return None
        whole: Slice = span(loop.first + shift.const, rest[1])
        point = (*part.point[:k], whole, *part.point[k + 1 :])
        made.append(replace(part, point=point, guard=rest[0]))
    return made[0] if len(made) == 1 else Sequence(tuple(made))
