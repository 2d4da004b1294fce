"""Live values between two iterations of the outermost loops.

A value is live if it has been computed, and if a later statement reads it or the run returns it.
Values computed early, for a later iteration, are included. The result depends only on the
statements and the schedule, not on stores or buffers. A dynamic bound counts as its ceiling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree
from timerl_nb.compiler.isl.point_enumeration import Listing, all_points, pairs_set
from timerl_nb.compiler.isl.sets_and_relations import Point, Relation, Set, primed_name, union
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints, Use, points_of
from timerl_nb.compiler.scheduling.statements import statement_name
from timerl_nb.compiler.symbolic.index_expressions import (
    FALSE,
    TRUE,
    Cond,
    Lin,
    all_of,
    any_of,
    const,
    eq,
    gt,
    invent_symbol,
    negate,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst

# The end of an iteration: components of time up to that of its loop. Points with a smaller or equal
# prefix are done.
Time = tuple[int, ...]

_TURN: Final = invent_symbol("turn")


class LivePoints:
    """Live values of a schedule under actual bounds.

    Args:
        constraints: the statements and dependences.
        schedule: the schedule.
        bounds: the actual bounds.
        counts: selects the uses to count; by default all.
    """

    def __init__(
        self,
        constraints: Constraints,
        schedule: ScheduleTree,
        bounds: Point,
        counts: Callable[[Use], bool] = lambda _: True,
    ) -> None:
        self._constraints, self._bounds = constraints, dict(bounds)
        self._pdg, self._times = constraints.pdg, schedule.times()
        self._returned = points_of(filter(counts, constraints.returned_uses))
        self._readers: dict[Tensor, dict[tuple[str, str], Relation]] = {}
        for use in filter(counts, constraints.uses):
            reader = statement_name(self._pdg[use.reader])
            readers = self._readers.setdefault(use.tensor, {})
            readers.setdefault((reader, str(use.values)), use.values)
        self._listings: dict[Time, list[tuple[Sequence[Tensor], Listing]]] = {}

    def at_end(self) -> dict[Tensor, Array]:
        """Return the values returned by the run."""
        return {
            tensor: all_points(points, self._bounds) for tensor, points in self._returned.items()
        }

    def live_at(self, time: Time) -> dict[Tensor, Array]:
        """Return the live points of each tensor at the end of an iteration, one per row.

        Tensors without live points are omitted.
        """
        *around, turn = time
        key = tuple(around)
        if key not in self._listings:
            self._listings[key] = self._build_listings(key)
        found: dict[Tensor, Array] = {}
        for tensors, listing in self._listings[key]:
            rows = listing.points(turn)
            if len(rows):
                found |= dict.fromkeys(tensors, rows[:, 1:])
        return found

    def _build_listings(self, around: Time) -> list[tuple[Sequence[Tensor], Listing]]:
        """Return a listing of live points per iteration, for tensors grouped by equal uses."""
        alike: dict[object, list[Tensor]] = {}
        for op in self._constraints.statements.ops.values():
            for out, output in enumerate(op.outputs):
                returned = self._returned.get((op.id, out))
                readers = frozenset(self._readers.get((op.id, out), ()))
                key = op.id, output.domain, returned and returned.identity_key, readers
                alike.setdefault(key, []).append((op.id, out))
        before = {name: self._done_condition(name, around) for name in self._times}
        found: list[tuple[Sequence[Tensor], Listing]] = []
        for tensors in alike.values():
            living = self._live_relation(tensors[0], before)
            if living is not None:
                found.append((tensors, Listing(pairs_set(living), self._bounds, known=1)))
        return found

    def _live_relation(self, tensor: Tensor, before: Mapping[str, Cond]) -> Relation | None:
        """Return the iteration -> the points of a tensor live after it; None if there are none."""
        op, dims = self._pdg[tensor[0]], self._pdg.dims
        needed = [
            self._turns(reader, negate(before[reader])).then(values)
            for (reader, _), values in self._readers.get(tensor, {}).items()
            if before[reader] is not TRUE
        ]
        returned = self._returned.get(tensor)
        if returned is not None:
            needed.append(
                Relation.from_condition(dims, (_TURN,), returned.domain, TRUE).restrict_range(
                    returned
                )
            )
        wanted, name = union(needed), statement_name(op)
        if wanted is None or before[name] is FALSE:
            return None
        made = self._turns(name, before[name]).then(self._constraints.contributions(op, tensor[1]))
        living = (wanted & made).with_bounds(self._bounds)
        return None if living.is_empty() else living

    def _turns(self, name: str, cond: Cond) -> Relation:
        """Return the iteration -> the points of a statement under a condition."""
        points: Set = self._constraints.points[name]
        return Relation.from_condition(points.dims, (_TURN,), points.domain, cond).restrict_range(
            points
        )

    def _done_condition(self, name: str, around: Time) -> Cond:
        """Return the condition, in primed coordinates, that a point is done after an iteration."""
        primes = {d: sym(primed_name(d)) for d in self._constraints.points[name].domain}
        time = [subst(e, primes) for e in self._times[name]]
        ends: list[Lin] = [*map(const, around), sym(_TURN)]
        later = [
            all_of(*map(eq, time[:k], ends[:k]), gt(time[k], end)) for k, end in enumerate(ends)
        ]
        return negate(any_of(*later))
