"""Scheduling of named statements with isl.

A statement is a name with a set of points. A dependence between statements is a relation from the
producer's points to the consumer's. `solve` finds a schedule tree. `ScheduleTree` answers questions
about it, such as the time of each point and the last reader of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

import islpy as isl

from timerl_nb.base.errors import CeilingError
from timerl_nb.compiler.isl.isl_process import UNSCHEDULABLE, ask_elsewhere
from timerl_nb.compiler.isl.operation_limit import (
    CALL,
    CONTEXT,
    TooMuchWork,
    at_most,
    is_ceiling,
    memoize_with_cost,
    remaining_operations,
    spend,
    spend_once,
)
from timerl_nb.compiler.isl.piecewise_affine import isl_name
from timerl_nb.compiler.isl.sets_and_relations import (
    Point,
    Relation,
    Set,
    bounds_set,
    pw_expression,
)
from timerl_nb.compiler.isl.sibling_loop_fusion import merge_sibling_loops
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import ZERO, Lin

_SET, _IN, _OUT = isl.dim_type.set, isl.dim_type.in_, isl.dim_type.out


class Unschedulable(Exception):
    """No order satisfies the dependences."""


@dataclass(frozen=True)
class Edge:
    """A dependence: points of `source` must run before (or close to) points of `sink`."""

    source: str
    sink: str
    pairs: Relation  # source point -> sink point


def _name_tuples(relation: Relation, left: str, right: str) -> isl.Map:
    half = spend(isl.Map.set_tuple_name, relation.raw, _IN, left)
    return spend(isl.Map.set_tuple_name, half, _OUT, right)


def _names(symbols: Iterable[str]) -> str:
    return ", ".join(map(isl_name, symbols))


def _union_map(dims: Dims, edges: Iterable[Edge]) -> isl.UnionMap:
    return _unite_maps(
        dims.bounds, *(_name_tuples(edge.pairs, edge.source, edge.sink) for edge in edges)
    )


@memoize_with_cost
def _unite_maps(bounds: tuple[str, ...], *maps: isl.Map) -> isl.UnionMap:
    total = isl.UnionMap.read_from_str(CONTEXT, f"[{_names(bounds)}] -> {{ }}")
    for one in maps:
        total = total.add_map(one)
    return spend(isl.UnionMap.coalesce, total)


# islpy swallows exceptions raised in a callback, interrupts included. So these functions list the
# elements first, and `bottom_up` walks the tree itself.


@memoize_with_cost
def _maps(union: isl.UnionMap) -> Sequence[isl.Map]:
    found: list[isl.Map] = []
    union.foreach_map(found.append)
    return found


@memoize_with_cost
def _sets(union: isl.UnionSet) -> Sequence[isl.Set]:
    found: list[isl.Set] = []
    union.foreach_set(found.append)
    return found


def bottom_up(
    raw: isl.Schedule, change: Callable[[isl.ScheduleNode], isl.ScheduleNode]
) -> isl.Schedule:
    """Return the schedule with `change` applied to every node, children first."""

    def walk(node: isl.ScheduleNode) -> isl.ScheduleNode:
        for k in range(node.n_children()):
            node = walk(node.child(k)).parent()
        return change(node)

    return walk(raw.get_root()).get_schedule()


def _union_set(statements: Mapping[str, Set]) -> isl.UnionSet:
    named = (spend(isl.Set.set_tuple_name, points.raw, name) for name, points in statements.items())
    return _all_together(*named)


@memoize_with_cost
def _all_together(*sets: isl.Set) -> isl.UnionSet:
    return reduce(isl.UnionSet.union, map(isl.UnionSet.from_set, sets))


def solve(
    dims: Dims,
    statements: Mapping[str, Set],
    validity: Sequence[Edge],
    proximity: Sequence[Edge],
    ceiling: int,
) -> ScheduleTree:
    """Return a schedule that satisfies `validity` and keeps `proximity` distances short.

    It holds for all bounds >= 1.

    Args:
        dims: the dimensions.
        statements: the points of each statement.
        validity: dependences; a source point must run before its sink points.
        proximity: pairs of points that should run close to each other.
        ceiling: the limit on isl operations.

    Raises:
        Unschedulable: no order satisfies the dependences.
        TooMuchWork: isl reached the limit.
        CeilingError: the child process for long isl calls died.
    """
    with at_most(ceiling):
        number = _number_statements(dims, statements, validity, proximity)
        new = {name: f"S{k:05}" for name, k in number.items()}
        domain = _union_set({new[name]: statements[name] for name in number})
        must, close = (_rename_edges(edges, new) for edges in (validity, proximity))
        whole = _unite_maps(dims.bounds, *must)
        raw = _scheduled(domain, whole, _unite_maps(dims.bounds, *close), bounds_set(dims, {}))
        with suppress(TooMuchWork), at_most(min(remaining_operations(), CALL)):
            raw = _merge_sibling_loops(raw, whole, *close)
        total = _total(raw, *sorted(new.values()))
        return ScheduleTree(dims, dict(statements), _pulled_back(total, dims, statements, new))


@memoize_with_cost
def _merge_sibling_loops(
    raw: isl.Schedule, validity: isl.UnionMap, *proximity: isl.Map
) -> isl.Schedule:
    return merge_sibling_loops(raw, _maps(validity), proximity)


def _number_statements(
    dims: Dims, statements: Mapping[str, Set], validity: Sequence[Edge], proximity: Sequence[Edge]
) -> dict[str, int]:
    """Return a number per statement, independent of names; producers come first.

    isl's result depends on the order in which it meets statements: the order of the hashes of their
    names. So statements get names derived from their points and their neighbours (colour refinement
    of Weisfeiler and Leman). If several statements get the same colour, they are interchangeable,
    and the first one is singled out.
    """
    around: dict[str, list[tuple[Any, str]]] = {name: [] for name in statements}
    for kind, edges in enumerate((validity, proximity)):
        for edge in edges:
            text = _matrix(edge.pairs.raw)
            around[edge.source].append(((kind, "source", text), edge.sink))
            around[edge.sink].append(((kind, "sink", text), edge.source))

    def rank_statements(colour: Mapping[str, Any]) -> dict[str, int]:
        rank = {one: k for k, one in enumerate(sorted(set(colour.values())))}
        return {name: rank[one] for name, one in colour.items()}

    place = dims.names.index
    colour = rank_statements(
        {
            name: (tuple(map(place, points.domain)), _matrix(points.raw))
            for name, points in statements.items()
        }
    )
    while len(set(colour.values())) < len(colour):
        finer = rank_statements(
            {
                name: (own, *sorted((how, colour[other]) for how, other in around[name]))
                for name, own in colour.items()
            }
        )
        if len(set(finer.values())) == len(set(colour.values())):
            seen = list(finer.values())
            least = min(one for one in seen if seen.count(one) > 1)
            apart = list(finer)[seen.index(least)]
            finer = rank_statements({name: (one, name != apart) for name, one in finer.items()})
        colour = finer
    needs: dict[str, set[str]] = {name: set() for name in statements}
    for edge in validity:
        needs[edge.sink].add(edge.source)
    return _sources_first(sorted(statements, key=colour.__getitem__), needs)


def _sources_first(names: Sequence[str], needs: Mapping[str, set[str]]) -> dict[str, int]:
    """Return numbers such that each name follows its needs, apart from cycles.

    Names with the most needs come first, because running them may free the most memory. A name
    without needs is placed directly before its first user.
    """
    place = {name: k for k, name in enumerate(names)}
    found: dict[str, int] = {}
    opened: set[str] = set()
    pending = sorted(names, key=lambda name: (len(needs[name]), -place[name]))
    while pending:
        name = pending[-1]
        if name in opened:
            found.setdefault(pending.pop(), len(found))
            continue
        opened.add(name)
        pending += sorted(needs[name] - opened, key=place.__getitem__, reverse=True)
    return found


def _rename_edges(edges: Sequence[Edge], new: Mapping[str, str]) -> list[isl.Map]:
    """Return the edges under new names, without duplicates.

    Their order does not depend on the input order.
    """
    each = {(new[e.source], new[e.sink], _matrix(e.pairs.raw)): e.pairs for e in edges}
    return [_name_tuples(each[key], *key[:2]) for key in sorted(each)]


@memoize_with_cost
def _matrix(raw: isl.Set | isl.Map) -> str:
    """Return a text of a set or relation without names."""
    printer = isl.Printer.to_str(CONTEXT)
    printer = printer.set_output_format(isl.format.EXT_POLYLIB)
    shown = printer.print_map(raw) if isinstance(raw, isl.Map) else printer.print_set(raw)
    return shown.get_str()


# Limit for a schedule that is computed in this process. With some 200 statements this takes most of
# a second; operations take longer in larger problems.
_HERE = 400_000
# Limit for the last readers of a value, some 20 s. With coprime divisors in its reads, the time
# doubles for each of them.
_LATEST = 20_000_000


class NoLatest(Exception):
    """isl cannot find the last readers of `value` among `readers` within its limit."""

    def __init__(self, value: str, readers: set[str]) -> None:
        super().__init__(value)
        self.value, self.readers = value, readers


@memoize_with_cost
def _scheduled(
    domain: isl.UnionSet, validity: isl.UnionMap, proximity: isl.UnionMap, context: isl.Set
) -> isl.Schedule:
    """Return isl's schedule, computed in a child process if it takes long."""
    constraints = isl.ScheduleConstraints.on_domain(domain)
    constraints = constraints.set_validity(validity).set_proximity(proximity)
    constraints = constraints.set_context(context)
    try:
        return spend_once(_HERE, constraints.compute_schedule)
    except isl.Error as error:
        raise _error_for_complaint(str(error)) from None
    except TooMuchWork:
        if not remaining_operations():
            raise
    texts = {
        "domain": spend(isl.UnionSet.to_str, domain),
        "validity": spend(isl.UnionMap.to_str, validity),
        "proximity": spend(isl.UnionMap.to_str, proximity),
        "context": spend(isl.Set.to_str, context),
    }
    return spend(isl.Schedule.read_from_str, CONTEXT, _made_elsewhere(texts))


def _made_elsewhere(given: Mapping[str, str], most: int | None = None) -> str:
    answer = ask_elsewhere(
        given, remaining_operations() if most is None else min(most, remaining_operations())
    )
    if "ended" in answer:  # such as out of memory; parts of the program may be small enough
        raise CeilingError(f"the child process that runs isl died ({answer['ended']}).")
    if "made" not in answer:
        raise _error_for_complaint(answer["error"])
    return answer["made"]


def _error_for_complaint(complaint: str) -> Exception:
    if UNSCHEDULABLE in complaint:
        return Unschedulable(complaint)
    return TooMuchWork(in_one_call=True) if is_ceiling(complaint) else AssertionError(complaint)


def _pulled_back(
    raw: isl.Schedule, dims: Dims, statements: Mapping[str, Set], to: Mapping[str, str]
) -> isl.Schedule:
    """Return the schedule of other statements, each at the times of its image under `to`."""
    same = [
        f"{name}[{_names(s.domain)}] -> {to[name]}[{_names(s.domain)}]"
        for name, s in statements.items()
    ]
    text = f"[{_names(dims.bounds)}] -> {{ {'; '.join(same)} }}"
    back = spend(isl.UnionPwMultiAff.read_from_str, CONTEXT, text)
    return spend(isl.Schedule.pullback_union_pw_multi_aff, raw, back)


# --- construction of schedules -------------------------------------------------------------------


def one_by_one(trees: Sequence[ScheduleTree]) -> ScheduleTree:
    """Return a schedule with all points of the first tree, then all of the second, and so on."""
    first, *rest = trees
    raw, statements = first.raw, dict(first.statements)
    for tree in rest:
        raw = raw.sequence(tree.raw)
        statements |= tree.statements
    return ScheduleTree(first.dims, statements, raw)


def in_loop(dim: str, step: int, body: ScheduleTree) -> ScheduleTree:
    """Return the tree inside one loop along a dimension.

    Points of the body keep their order within each iteration. A statement without the dimension
    runs in iteration 0.

    Args:
        dim: the dimension.
        step: 1 for an ascending loop, -1 for a descending one.
        body: the tree.
    """
    names = body.statements
    turns = {n: f"{step}*{isl_name(dim)}" if dim in s.domain else "0" for n, s in names.items()}
    maps = "; ".join(f"{n}[{_names(s.domain)}] -> [{turns[n]}]" for n, s in names.items())
    text = f"[{_names(body.dims.bounds)}] -> {{ {maps} }}"
    band = isl.MultiUnionPwAff.from_union_map(
        isl.UnionMap.read_from_str(CONTEXT, text).intersect_domain(body.domain)
    )
    return ScheduleTree(body.dims, dict(names), body.raw.insert_partial_schedule(band))


@memoize_with_cost
def _total(raw: isl.Schedule, *order: str) -> isl.Schedule:
    """Return the schedule as a total order.

    Statements of the same leaf run one after the other, in the order given. So do the children of a
    `set` node, which loop generation might otherwise reorder.
    """
    place = {name: k for k, name in enumerate(order)}

    def first(part: isl.UnionSet) -> int:
        return min(place[one.get_tuple_name()] for one in _sets(part))

    def split_band(node: isl.ScheduleNode) -> isl.ScheduleNode:
        kind = node.get_type()
        parts: list[isl.UnionSet] = []
        if kind == isl.schedule_node_type.leaf:
            parts = [isl.UnionSet.from_set(one) for one in _sets(node.get_domain())]
        elif kind == isl.schedule_node_type.set:
            parts = [node.child(k).filter_get_filter() for k in range(node.n_children())]
        if len(parts) < 2:
            return node
        filters = isl.UnionSetList.alloc(CONTEXT, len(parts))
        for part in sorted(parts, key=first):
            filters = filters.add(part)
        return node.insert_sequence(filters)

    return bottom_up(raw, split_band)


@memoize_with_cost
def _bands(raw: isl.Schedule) -> Sequence[tuple[int, Sequence[isl.Map]]]:
    """Return the bands of a schedule, outermost first.

    Each is a number of loops, and a relation of points to times per statement.
    """
    found: list[tuple[int, Sequence[isl.Map]]] = []

    def visit(node: isl.ScheduleNode) -> None:
        if node.get_type() == isl.schedule_node_type.band:
            partial = node.band_get_partial_schedule_union_map()
            partial = spend(isl.UnionMap.intersect_domain, partial, node.get_domain())
            found.append((node.band_n_member(), _maps(partial)))
        for k in range(node.n_children()):
            visit(node.child(k))

    visit(raw.get_root())
    return found


class ScheduleTree:
    """A total order of all points of some statements: a tree of bands, sequences and filters."""

    def __init__(self, dims: Dims, statements: dict[str, Set], raw: isl.Schedule) -> None:
        self.dims, self.statements, self.raw = dims, statements, raw
        self.domain = _union_set(statements)
        self._theta = spend(
            isl.UnionMap.intersect_domain, spend(isl.Schedule.get_map, raw), self.domain
        )

    @classmethod
    def leaf(cls, dims: Dims, name: str, points: Set) -> ScheduleTree:
        """Return a schedule of one statement, run once per iteration of surrounding loops."""
        statements = {name: points}
        return cls(dims, statements, isl.Schedule.from_domain(_union_set(statements)))

    @classmethod
    def parse(cls, dims: Dims, statements: Mapping[str, Set], text: str) -> ScheduleTree:
        """Return the schedule of a text made by the method `text`."""
        return cls(dims, dict(statements), spend(isl.Schedule.read_from_str, CONTEXT, text))

    def text(self) -> str:
        """Return the schedule as text for `parse`."""
        return self.raw.to_str()

    def expand(
        self, statements: Mapping[str, Set], members: Mapping[str, Sequence[str]]
    ) -> ScheduleTree:
        """Return the schedule with each statement replaced by a sequence of statements.

        Args:
            statements: the new statements. The statements that replace one have the same points.
            members: the replacements of each replaced statement, in order of execution.
        """
        to = {name: name for name in statements}
        to |= {member: name for name, row in members.items() for member in row}
        raw = _pulled_back(self.raw, self.dims, statements, to)
        order = (member for row in members.values() for member in row)
        return ScheduleTree(self.dims, dict(statements), _total(raw, *order))

    # --- times ---------------------------------------------------------------------------------

    def times(self) -> dict[str, tuple[Lin, ...]]:
        """Return the time of each statement, a vector of expressions of its dimensions.

        Statements without points get a time of zeros, since isl drops them.
        """
        found: dict[str, tuple[Lin, ...]] = {}

        for one in _maps(self._theta):
            name = one.get_tuple_name(_IN)
            found[name] = _components(one, self.statements[name].domain, self.dims.bounds)
        never = (ZERO,) * max((len(time) for time in found.values()), default=1)
        return {name: found.get(name, never) for name in self.statements}

    def functions(self) -> list[tuple[str, isl.Map]]:
        """Return the relation of points to times for each statement with points, as isl maps."""
        found: dict[str, isl.Map] = {}

        for one in _maps(self._theta):
            found[one.get_tuple_name(_IN)] = _anonymous(one)
        return [(name, found[name]) for name in self.statements if name in found]

    def loops(self) -> dict[str, list[tuple[int, Lin]]]:
        """Return the loops around each statement, outermost first.

        Each is the loop's number and the statement's position in it. Statements in the same loop
        have the same loop number.
        """
        found: dict[str, list[tuple[int, Lin]]] = {name: [] for name in self.statements}
        count = 0
        for width, maps in _bands(self.raw):
            for one in maps:
                name = one.get_tuple_name(_IN)
                parts = _components(one, self.statements[name].domain, self.dims.bounds)
                found[name] += [(count + k, part) for k, part in enumerate(parts)]
            count += width
        return found

    def violation(self, validity: Sequence[Edge]) -> tuple[Edge, Point, Point] | None:
        """Return a broken dependence with a sample of its two points, or None."""
        if self._theta.is_empty():
            return None
        before = _lexicographic_order(self._theta)
        everything = _union_map(self.dims, validity)
        everything = spend(isl.UnionMap.intersect_domain, everything, self.domain)
        everything = spend(isl.UnionMap.intersect_range, everything, self.domain)

        def is_kept(one: isl.Map) -> bool:
            pair = spend(isl.UnionMap.from_map, one)
            times = spend(isl.UnionMap.apply_domain, pair, self._theta)
            times = spend(isl.UnionMap.apply_range, times, self._theta)
            return bool(spend(isl.UnionMap.is_subset, times, before))

        # Pair by pair: in one map, isl would compare the times of all statements with each other.
        if all(is_kept(one) for one in _maps(everything)):
            return None
        for edge in validity:
            pairs = _union_map(self.dims, [edge])
            pairs = spend(isl.UnionMap.intersect_domain, pairs, self.domain)
            pairs = spend(isl.UnionMap.intersect_range, pairs, self.domain)
            times = spend(isl.UnionMap.apply_range, self._theta, before)
            ordered = spend(isl.UnionMap.apply_range, times, self._theta.reverse())
            wrong = spend(isl.UnionMap.subtract, pairs, ordered)
            if not wrong.is_empty():
                raw = isl.Map.from_union_map(wrong)
                relation = Relation(self.dims, edge.pairs.left, edge.pairs.right, raw)
                found = relation.with_bounds({}).sample()
                if found is not None:
                    return edge, *found
        return None

    # --- last uses -----------------------------------------------------------------------------

    def last_readers(self, uses: Sequence[Edge]) -> list[Edge]:
        """Return the last statement points to read each value.

        Args:
            uses: edges from a value to the statement points that write or read it.

        Raises:
            NoLatest: isl cannot find them within its limit.
        """
        by_value: dict[str, list[Edge]] = {}
        for edge in uses:
            by_value.setdefault(edge.source, []).append(edge)
        lefts = {edge.source: edge.pairs.left for edge in uses}
        found: list[Edge] = []

        # Value by value, so that isl searches only the points of the readers of one value.
        for edges in by_value.values():
            flow = _union_map(self.dims, edges)
            used = spend(isl.UnionMap.range, flow)
            times = spend(isl.UnionMap.intersect_domain, self._theta, used)
            try:
                last = _latest(spend(isl.UnionMap.apply_range, flow, times))
            except TooMuchWork:
                if not remaining_operations():
                    raise
                raise NoLatest(edges[0].source, {edge.sink for edge in edges}) from None
            reading = spend(isl.UnionMap.apply_range, last, spend(isl.UnionMap.reverse, times))
            for one in _maps(spend(isl.UnionMap.intersect, reading, flow)):
                value, reader = one.get_tuple_name(_IN), one.get_tuple_name(_OUT)
                right = self.statements[reader].domain
                pairs = Relation(self.dims, lefts[value], right, _anonymous(one))
                found.append(Edge(value, reader, pairs))
        return sorted(found, key=lambda edge: (edge.source, edge.sink))

    def graft_calls(self, before: Sequence[Edge], after: Sequence[Edge]) -> ScheduleTree:
        """Return the schedule with calls inserted before and after statement points.

        Args:
            before, after: edges from the points of a statement to the points of a new statement.
                Calls at the same point run in the order given.
        """
        calls = (_union_map(self.dims, [call]) for call in (*before, *after))
        ahead, behind = (tuple(call.source for call in some) for some in (before, after))
        raw = _graft_calls(self.raw, ahead, behind, *calls)
        grafted = ScheduleTree.__new__(ScheduleTree)
        grafted.dims, grafted.statements = self.dims, self.statements
        grafted.raw, grafted.domain, grafted._theta = raw, self.domain, self._theta
        return grafted

    def __str__(self) -> str:
        return str(self.raw)


@memoize_with_cost
def _graft_calls(
    raw: isl.Schedule, ahead: tuple[str, ...], behind: tuple[str, ...], *calls: isl.UnionMap
) -> isl.Schedule:
    """Return the schedule with calls before points of some statements and after others."""
    before: dict[str, list[isl.UnionMap]] = {}
    after: dict[str, list[isl.UnionMap]] = {}
    for names, found, some in (
        (ahead, before, calls[: len(ahead)]),
        (behind, after, calls[len(ahead) :]),
    ):
        for name, call in zip(names, some, strict=True):
            found.setdefault(name, []).append(call)

    def walk(node: isl.ScheduleNode, bands: tuple[Any, ...]) -> isl.ScheduleNode:
        """Add the calls to the leaves below a node; `bands` are the partial schedules above it."""
        kind = node.get_type()
        if kind == isl.schedule_node_type.leaf:
            domain = node.get_domain()
            names = [one.get_tuple_name() for one in _sets(domain)]
            if not any(name in before or name in after for name in names):
                return node
            # isl's own prefix relation covers all statements; this one covers the leaf's.
            prefix = isl.UnionMap.from_domain(domain)
            for band in bands:
                part = isl.UnionMap.from_multi_union_pw_aff(band.intersect_domain(domain))
                prefix = spend(isl.UnionMap.flat_range_product, prefix, part)
            prefix = prefix.reverse()

            def make_call_node(call: isl.UnionMap) -> isl.ScheduleNode:
                extension = spend(isl.UnionMap.apply_range, prefix, call)
                return isl.ScheduleNode.from_extension(extension)

            for name in names:
                for call in reversed(after.get(name, [])):
                    node = node.graft_after(make_call_node(call))
                for call in before.get(name, []):
                    node = node.graft_before(make_call_node(call))
            return node
        if kind == isl.schedule_node_type.band:
            bands = (*bands, node.band_get_partial_schedule())
        for k in range(node.n_children()):
            depth = node.get_tree_depth()
            node = walk(node.child(k), bands)
            while node.get_tree_depth() > depth:
                node = node.parent()
        return node

    return walk(raw.get_root(), ()).get_schedule()


@memoize_with_cost
def _lexicographic_order(theta: isl.UnionMap) -> isl.UnionMap:
    """Return the pairs of times in ascending order."""
    return isl.UnionMap.from_map(isl.Map.lex_lt(isl.Set.from_union_set(theta.range()).get_space()))


@memoize_with_cost
def _latest(times: isl.UnionMap) -> isl.UnionMap:
    """Return the latest time of each value."""
    try:
        return spend(isl.UnionMap.lexmax, times)
    except TooMuchWork:
        if not remaining_operations():
            raise
    made = _made_elsewhere({"times": spend(isl.UnionMap.to_str, times)}, _LATEST)
    return spend(isl.UnionMap.read_from_str, CONTEXT, made)


@memoize_with_cost
def _anonymous(one: isl.Map) -> isl.Map:
    return one.reset_tuple_id(_IN).reset_tuple_id(_OUT)


@memoize_with_cost
def _components(one: isl.Map, domain: Domain, bounds: tuple[str, ...]) -> tuple[Lin, ...]:
    many = spend(isl.PwMultiAff.from_map, one)
    return tuple(pw_expression(many.get_pw_aff(k), domain, bounds) for k in range(many.dim(_OUT)))
