"""Loops under dynamic bounds: guards for existing points, and early termination.

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
    at = dict(zip(domain, point, strict=True))
    conds: list[Cond] = []
    lengths: list[Length] = []
    for dim in dims.known(domain):
        within = lt(at[dim.name], dim.size) if dim.name in domain else TRUE
        if within is lt(0, dim.size):  # the first point always exists
            within = TRUE
        if within is not TRUE or dim.bound in where.symbols:
            conds.append(within)
            lengths.append((dim.bound, tuple(at[d] for d in dim.over or ())))
    if any(name in where.symbols for name, _ in lengths):
        conds.append(subst_cond(where, at))
    cond = all_of(TRUE, *conds)
    return None if cond is TRUE else Guard(cond, tuple(lengths))


Length = tuple[str, tuple[Lin, ...] | None]  # a dynamic bound at a point, as in `Guard`
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
    """Return a loop without the iterations in which all guards are false.

    It ends early, or it begins late if its counter runs against the dimension.
    """
    if not (loop.first.is_const and loop.last.is_const):
        return loop
    asked = _collect_guards(loop.body, loop.counter, (loop.first.const, loop.last.const))
    guards = [(g, turns) for g, turns in asked if g is not None]
    if not guards:
        return loop
    # unguarded statements keep the loop running up to their last iteration
    certain = max((last for g, (_, last) in asked if g is None), default=loop.first.const - 1)
    if certain == loop.last.const:
        return loop
    for slope in (1, -1):
        if slope < 0 and (loop.step != 1 or certain >= loop.first.const):
            continue
        found = _ends(sym(loop.counter) * slope, guards)
        if found is None or (slope < 0 and len(found) > 1):
            continue
        moving = sym(loop.counter) * slope
        going = any_of(*(lt(moving + shift, sym(name)) for name, shift in found.items()))
        # the first point of a dimension always exists
        if certain >= loop.first.const and all(certain + shift > 0 for shift in found.values()):
            going = any_of(going, le(sym(loop.counter), certain))
        points = [_common_point(loop, name, [g for g, _ in guards]) for name in found]
        turns = Guard(going, tuple(zip(found, points, strict=True)))
        body = loop.body if slope < 0 else _plain(loop.body, turns)
        return replace(loop, body=body, turns=turns, late=slope < 0)
    return loop


def _ends(moving: Lin, guards: list[tuple[Guard, Turns]]) -> dict[str, int] | None:
    """Return the bounds that end a loop, each with the least distance from the counter to a position.

    A bound that all guards test suffices. Otherwise, the loop goes on as long as any of several bounds
    permits a statement. The result is None if a guard tests no position at a constant distance.
    """
    tested = [
        {
            name: shift
            for name in g.names
            if (shift := _shift(_position(g, name), moving, turns)) is not None
        }
        for g, turns in guards
    ]
    common = [name for name in tested[-1] if all(name in shifts for shifts in tested)]
    if common:
        return {common[-1]: min(shifts[common[-1]] for shifts in tested)}
    found: dict[str, int] = {}
    for shifts in tested:
        if not shifts:
            return None
        name, shift = list(shifts.items())[-1]
        found[name] = min(shift, found.get(name, shift))
    return found


def _common_point(loop: Loop, name: str, guards: list[Guard]) -> tuple[Lin, ...] | None:
    """Return the point at which all guards of a loop read a bound; None if there are several."""
    inside = {loop.counter}
    stack: list[Node] = [loop.body]
    while stack:
        node = stack.pop()
        stack += children(node)
        if isinstance(node, Loop):
            inside.add(node.counter)
    points = [at for g in guards for _, at in g.of((name,))]
    at = points[0]
    moves = at is None or any(inside & e.symbols for e in at)
    return None if moves or any(other != at for other in points) else at


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


def _parts(cond: Cond) -> tuple[Cond, ...]:
    return cond.args if isinstance(cond, And) else (cond,)


def _position(g: Guard, name: str) -> Lin | None:
    """Return the position in the dimension of a dynamic bound whose existence a guard tests."""
    return next(
        (at for cond in _parts(g.cond) if (at := _tested_position(cond, name)) is not None), None
    )


def _tested_position(cond: Cond, name: str) -> Lin | None:
    """Return the position p of a condition `p < name`, else None."""
    size = sym(name)
    if isinstance(cond, Cmp) and cond.rel == ">=":
        position = size - 1 - cond.arg
        if name not in position.symbols and lt(position, size) is cond:
            return position
    return None


def _plain(node: Node, turns: Guard) -> Node:
    """Return the body of a loop without guards implied by the loop's own condition.

    If the bound is found in an iteration, it lies beyond the points of that iteration.
    """
    if isinstance(node, Execute | Transfer) and node.guard is not None:
        return replace(node, guard=_remaining_guard(node, node.guard, turns))
    if isinstance(node, Sequence):
        return Sequence(tuple(_plain(part, turns) for part in node.parts))
    if isinstance(node, Loop):
        return replace(node, body=_plain(node.body, turns))
    if isinstance(node, If):
        other = None if node.other is None else _plain(node.other, turns)
        return If(node.cond, _plain(node.then, turns), other)
    return node


def _remaining_guard(node: Execute | Transfer, g: Guard, turns: Guard) -> Guard | None:
    """Return a guard without the part that a loop's condition implies; None for no guard."""
    if not set(turns.lengths) <= set(g.lengths) or turns.cond not in _parts(g.cond):
        return g
    cond = all_of(TRUE, *(part for part in _parts(g.cond) if part is not turns.cond))
    lengths = g.of(cond.symbols.union(*(e.symbols for e in node.point)))
    return Guard(cond, lengths) if lengths else None


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
    if any(counter in e.symbols for _, at in g.lengths for e in at or ()):
        return None
    moving = [part for part in _parts(g.cond) if counter in part.symbols]
    if not moving:
        return g, hi
    ends = [name for name in g.names if _tested_position(moving[0], name) == sym(counter) + shift]
    if len(moving) > 1 or not ends:
        return None
    rest = all_of(TRUE, *(part for part in _parts(g.cond) if part is not moving[0]))
    return Guard(rest, g.lengths), minimum(hi, sym(ends[0]))
