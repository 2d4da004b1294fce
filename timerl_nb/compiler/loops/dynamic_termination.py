"""Loops under a dynamic bound: what runs at points that exist, and when a loop may stop.

The loop AST is made for the ceiling. A guard at a statement or a free asks whether its point exists;
a loop in which every guard asks for `counter + c < T` stops when none can hold any more, and one that
counts down starts where the first can.
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
    """What must hold for a point of a domain to exist; None where it exists for certain."""
    dim = dims.dynamic
    if dim is None or not dims.is_bound_known(domain):
        return None
    at = dict(zip(domain, point, strict=True))
    cond = lt(at[dim.name], dim.size) if dim.name in domain else TRUE
    if dim.bound in where.symbols:
        cond = all_of(cond, subst_cond(where, at))
    if cond is TRUE or cond is lt(0, dim.size):  # there is a first point always
        return None
    return Guard(cond, dim.bound, tuple(at[d] for d in dim.over or ()))


Turns = tuple[int, int]  # the first and last value of a loop's counter
Asked = tuple[Guard | None, Turns]


def with_ends(node: Node) -> Node:
    """The same nest with every loop told when its turns have nothing left to do."""
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
    # what runs for certain holds the loop up to the last turn that may run it
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
    """The one point at which guards ask for the bound in all of a loop's turns; None for several."""
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
    """What a position is beyond the loop's own; None where it does not move with the loop.

    Args:
        turns: the values of the counter for which it is asked; if there is but one, a position that
            stands still moves as well as any.
    """
    if position is None:
        return None
    first, last = turns
    if position.is_const and first == last:
        moving = subst(moving, {name: const(first) for name in moving.symbols})
    shift = position - moving
    return shift.const if shift.is_const else None


def _collect_guards(node: Node, counter: str, turns: Turns) -> list[Asked]:
    """The guards of all that a node runs, None for none, each with the turns that may run it."""
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
    """The turns of a loop in which a condition can hold, as far as it bounds the counter alone."""
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
    """The position in the dynamic dimension for which a guard asks whether it is there."""
    conds = g.cond.args if isinstance(g.cond, And) else (g.cond,)
    size = sym(g.name)
    for cond in conds:
        if isinstance(cond, Cmp) and cond.rel == ">=":
            position = size - 1 - cond.arg
            if g.name not in position.symbols and lt(position, size) is cond:
                return position
    return None


def _plain(node: Node, turns: Guard) -> Node:
    """The body of a loop without the guards that its own condition makes needless.

    Where the bound becomes known in a turn, it lies beyond that turn's own point.
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
    """A guard over all turns of a loop at once: the end of the range of positions, cut by it.

    Args:
        shift: what the position is beyond the counter.
        hi: where the range ends.

    Returns:
        what is left to ask, and the end; None where the guard asks for something else.
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
