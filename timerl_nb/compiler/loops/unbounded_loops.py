"""Loop nests over an unbounded dimension: removal of code for the last iteration."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from timerl_nb.compiler.loops.loop_nodes import If, Loop, Node, Sequence
from timerl_nb.compiler.symbolic.dimensions import ENDLESS
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    And,
    Cmp,
    Cond,
    Extremum,
    Lin,
    Or,
    all_of,
    any_of,
    extremum,
    negate,
)
from timerl_nb.compiler.symbolic.substitution import rewrite

_FAR: Final = (
    int(ENDLESS) >> 1
)  # larger than any reachable iteration, and than any constant of a program


def without_last_turn(node: Node) -> Node:
    """Return the nest with conditions simplified, since the end of the unbounded dimension is never near."""
    if isinstance(node, Sequence):
        parts = [without_last_turn(part) for part in node.parts]
        flat = [
            one for part in parts for one in (part.parts if isinstance(part, Sequence) else (part,))
        ]
        return flat[0] if len(flat) == 1 else Sequence(tuple(flat))
    if isinstance(node, Loop):
        first, last = _near(node.first), _near(node.last)
        return replace(node, first=first, last=last, body=without_last_turn(node.body))
    if isinstance(node, If):
        cond, other = _simplify_condition(node.cond), node.other
        if cond is TRUE:
            return without_last_turn(node.then)
        if cond is negate(TRUE):
            return Sequence(()) if other is None else without_last_turn(other)
        return If(
            cond, without_last_turn(node.then), None if other is None else without_last_turn(other)
        )
    return node


def _simplify_condition(cond: Cond) -> Cond:
    if isinstance(cond, And | Or):
        join = all_of if isinstance(cond, And) else any_of
        return join(*map(_simplify_condition, cond.args))
    assert isinstance(cond, Cmp)
    if abs(cond.arg.const) < _FAR:
        return cond
    holds = cond.arg.const > 0 if cond.rel == ">=" else cond.rel == "!="
    return TRUE if holds else negate(TRUE)


def _near(e: Lin) -> Lin:
    """Return a loop end, a minimum or maximum, without its unreachable arguments."""

    def replace_atom(atom: object) -> Lin | None:
        if not isinstance(atom, Extremum):
            return None
        near = [arg for arg in atom.args if abs(arg.const) < _FAR]
        return extremum(atom.which, map(_near, near)) if near else None

    return rewrite(e, replace_atom)
