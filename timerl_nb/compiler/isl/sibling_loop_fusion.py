"""Fusion of sibling loops that isl leaves apart although a constant shift would allow it.

A schedule is treated as a row of parts in order of execution. A part is a set of points of one
statement, or a loop around a row. Two loops of a row are fused if the later one, shifted by a
constant, runs every point after its dependences, and if some value is then live for a constant
number of iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import islpy as isl

from timerl_nb.compiler.isl.operation_limit import spend
from timerl_nb.compiler.isl.sets_and_relations import to_int

_IN, _OUT, _PARAM = isl.dim_type.in_, isl.dim_type.out, isl.dim_type.param
_KIND = isl.schedule_node_type


@dataclass(frozen=True)
class _Loop:
    """One loop: the iteration of each point by statement, and the row inside."""

    times: Mapping[str, Any]
    body: list[_Part]


_Part = Any  # a named set (points of one statement) or a loop
_Between = dict[tuple[int, int], list[Any]]  # by the positions of two parts in their row


def merge_sibling_loops(raw: Any, validity: Sequence[Any], proximity: Sequence[Any]) -> Any:
    """Return the schedule with sibling loops fused, or unchanged if none can be.

    Args:
        raw: the schedule.
        validity: dependences between statements, all satisfied by the schedule.
        proximity: pairs of points with a preferably short distance in time.
    """
    row = _row(raw.get_root())
    joined = _merge_loops_in_row(row, validity, proximity)
    return _schedule(joined) if _loops(joined) < _loops(row) else raw


def _merge_loops_in_row(
    row: list[_Part], validity: Sequence[Any], proximity: Sequence[Any]
) -> list[_Part]:
    """Return a sequence with merged sibling loops, also inside the bodies of its loops."""
    if not _has_siblings(row):
        return row
    while True:
        needs, near = _group_dependences(row, validity), _group_dependences(row, proximity)
        joined = next(_joined_siblings(row, needs, near), None)
        if joined is None:
            break
        row = joined
    return [
        _Loop(
            part.times,
            _merge_loops_in_row(
                part.body,
                *(_same_iteration_dependences(part, of.get((k, k), ())) for of in (needs, near)),
            ),
        )
        if isinstance(part, _Loop)
        else part
        for k, part in enumerate(row)
    ]


def _joined_siblings(row: list[_Part], needs: _Between, near: _Between) -> Iterator[list[_Part]]:
    """Yield the row with two of its loops fused, in every possible way, near loops first."""
    for later in range(len(row)):
        for first in reversed(range(later)):
            shift = _shift(row, first, later, needs, near)
            if shift is not None:
                yield _fuse_loops(row, first, later, shift, needs)


def _shift(row: list[_Part], first: int, later: int, needs: _Between, near: _Between) -> int | None:
    """Return the shift of the second part that lets both run in one loop.

    None if they are not loops, cannot share one, or if sharing would bound no live range.
    """
    one, other = row[first], row[later]
    if not (isinstance(one, _Loop) and isinstance(other, _Loop) and (first, later) in near):
        return None
    if any((k, later) in needs for k in _waiting(first, later, needs)):
        return None
    close = [_dependence_distances(one, other, pairs) for pairs in near[first, later]]
    if not any(d.dim_min_val(0).is_int() and d.dim_max_val(0).is_int() for d in close):
        return None
    held = [_dependence_distances(one, other, pairs) for pairs in needs.get((first, later), ())]
    least = [d.dim_min_val(0) for d in held or close]
    return -min(map(to_int, least)) if all(v.is_int() for v in least) else None


def _waiting(first: int, later: int, needs: _Between) -> list[int]:
    """Return the parts between two with a dependence on the first of them, directly or not."""
    found: list[int] = []
    for k in range(first + 1, later):
        if any((before, k) in needs for before in (first, *found)):
            found.append(k)
    return found


def _fuse_loops(
    row: list[_Part], first: int, later: int, shift: int, needs: _Between
) -> list[_Part]:
    """Return the row with two loops fused, followed by the parts that depend on the first loop."""
    one, other = row[first], row[later]
    times = dict(one.times)
    for name, time in other.times.items():
        moved = time.add_constant_val(isl.Val(shift))
        times[name] = spend(isl.PwAff.union_add, times[name], moved) if name in times else moved
    waiting = _waiting(first, later, needs)
    at_once = [k for k in range(first + 1, later) if k not in waiting]
    return [
        *row[:first],
        *(row[k] for k in at_once),
        _Loop(times, [*one.body, *other.body]),
        *(row[k] for k in waiting),
        *row[later + 1 :],
    ]


# --- dependences ---------------------------------------------------------------------------------


def _ends(pairs: Any) -> tuple[str, str]:
    return pairs.get_tuple_name(_IN), pairs.get_tuple_name(_OUT)


def _group_dependences(row: list[_Part], dependences: Iterable[Any]) -> _Between:
    """Return the dependences between the parts of a row, and within each part."""
    homes: dict[str, list[tuple[int, Any]]] = {}
    for k, part in enumerate(row):
        if isinstance(part, _Loop):
            for name, time in part.times.items():
                homes.setdefault(name, []).append((k, time.domain()))
        else:
            homes.setdefault(part.get_tuple_name(), []).append((k, part))
    found: _Between = {}
    for pairs in dependences:
        source, sink = _ends(pairs)
        for i, before in homes.get(source, ()):
            for j, after in homes.get(sink, ()):
                own = spend(isl.Map.intersect_domain, pairs, before)
                own = spend(isl.Map.intersect_range, own, after)
                if not own.is_empty():
                    found.setdefault((i, j), []).append(own)
    return found


def _same_iteration_dependences(loop: _Loop, dependences: Iterable[Any]) -> list[Any]:
    """Return the dependences within one iteration of a loop."""
    found: list[Any] = []
    for pairs in dependences:
        source, sink = _ends(pairs)
        same = spend(isl.PwAff.eq_map, loop.times[source], loop.times[sink])
        same = spend(isl.Map.intersect, pairs, same)
        if not same.is_empty():
            found.append(same)
    return found


def _dependence_distances(one: _Loop, other: _Loop, pairs: Any) -> Any:
    """Return the distances of dependences.

    A distance is the iteration in the second loop minus that in the first.
    """
    source, sink = _ends(pairs)
    times = isl.Map.from_pw_aff(one.times[source]), isl.Map.from_pw_aff(other.times[sink])
    turns = spend(isl.Map.apply_domain, pairs, times[0])
    turns = spend(isl.Map.deltas, spend(isl.Map.apply_range, turns, times[1]))
    return spend(isl.Set.project_out, turns, _PARAM, 0, turns.dim(_PARAM))


# --- from isl's tree and back --------------------------------------------------------------------


def _row(node: Any) -> list[_Part]:
    kind = node.get_type()
    if kind == _KIND.leaf:
        points = node.get_domain().get_set_list()
        sets = [points.get_at(k) for k in range(points.n_set())]
        return sorted(sets, key=isl.Set.get_tuple_name)
    if kind != _KIND.band:
        return [part for k in range(node.n_children()) for part in _row(node.child(k))]
    body = _row(node.child(0))
    band = node.band_get_partial_schedule().intersect_domain(node.get_domain())
    for k in reversed(range(band.dim(_OUT))):
        times = band.get_at(k).get_pw_aff_list()
        each = [times.get_at(m) for m in range(times.n_pw_aff())]
        body = [_Loop({time.get_tuple_id(_IN).get_name(): time for time in each}, body)]
    return body


def _schedule(row: list[_Part]) -> Any:
    return reduce(isl.Schedule.sequence, map(_tree, row))


def _tree(part: _Part) -> Any:
    if not isinstance(part, _Loop):
        return isl.Schedule.from_domain(isl.UnionSet.from_set(part))
    times = reduce(isl.UnionPwAff.union_add, map(isl.UnionPwAff.from_pw_aff, part.times.values()))
    band = isl.MultiUnionPwAff.from_union_pw_aff(times)
    return _schedule(part.body).insert_partial_schedule(band)


def _loops(row: list[_Part]) -> int:
    return sum(1 + _loops(part.body) for part in row if isinstance(part, _Loop))


def _has_siblings(row: list[_Part]) -> bool:
    loops = [part for part in row if isinstance(part, _Loop)]
    return len(loops) > 1 or any(_has_siblings(loop.body) for loop in loops)
