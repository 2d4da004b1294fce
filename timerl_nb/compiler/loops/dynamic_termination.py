"""Loops under a dynamic bound: guards for existing points, and early termination.

The loop nest is built for the ceiling. A guard at a statement or deallocation tests whether its point
exists. A loop whose guards all test `counter + c < T` ends as soon as none can be true; a loop that counts
down starts at the first possible point.
"""

from __future__ import annotations

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
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    And,
    Cmp,
    Cond,
    Lin,
    all_of,
    any_of,
    const,
    le,
    lt,
    minimum,
    negate,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst, subst_cond


def guard(dims: Dims, domain: Domain, where: Cond, point: tuple[Lin, ...]) -> Guard | None:
    """Return the condition for the existence of a point; None if it always exists."""
    dim = dims.dynamic
    if dim is None or not dims.is_bound_known(domain):
        return None
    at = dict(zip(domain, point, strict=True))
    cond = lt(at[dim.name], dim.size) if dim.name in domain else TRUE
    if dim.bound in where.symbols:
        cond = all_of(cond, subst_cond(where, at))
    if cond is TRUE or cond is lt(0, dim.size):  # the first point always exists
        return None
    return Guard(cond, dim.bound, tuple(at[d] for d in dim.over or ()))


Turns = tuple[int, int]  # the first and last value of a loop's counter
Asked = tuple[Guard | None, Turns]


def with_ends(node: Node) -> Node:
    """Return the same nest with a termination condition for every loop that can end early."""
    if isinstance(node, Sequence):
        return Sequence(tuple(map(with_ends, node.parts)))
    if isinstance(node, If):
        other = None if node.other is None else with_ends(node.other)
        return If(node.cond, with_ends(node.then), other)
    if isinstance(node, Loop):
        return _add_termination(replace(node, body=with_ends(node.body)))
    return node


def _add_termination(loop: Loop) -> Loop:
    if not (loop.first.is_const and loop.last.is_const):
        return loop
    asked = _collect_guards(loop.body, loop.counter, (loop.first.const, loop.last.const))
    guards = [(g, turns) for g, turns in asked if g is not None]
    if not guards:
        return loop
    name, at = guards[0][0].name, _common_point(loop, [g for g, _ in guards])
    counter = sym(loop.counter)
    # unguarded statements keep the loop running up to their last iteration
    certain = max((last for g, (_, last) in asked if g is None), default=loop.first.const - 1)
    if certain == loop.last.const:
        return loop
    for slope in (1, -1):
        moving = counter * slope
        shifts = [_shift(_position(g), moving, turns) for g, turns in guards]
        found = [shift for shift in shifts if shift is not None]
        if len(found) < len(shifts) or (
            slope < 0 and (loop.step != 1 or certain >= loop.first.const)
        ):
            continue
        going = lt(moving + min(found), sym(name))
        if certain >= loop.first.const:
            going = any_of(going, le(counter, certain))
        turns = Guard(going, name, at)
        body = loop.body if slope < 0 else _plain(loop.body, turns)
        return replace(loop, body=body, turns=turns, late=slope < 0)
    return loop


def _common_point(loop: Loop, guards: list[Guard]) -> tuple[Lin, ...] | None:
    """Return the point at which all guards of a loop read the bound; None if there are several."""
    inside = {loop.counter}
    stack: list[Node] = [loop.body]
    while stack:
        node = stack.pop()
        stack += children(node)
        if isinstance(node, Loop):
            inside.add(node.counter)
    at = guards[0].at
    moves = at is None or any(inside & e.symbols for e in at)
    return None if moves or any(g.at != at for g in guards) else at


def _shift(position: Lin | None, moving: Lin, turns: Turns) -> int | None:
    """Return the distance between a position and the loop counter; None if it is not constant.

    Args:
        position: the position.
        moving: the loop counter or its negative.
        turns: the relevant values of the counter. For a single value, a constant position has a distance,
            too.
    """
    if position is None:
        return None
    first, last = turns
    if position.is_const and first == last:
        moving = subst(moving, {name: const(first) for name in moving.symbols})
    shift = position - moving
    return shift.const if shift.is_const else None


def _collect_guards(node: Node, counter: str, turns: Turns) -> list[Asked]:
    """Return the guards of all statements in a node (None for no guard), each with its counter range."""
    if isinstance(node, If):
        found = _collect_guards(node.then, counter, _narrow_range(turns, node.cond, counter))
        if node.other is not None:
            found += _collect_guards(
                node.other, counter, _narrow_range(turns, negate(node.cond), counter)
            )
        return found
    if isinstance(node, Sequence | Loop):
        return [one for part in children(node) for one in _collect_guards(part, counter, turns)]
    return [(node.guard, turns)]


def _narrow_range(turns: Turns, cond: Cond, counter: str) -> Turns:
    """Return the counter range in which a condition can be true, considering conditions on the counter
    only.
    """
    first, last = turns
    for one in cond.args if isinstance(cond, And) else (cond,):
        if not isinstance(one, Cmp) or one.rel == "!=":
            continue
        up, down = one.arg - sym(counter), one.arg + sym(counter)
        if up.is_const:  # counter + c >= 0, or == 0
            first = max(first, -up.const)
            last = min(last, -up.const) if one.rel == "==" else last
        if down.is_const:  # c - counter >= 0, or == 0
            last = min(last, down.const)
            first = max(first, down.const) if one.rel == "==" else first
    return first, last


def _position(g: Guard) -> Lin | None:
    """Return the position in the dynamic dimension whose existence a guard tests."""
    conds = g.cond.args if isinstance(g.cond, And) else (g.cond,)
    size = sym(g.name)
    for cond in conds:
        if isinstance(cond, Cmp) and cond.rel == ">=":
            position = size - 1 - cond.arg
            if g.name not in position.symbols and lt(position, size) is cond:
                return position
    return None


def _plain(node: Node, turns: Guard) -> Node:
    """Return the body of a loop without guards implied by the loop's own condition.

    If the bound is found in an iteration, it lies beyond the point of that iteration.
    """
    if isinstance(node, Execute | Transfer) and node.guard == turns:
        return replace(node, guard=None)
    if isinstance(node, Sequence):
        return Sequence(tuple(_plain(part, turns) for part in node.parts))
    if isinstance(node, If):
        other = None if node.other is None else _plain(node.other, turns)
        return If(node.cond, _plain(node.then, turns), other)
    return node


def clip_range(
    g: Guard | None, counter: str, shift: int, hi: Lin
) -> tuple[Guard | None, Lin] | None:
    """Apply a guard to all iterations of a loop together, by shortening the range of positions.

    Args:
        g: the guard.
        counter: the loop counter.
        shift: the distance between position and counter.
        hi: the end of the range.

    Returns:
        the remaining guard, and the new end; None if the guard cannot be expressed as an end.
    """
    if g is None:
        return None, hi
    if any(counter in e.symbols for e in g.at or ()):
        return None
    if counter not in g.cond.symbols:
        return g, hi
    position = _position(g)
    if position is None or isinstance(g.cond, And) or position != sym(counter) + shift:
        return None
    return Guard(TRUE, g.name, g.at), minimum(hi, sym(g.name))
