"""Gaps between two consecutive uses of a value, as relations.

A value is used when it is written and whenever it is read. Given the schedule, isl finds the next
use after each use, and so the exact idle time of the value. Gaps are grouped by the statements at
their ends and by the first component of time with a difference between the ends. Each group is one
affine relation, so calls can be inserted at its ends (for example to swap the value out and in).
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
    """Key of a group of gaps.

    Attributes:
        before, after: the statements at the two ends. `after` is None for values retained beyond
            their last use.
        depth: the first component of time with a difference between the ends.
    """

    before: str
    after: str | None
    depth: int


@dataclass(frozen=True)
class Gap:
    """A group of gaps between uses of one statement's values.

    Attributes:
        ends: the key of the group.
        leaves: values -> the points of `before` at the start of the gap.
        returns: values -> the points of `after` at the end of the gap, or earlier for a prefetch;
            None if there is no `after`.
    """

    ends: Ends
    leaves: Relation
    returns: Relation | None

    def restrict_values(self, values: Set) -> Gap:
        """Return the gaps of some of the values."""

        def restrict(pairs: Relation) -> Relation:
            return pairs.inverse().restrict_range(values).inverse()

        returns = None if self.returns is None else restrict(self.returns)
        return Gap(self.ends, restrict(self.leaves), returns)


class Times:
    """Times of all statements with points, under actual bounds.

    Attributes:
        schedule: the schedule.
        theta: the relation of points to times per statement, as isl maps.
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
        """The component of time of each statement's innermost loop, or None without a loop."""
        return {name: self._innermost(theta.range()) for name, theta in self.theta.items()}

    def _innermost(self, times: isl.Set) -> int | None:
        moving = range(times.dim(_SET))
        return max(
            (k for k in moving if not times.plain_get_val_if_fixed(_SET, k).is_int()), default=None
        )


class Gaps:
    """All gaps between uses of one value name, under actual bounds.

    Args:
        times: the times of all statements.
        uses: edges from the value to the statement points that write or read it.
        returned: the values needed after the end of the run; None for no values.
    """

    def __init__(self, times: Times, uses: Sequence[Edge], returned: Set | None) -> None:
        self._schedule, self._value = times.schedule, uses[0].pairs.left
        self._times, self._theta, self._dims = times, times.theta, times.schedule.dims
        flow: isl.Map | None = None
        for use in uses:
            if use.sink not in self._theta:  # the statement has no points
                continue
            one = spend(isl.Map.apply_range, use.pairs.raw, self._theta[use.sink])
            flow = one if flow is None else spend(isl.Map.union, flow, one)
        assert flow is not None
        self._flow = coalesce_pieces(flow)
        time = self._flow.range().get_space()
        self._width = time.dim(_SET)
        self._later = isl.Map.lex_lt(time)
        self._returned = None if returned is None else returned.raw

    def between_uses(self, ahead: int) -> list[Gap]:
        """Return the gaps with a use at their end.

        Args:
            ahead: the prefetch distance between `returns` and the use, in iterations of the
                reader's innermost loop. A prefetch never precedes the start of the gap.
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
        """Return the gaps of retained values after their last use."""
        if self._returned is None:
            return []
        last = spend(isl.Map.lexmax, spend(isl.Map.intersect_domain, self._flow, self._returned))
        found: list[Gap] = []
        for name, theta in self._theta.items():
            mine = spend(isl.Map.intersect_range, last, theta.range())
            if not mine.is_empty():
                found.append(Gap(Ends(name, None, -1), self._relation(mine, name), None))
        return found

    def _relation(self, times: isl.Map, statement: str) -> Relation:
        """Return the values -> the points of a statement that run at the given times."""
        raw = coalesce_pieces(spend(isl.Map.apply_range, times, self._theta[statement].reverse()))
        right = self._schedule.statements[statement].domain
        return Relation(self._dims, self._value, right, raw)

    def _at_depth(self, pairs: isl.Map, depth: int) -> isl.Map:
        """Return the pairs whose times differ first in component `depth`."""
        time = self._flow.range().get_space()
        apart = isl.Map.universe(time.map_from_set())
        for k in range(depth):
            apart = apart.equate(_IN, k, _OUT, k)
        apart = apart.order_lt(_IN, depth, _OUT, depth)
        return spend(isl.Map.intersect_range, pairs.curry(), apart.wrap()).uncurry()

    def _shift_to_earlier_turn(self, pairs: isl.Map, after: str, ahead: int) -> isl.Map:
        """Return the pairs with their second time moved to an earlier iteration of the same loop.

        With too few earlier iterations, the time moves to the loop's first iteration. It stays if
        it would otherwise precede the start of the gap.
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
