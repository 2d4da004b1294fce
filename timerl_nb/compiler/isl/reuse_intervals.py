"""Gaps between one use of a value and the next, as relations: the third leaf of the door to isl.

A value is used when it is made and whenever it is read. For every use the schedule gives the next
one, so that it is known exactly how long nobody needs the value. Gaps are sorted by the statements
at their two ends and by the component of time in which the ends differ first: each class is one
affine relation, so that calls at its ends can be grafted into the schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import islpy as isl

from timerl_nb.compiler.isl.isl_scheduler import Edge, ScheduleTree
from timerl_nb.compiler.isl.operation_limit import CONTEXT, coalesce_pieces, spend
from timerl_nb.compiler.isl.sets_and_relations import Point, Relation, Set, ceilings_set

_IN, _OUT, _SET = isl.dim_type.in_, isl.dim_type.out, isl.dim_type.set


@dataclass(frozen=True)
class Ends:
    """What tells a class of gaps from others.

    Attributes:
        before, after: the statements at its two ends; `after` is None where the value is kept
            beyond its last use.
        depth: the component of time in which the ends differ first.
    """

    before: str
    after: str | None
    depth: int


@dataclass(frozen=True)
class Gap:
    """A class of gaps between uses of one statement's values.

    Attributes:
        leaves: values -> the points of `before` behind which they are not needed.
        returns: values -> the points of `after` ahead of which they are needed again.
    """

    ends: Ends
    leaves: Relation
    returns: Relation | None

    def restrict_values(self, values: Set) -> Gap:
        """The gaps of some of the values."""

        def restrict(pairs: Relation) -> Relation:
            return pairs.inverse().restrict_range(values).inverse()

        returns = None if self.returns is None else restrict(self.returns)
        return Gap(self.ends, restrict(self.leaves), returns)


class Times:
    """When the statements that run do so, under actual bounds.

    Attributes:
        theta: for this package alone.
    """

    def __init__(self, schedule: ScheduleTree, bounds: Point) -> None:
        self.schedule = schedule
        params = ceilings_set(schedule.dims, bounds)
        self.theta: dict[str, Any] = {
            name: coalesce_pieces(spend(isl.Map.intersect_params, one, params))
            for name, one in schedule.functions()
        }

    @cached_property
    def innermost(self) -> dict[str, int | None]:
        """By statement the component of its time that its innermost loop is."""
        return {name: self._innermost(theta.range()) for name, theta in self.theta.items()}

    def _innermost(self, times: isl.Set) -> int | None:
        moving = range(times.dim(_SET))
        return max(
            (k for k in moving if not times.plain_get_val_if_fixed(_SET, k).is_int()), default=None
        )


class Gaps:
    """All gaps of the values that some uses share, under actual bounds.

    Args:
        uses: value -> the statement points that make or read it; one value name, made somewhere.
        kept: the values that are needed after everything has run.
    """

    def __init__(self, times: Times, uses: Sequence[Edge], kept: Set | None) -> None:
        self._schedule, self._value = times.schedule, uses[0].pairs.left
        self._times, self._theta, self._dims = times, times.theta, times.schedule.dims
        flow: isl.Map | None = None
        for use in uses:
            if use.sink not in self._theta:  # it never runs
                continue
            one = spend(isl.Map.apply_range, use.pairs.raw, self._theta[use.sink])
            flow = one if flow is None else spend(isl.Map.union, flow, one)
        assert flow is not None
        self._flow = coalesce_pieces(flow)
        time = self._flow.range().get_space()
        self._width = time.dim(_SET)
        self._later = isl.Map.lex_lt(time)
        self._kept = None if kept is None else kept.raw

    def between_uses(self, ahead: int) -> list[Gap]:
        """The gaps that end with a use.

        Args:
            ahead: by how many turns of the reader's innermost loop a value returns before it is
                needed, as far as that is after it left.
        """
        pairs = spend(isl.Map.range_product, self._flow, self._flow)
        pairs = spend(isl.Map.intersect_range, pairs, self._later.wrap())
        following = spend(isl.Map.lexmin, pairs.uncurry())  # [value -> use] -> next use
        found: list[Gap] = []
        for before, first in self._theta.items():
            uses = spend(isl.Map.intersect_range, self._flow, first.range()).wrap()
            mine = spend(isl.Map.intersect_domain, following, uses)
            if mine.is_empty():
                continue
            for after, second in self._theta.items():
                both = spend(isl.Map.intersect_range, mine, second.range())
                if both.is_empty():
                    continue
                for depth in range(self._width):
                    part = self._at_depth(both, depth)
                    if part.is_empty():
                        continue
                    back = self._shift_to_earlier_turn(part, after, ahead) if ahead else part
                    left = self._relation(part.domain().unwrap(), before)
                    right = self._relation(back.domain_factor_domain(), after)
                    found.append(Gap(Ends(before, after, depth), left, right))
        return found

    def after_last_use(self) -> list[Gap]:
        """The gaps of kept values behind their last use."""
        if self._kept is None:
            return []
        last = spend(isl.Map.lexmax, spend(isl.Map.intersect_domain, self._flow, self._kept))
        found: list[Gap] = []
        for name, theta in self._theta.items():
            mine = spend(isl.Map.intersect_range, last, theta.range())
            if not mine.is_empty():
                found.append(Gap(Ends(name, None, -1), self._relation(mine, name), None))
        return found

    def _relation(self, times: isl.Map, statement: str) -> Relation:
        """Values -> the points of a statement that run at the given times."""
        raw = coalesce_pieces(spend(isl.Map.apply_range, times, self._theta[statement].reverse()))
        right = self._schedule.statements[statement].domain
        return Relation(self._dims, self._value, right, raw)

    def _at_depth(self, pairs: isl.Map, depth: int) -> isl.Map:
        """The pairs whose times differ first in one component."""
        time = self._flow.range().get_space()
        apart = isl.Map.universe(time.map_from_set())
        for k in range(depth):
            apart = apart.equate(_IN, k, _OUT, k)
        apart = apart.order_lt(_IN, depth, _OUT, depth)
        return spend(isl.Map.intersect_range, pairs.curry(), apart.wrap()).uncurry()

    def _shift_to_earlier_turn(self, pairs: isl.Map, after: str, ahead: int) -> isl.Map:
        """The pairs with their second time moved to an earlier turn of the same loop.

        To the loop's first turn where the loop is not that old, and not at all where that would be
        before the value has left.
        """
        loop, times = self._times.innermost[after], self._theta[after].range()
        if loop is None:
            return pairs
        moved = spend(isl.Map.apply_range, pairs, self._shift(loop, ahead))
        done = self._keep_valid(spend(isl.Map.intersect_range, moved, times))
        rest = spend(isl.Map.subtract_domain, pairs, done.domain())
        same = isl.Map.universe(times.get_space().map_from_set())
        for k in range(loop):
            same = same.equate(_IN, k, _OUT, k)
        inside = spend(isl.Map.intersect_range, same.intersect_domain(times), times)
        first = spend(isl.Map.lexmin, inside)
        started = self._keep_valid(spend(isl.Map.apply_range, rest, first))
        apart = spend(isl.Map.subtract_domain, rest, started.domain())
        return coalesce_pieces(done.union(started).union(apart))

    def _keep_valid(self, pairs: isl.Map) -> isl.Map:
        return spend(isl.Map.intersect_range, pairs.curry(), self._later.wrap()).uncurry()

    def _shift(self, loop: int, ahead: int) -> isl.Map:
        names = [f"c{k}" for k in range(self._width)]
        moved = [f"{n} - {ahead}" if k == loop else n for k, n in enumerate(names)]
        text = f"{{ [{', '.join(names)}] -> [{', '.join(moved)}] }}"
        return isl.Map.read_from_str(CONTEXT, text)
