"""Loops that visit a schedule's points in order: isl's loop trees, and what is made of them.

isl's work grows faster than the schedule that it is given. What is beyond its ceiling is cut in two at
the outermost sequence, as often as need be: the loops around that stay one, and in each of their turns
the loops of the first part run, then those of the second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, Generic, Protocol, TypeVar

import islpy as isl

from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree, bottom_up
from timerl_nb.compiler.isl.operation_limit import (
    CALL,
    CONTEXT,
    TooMuchWork,
    coalesce_pieces,
    memoize_with_cost,
    remaining_operations,
    spend,
    spend_once,
)
from timerl_nb.compiler.isl.piecewise_affine import isl_name
from timerl_nb.compiler.isl.sets_and_relations import Point, ceilings_set, to_int
from timerl_nb.compiler.symbolic.index_expressions import (
    Cond,
    Lin,
    all_of,
    any_of,
    compare,
    const,
    invent_symbol,
    maximum,
    minimum,
    pick,
    sym,
)

Node = TypeVar("Node")

_SET, _PARAM, _KIND = isl.dim_type.set, isl.dim_type.param, isl.schedule_node_type

# What isl may spend on the loops of a whole schedule, and on loops that are had in parts already.
_WHOLE: Final = CALL
_PART: Final = CALL // 10


class LoopBuilder(Protocol[Node]):
    """What turns the scan of a schedule into nodes of somebody's own."""

    def loop(
        self, depth: int, counter: str, first: Lin, last: Lin, step: int, body: Node
    ) -> Node: ...
    def branch(self, cond: Cond, then: Node, other: Node | None) -> Node: ...
    def sequence(self, parts: Sequence[Node]) -> Node: ...
    def call(self, name: str, point: tuple[Lin, ...]) -> Node: ...


class Scan(Generic[Node]):
    """The loops that visit all points of a schedule in order under actual bounds.

    Inner loops are split where a guard would be needed (prologue, steady state, epilogue).

    Attributes:
        nests: how many nests isl was asked for; one, where its ceiling is not reached.
        guarded: the statements whose loops isl could not split within its ceiling.
    """

    def __init__(self, tree: ScheduleTree, bounds: Point, builder: LoopBuilder[Node]) -> None:
        self._builder = builder
        self.nests = 0
        self.guarded: list[str] = []
        symbols = {isl_name(bound): sym(bound) for bound in tree.dims.bounds}
        self.root = self._generate_part(
            tree.raw, ceilings_set(tree.dims, bounds), 0, symbols, _WHOLE
        )

    def _nest(self, made: isl.AstNode, known: Mapping[str, Lin]) -> Node:
        self.nests += 1
        return _translate_ast_node(made, known, self._builder)

    def _generate_part(
        self,
        raw: isl.Schedule,
        context: isl.Set,
        fixed: int,
        known: Mapping[str, Lin],
        operations: int,
    ) -> Node:
        """The loops of a schedule whose `fixed` outermost counters are parameters, as `known`."""
        try:
            return self._nest(_loops(raw, context, operations), known)
        except TooMuchWork:
            if not remaining_operations():
                raise
        return self._generate_in_parts(raw, context, fixed, known)

    def _generate_in_parts(
        self, raw: isl.Schedule, context: isl.Set, fixed: int, known: Mapping[str, Lin]
    ) -> Node:
        node = _sequence(raw.get_root())
        if node is None:
            return self._indivisible(raw, context, known)
        depth = node.get_schedule_depth()
        halves = _halves(node)
        if depth == fixed:  # what guards a half is up to its own loops
            within = [raw.intersect_domain(half) for half in halves]
            return self._builder.sequence(
                [self._generate_part(one, context, fixed, known, _PART) for one in within]
            )
        around = node.get_prefix_schedule_union_map()
        parts = [_SchedulePart.from_loops(around, half, fixed, depth, context) for half in halves]

        def generate(k: int, turn: tuple[Lin, ...]) -> Node:
            new = {_turn(j): turn[j] for j in range(fixed, depth)}
            one = raw.intersect_domain(parts[k].points)
            return self._generate_part(one, parts[k].context, depth, {**known, **new}, _PART)

        outer = _loops(_turns([one.turns for one in parts]), context)
        return _translate_ast_node(outer, known, _Turns(self._builder, generate))

    def _indivisible(self, raw: isl.Schedule, context: isl.Set, known: Mapping[str, Lin]) -> Node:
        try:
            return self._nest(_loops(raw, context), known)
        except TooMuchWork:
            if not remaining_operations():
                raise
        made = self._nest(_as_they_are(raw, context), known)
        raw.get_domain().foreach_set(lambda one: self.guarded.append(one.get_tuple_name()))
        return made


@dataclass(frozen=True)
class _SchedulePart:
    """A part of a schedule: its points, in the turns of the loops around it that `context` names."""

    points: isl.UnionSet
    turns: isl.Set
    context: isl.Set

    @staticmethod
    def from_loops(
        around: isl.UnionMap, points: isl.UnionSet, fixed: int, depth: int, context: isl.Set
    ) -> _SchedulePart:
        times = spend(isl.UnionMap.intersect_domain, around, points)
        turns = coalesce_pieces(isl.Set.from_union_set(spend(isl.UnionMap.range, times)))
        named = turns
        for k in range(fixed, depth):
            place = named.dim(_PARAM)
            named = named.insert_dims(_PARAM, place, 1).set_dim_name(_PARAM, place, _turn(k))
            named = named.equate(_PARAM, place, _SET, k)
        times = spend(isl.UnionMap.intersect_range, times, isl.UnionSet.from_set(named))
        points = spend(isl.UnionMap.domain, times)
        within = coalesce_pieces(spend(isl.Set.params, named))
        context = context.align_params(within.get_space())
        within = within.align_params(context.get_space())
        return _SchedulePart(points, turns, spend(isl.Set.intersect, context, within))


class _Turns(Generic[Node]):
    """Loops whose calls are turns of the loops around some parts."""

    def __init__(self, builder: LoopBuilder[Node], part: Callable[[int, tuple[Lin, ...]], Node]):
        self.loop, self.branch, self.sequence = builder.loop, builder.branch, builder.sequence
        self._part = part

    def call(self, name: str, point: tuple[Lin, ...]) -> Node:
        return self._part(int(name.removeprefix("part")), point)


def _turn(k: int) -> str:
    return invent_symbol(f"turn{k}")


def _turns(parts: Sequence[isl.Set]) -> isl.Schedule:
    """In every turn that a part has: the parts, by their numbers, in order."""
    named = [isl.UnionSet.from_set(one.set_tuple_name(f"part{k}")) for k, one in enumerate(parts)]
    domain = reduce(isl.UnionSet.union, named)
    counters = ", ".join(f"c{k}" for k in range(parts[0].dim(_SET)))
    same = "; ".join(f"part{k}[{counters}] -> [{counters}]" for k in range(len(parts)))
    maps = isl.UnionMap.read_from_str(CONTEXT, f"{{ {same} }}")
    band = isl.MultiUnionPwAff.from_union_map(maps.intersect_domain(domain))
    raw = isl.Schedule.from_domain(domain).insert_partial_schedule(band)
    filters = isl.UnionSetList.alloc(CONTEXT, len(parts))
    for one in named:
        filters = filters.add(one)
    leaf = raw.get_root().child(0).child(0)
    return leaf.insert_sequence(filters).get_schedule()


def _sequence(node: isl.ScheduleNode) -> isl.ScheduleNode | None:
    """The outermost node of a sequence of which more than one part has points; None for none."""
    while node.get_type() not in (_KIND.leaf, _KIND.extension):
        own = _with_points(node)
        if len(own) > 1:
            return node
        node = node.child(own[0])
    return None


def _with_points(node: isl.ScheduleNode) -> list[int]:
    if node.get_type() not in (_KIND.sequence, _KIND.set):
        return [0]
    all_of_them = range(node.n_children())
    return [k for k in all_of_them if not node.child(k).child(0).get_domain().is_empty()]


def _halves(node: isl.ScheduleNode) -> list[isl.UnionSet]:
    """The points of the first parts of a sequence, and of the others."""
    own = [node.child(k).child(0).get_domain() for k in _with_points(node)]
    middle = len(own) // 2
    return [reduce(isl.UnionSet.union, half) for half in (own[:middle], own[middle:])]


@memoize_with_cost
def _loops(raw: isl.Schedule, context: isl.Set, operations: int = CALL) -> isl.AstNode:
    """isl's loops, the inner ones split where a guard would be needed."""

    def separate(node: isl.ScheduleNode) -> isl.ScheduleNode:
        if node.get_type() != _KIND.band or not node.get_schedule_depth():
            return node
        every = "; ".join(f"separate[{k}]" for k in range(node.band_n_member()))
        options = isl.UnionSet.read_from_str(CONTEXT, f"{{ {every} }}")
        return node.band_set_ast_build_options(options)

    return _as_they_are(bottom_up(raw, separate), context, operations)


def _as_they_are(raw: isl.Schedule, context: isl.Set, operations: int = CALL) -> isl.AstNode:
    build = isl.AstBuild.from_context(context)
    if operations == CALL:
        return spend(isl.AstBuild.node_from_schedule, build, raw)
    return spend_once(operations, isl.AstBuild.node_from_schedule, build, raw)


def _translate_ast_node(
    node: isl.AstNode, known: Mapping[str, Lin], builder: LoopBuilder[Node]
) -> Node:
    kind = node.get_type()
    if kind == isl.ast_node_type.block:
        children: list[isl.AstNode] = []
        node.block_get_children().foreach(children.append)
        return builder.sequence([_translate_ast_node(child, known, builder) for child in children])
    if kind == isl.ast_node_type.if_:
        then = _translate_ast_node(node.if_get_then_node(), known, builder)
        other = (
            _translate_ast_node(node.if_get_else_node(), known, builder)
            if node.if_has_else_node()
            else None
        )
        return builder.branch(_condition(node.if_get_cond(), known), then, other)
    if kind == isl.ast_node_type.for_:
        counter = node.for_get_iterator().get_id().get_name()
        first = _integer(node.for_get_init(), known)
        if node.for_is_degenerate():
            return _translate_ast_node(node.for_get_body(), {**known, counter: first}, builder)
        end = node.for_get_cond()
        last = _integer(end.get_op_arg(1), known)
        if end.get_op_type() == isl.ast_expr_op_type.lt:
            last = last - 1
        step = to_int(node.for_get_inc().get_val())
        body = _translate_ast_node(node.for_get_body(), known, builder)
        depth = int(counter.removeprefix("c"))  # isl's own name for it
        return builder.loop(depth, counter, first, last, step, body)
    if kind == isl.ast_node_type.user:
        call = node.user_get_expr()
        args = [call.get_op_arg(k) for k in range(call.get_op_n_arg())]
        name = args[0].get_id().get_name()
        return builder.call(name, tuple(_integer(arg, known) for arg in args[1:]))
    raise AssertionError(f"a loop tree with a node of kind {kind}")


def _integer(e: isl.AstExpr, known: Mapping[str, Lin]) -> Lin:
    if e.get_type() == isl.ast_expr_type.int:
        return const(to_int(e.get_val()))
    if e.get_type() == isl.ast_expr_type.id:
        name = e.get_id().get_name()
        return known.get(name) or sym(name)
    op, kind = e.get_op_type(), isl.ast_expr_op_type
    if op in (kind.cond, kind.select):
        chosen = _condition(e.get_op_arg(0), known)
        return pick(chosen, _integer(e.get_op_arg(1), known), _integer(e.get_op_arg(2), known))
    args = [_integer(e.get_op_arg(k), known) for k in range(e.get_op_n_arg())]
    if op == kind.minus:
        return -args[0]
    if op == kind.add:
        return args[0] + args[1]
    if op == kind.sub:
        return args[0] - args[1]
    if op == kind.mul:
        left, right = args
        return left * right.const if right.is_const else right * left.const
    if op == kind.min:
        return minimum(*args)
    if op == kind.max:
        return maximum(*args)
    if op in (kind.fdiv_q, kind.pdiv_q, kind.div):
        return args[0] // args[1].const
    if op in (kind.pdiv_r, kind.zdiv_r):
        return args[0] % args[1].const
    raise AssertionError(f"an index expression with the operation {op}")


def _condition(e: isl.AstExpr, known: Mapping[str, Lin]) -> Cond:
    op, kind = e.get_op_type(), isl.ast_expr_op_type
    if op in (kind.and_, kind.and_then, kind.or_, kind.or_else):
        args = [_condition(e.get_op_arg(k), known) for k in range(e.get_op_n_arg())]
        return all_of(*args) if op in (kind.and_, kind.and_then) else any_of(*args)
    left, right = (_integer(e.get_op_arg(k), known) for k in (0, 1))
    if op == kind.eq:
        return compare("==", left - right)
    if op in (kind.ge, kind.gt):
        return compare(">=", left - right - (op == kind.gt))
    if op in (kind.le, kind.lt):
        return compare(">=", right - left - (op == kind.lt))
    raise AssertionError(f"a condition with the operation {op}")
