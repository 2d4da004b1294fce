"""Memory plans of long runs, extrapolated from the plans of two short ones.

The short runs differ by one period. Numbers of their plans (slots, live values, bytes at
corresponding times) continue linearly. Everything else must be equal, or the extrapolation fails.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.memory.liveness.value_lifetimes import ValueLiveRanges
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.memory_timeline import Timeline
from timerl_nb.compiler.memory.placement.block_storage import BlockStorage, RowBlock
from timerl_nb.compiler.memory.placement.buffer_layout import (
    Home,
    Layout,
    buffer_name,
    excess_slots_reason,
)
from timerl_nb.compiler.memory.placement.ring_sizes import Axis
from timerl_nb.compiler.memory.placement.slice_reads import PointRange
from timerl_nb.compiler.memory.placement.storage_kinds import StorageChoice, Store, choose
from timerl_nb.compiler.memory.steady_state.extrapolated_points import (
    FoldedPoints,
    is_in_periods,
    turns,
)
from timerl_nb.compiler.memory.steady_state.extrapolated_timeline import FoldedTimeline, Runs, check
from timerl_nb.compiler.memory.steady_state.period_detection import Fold, holds
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import Lin


class FoldedPlan(MemoryPlan):
    """The memory plan of a long run, with the clock and the live ranges of a short run.

    Attributes:
        small, large: the plans of the two short runs.
        exactly: returns the plan point by point.
    """

    def __init__(
        self, small: MemoryPlan, large: MemoryPlan, exactly: Callable[[], MemoryPlan]
    ) -> None:
        assert large.fold is not None
        self.small, self.large, self.exactly = small, large, exactly
        self._long = fold = large.fold
        super().__init__(
            large.constraints,
            large.clock,
            tuple(large.lifetimes.values()),
            self._extrapolate_placement(),
            smallest=large.smallest,
            donations=large.donations if large.donates else None,
            fold=fold,
        )
        self.bounds = dict(fold.bounds)
        self._check()

    def _check(self) -> None:
        """Raise `Unlike` if the two runs differ by more than a period."""
        small, large = self.small, self.large
        check(small.donations == large.donations)
        schedule, lifetimes = large.clock.schedule, tuple(large.lifetimes.values())
        check(holds(self._long, large.constraints, schedule, lifetimes))
        few, more = ([(n, l.tensors) for n, l in p.lifetimes.items()] for p in (small, large))
        check(few == more)
        _check_order(self._long, small.clock, large.clock, self._extrapolated_timeline.runs)
        self._extrapolated_timeline.check()
        _ = self.layout

    def _extrapolate_placement(self) -> BlockStorage:
        small, large = self.small.placed, self.large.placed
        check(
            small.parts.keys() == large.parts.keys() and small.blocks.keys() == large.blocks.keys()
        )
        blocks = {t: _block(self._long, small.blocks[t], b) for t, b in large.blocks.items()}
        parts = {k: _parts(self._long, small.parts[k], found) for k, found in large.parts.items()}
        return replace(large, blocks=blocks, parts=parts)

    def timeline(self) -> FoldedTimeline:
        """Return the live bytes over schedule time, predicted without running the program."""
        return self._extrapolated_timeline

    @cached_property
    def point_by_point(self) -> Timeline:
        """The timeline of the larger short run."""
        return self.large.point_by_point

    @cached_property
    def _extrapolated_timeline(self) -> FoldedTimeline:
        fold = self._long
        lines = self.small.point_by_point, self.large.point_by_point
        runs = _runs(fold, self.small.clock)
        return FoldedTimeline(*lines, runs, 0 if fold.inner else fold.period)

    @cached_property
    def stores(self) -> Mapping[Tensor, Store]:
        """The store of each tensor."""
        return {tensor: self._store(tensor) for tensor in self.large.stores}

    def _store(self, tensor: Tensor) -> Store:
        small, large = self.small.stores[tensor], self.large.stores[tensor]
        check((small.kind, small.lifetime) == (large.kind, large.lifetime))
        most = self._long.number(small.most, large.most)
        if large.traits.is_cyclic and small.axes != large.axes:  # the number of values in it grows
            how = self._box(large, most) or choose(
                self._all_live_ranges(tensor), large.domain, smallest=self.smallest
            )
            return replace(large, kind=how.kind, most=most, why=how.why, axes=how.axes)
        return replace(
            large,
            most=most,
            axes=self._extrapolate_axes(tensor, small.axes, large.axes, large.domain),
        )

    def _box(self, store: Store, most: int) -> StorageChoice | None:
        """Return a box with a slot for every coordinate, if there are many values.

        A search for a ring would then take too long.
        """
        if most <= MOST_VALUES:
            return None
        sizes = [self.pdg.dims[d].count(self.bounds) for d in store.domain]
        check(prod(sizes) <= self._long.period * most)
        axes = tuple(Axis(k, size, ring=False) for k, size in enumerate(sizes))
        return StorageChoice("point", f"more than {MOST_VALUES:,} values are live together", axes)

    def axes(
        self, tensor: Tensor, small: Sequence[Axis], large: Sequence[Axis], domain: Domain
    ) -> tuple[Axis, ...]:
        """Return the axes of a tensor's buffer, extrapolated from the short runs.

        Args:
            tensor: the tensor.
            small, large: the axes in the short runs.
            domain: the dimensions of the buffer.
        """
        if (small, large) == (self.small.stores[tensor].axes, self.large.stores[tensor].axes):
            return self.stores[tensor].axes
        return self._extrapolate_axes(tensor, small, large, domain)

    def _extrapolate_axes(
        self, tensor: Tensor, small: Sequence[Axis], large: Sequence[Axis], domain: Domain
    ) -> tuple[Axis, ...]:
        check(len(small) == len(large))
        return tuple(self._axis(tensor, a, b, domain) for a, b in zip(small, large, strict=True))

    def _axis(self, tensor: Tensor, small: Axis, large: Axis, domain: Domain) -> Axis:
        check((small.coordinate, small.ring) == (large.coordinate, large.ring))
        if large.ring and large.size > 1:
            check(small == large)
            # The slots of a ring are proved for the long run if no value lives longer in a longer
            # run. Slots along another loop are used in the same order in both runs.
            if not self._long.inner or domain[large.coordinate] == self._long.dim.name:
                spans = self.small.spans[tensor], self.large.spans[tensor]
                longest = {int((span.dies - span.birth_times).max(initial=0)) for span in spans}
                check(len(longest) == 1)
        number = self._long.number
        size, first = number(small.size, large.size), number(small.first, large.first)
        return replace(large, size=size, first=first)

    def _all_live_ranges(self, tensor: Tensor) -> ValueLiveRanges:
        """Return the live ranges of all values of a tensor, in order of birth."""
        small, large = (plan.spans[tensor].lives for plan in (self.small, self.large))
        runs = self.points.birth_runs(small)
        check(len(large.born) == len(small.born) + int(runs.cumulative_lengths[-1]))
        return self.points.live_ranges_between(small, large, 0, len(self._extrapolated_timeline))

    def live_ranges_between(
        self, lifetime: str, first: int, last: int, few: int
    ) -> ValueLiveRanges:
        """Return the live values of a lifetime between two times.

        See `FoldedPoints.live_ranges_between`.
        """
        k = list(self.lifetimes).index(lifetime)
        small, large = (p.point_by_point.spans[k].lives for p in (self.small, self.large))
        return self.points.live_ranges_between(small, large, first, last, few=few)

    @cached_property
    def points(self) -> FoldedPoints:
        """The executed points of the long run."""
        return FoldedPoints(self._long, self.small.clock, self._extrapolated_timeline.runs)

    @cached_property
    def layout(self) -> Layout:
        """The location of every value in the buffers of a lowered program."""
        return _Layout(self)

    def moment(self, time: int) -> str:
        """Return the statement point at a time, such as `learning(i = 0, t = 9)`."""
        at = self._extrapolated_timeline.moment(time)
        pairs = (self.small, at.small), (self.large, at.large), (self.large, at.later)
        (name, a), (_, b), (_, c) = (plan.clock.point_at(when) for plan, when in pairs)
        return self.name_point(name, {d: at.number(a[d], b[d], c[d]) for d in a})

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of executed points per statement."""
        small, large = self.small.counts, self.large.counts
        return {name: self._long.number(small[name], large[name]) for name in large}

    def without_extrapolation(self) -> MemoryPlan:
        """Return the plan point by point if it has few enough points for choosing swaps.

        Otherwise return this plan.
        """
        return self.exactly() if len(self._extrapolated_timeline) <= SWAPPED else self

    def with_swaps_below(self, budget: int) -> MemoryPlan:
        """Return the plan with swaps if it has few enough points for choosing them.

        Otherwise return this plan.
        """
        plan = self.without_extrapolation()
        return self if plan is self else plan.with_swaps_below(budget)


class _Layout(Layout):
    """A layout extrapolated linearly from the layouts of two short runs."""

    plan: FoldedPlan  # pyrefly: ignore[bad-override-mutable-attribute]

    def _find(self) -> None:
        small, large = Layout(self.plan.small), Layout(self.plan.large)
        check(small.buffers.keys() == large.buffers.keys())
        made, stores = dict(large.buffers), self.plan.stores
        domains = {buffer_name(tensor): store.domain for tensor, store in stores.items()}
        for tensor, homes in large.homes.items():
            for name in (home.buffer.name for home in homes):
                both = small.buffers[name].axes, large.buffers[name].axes
                axes = self.plan.axes(tensor, *both, domains.get(name, ()))
                if name == buffer_name(tensor):
                    more = excess_slots_reason(stores[tensor], axes)
                    made[name] = replace(large.buffers[name], axes=axes, beyond=more)

        def extrapolate_home(one: Home, other: Home) -> Home:
            check((one.buffer.name, one.coordinates) == (other.buffer.name, other.coordinates))
            return replace(other, buffer=made[other.buffer.name])

        check(small.merges.keys() == large.merges.keys())
        self.merges = {k: extrapolate_home(small.merges[k], one) for k, one in large.merges.items()}
        check(small.starts == large.starts)
        self.starts = large.starts
        check(small.latest.keys() == large.latest.keys())
        for slot, found in large.latest.items():
            known = small.latest[slot]
            check(known.keys() == found.keys())
            self.latest[slot] = {
                name: extrapolate_home(known[name], one) for name, one in found.items()
            }
        for tensor, homes in large.homes.items():
            check(len(small.homes[tensor]) == len(homes))
            self.homes[tensor] = tuple(map(extrapolate_home, small.homes[tensor], homes))


def layout_of(plan: MemoryPlan, found: dict[Hashable, Any] | None = None) -> Layout:
    """Return the location of every value of a plan in the buffers of a lowered program.

    Args:
        plan: the plan.
        found: see `Layout`.
    """
    if isinstance(plan, FoldedPlan):
        return plan.layout
    return Layout(plan, found) if plan.buffer_layout is None else plan.buffer_layout


# Limit on executed points for choosing swaps, since the search examines each point.
SWAPPED: Final = 2_000_000

# Limit on simultaneously live values of a tensor for the search of a ring, if their number grows.
MOST_VALUES: Final = 500_000


def _block(fold: Fold, small: RowBlock, large: RowBlock) -> RowBlock:
    check((small.along, small.cut) == (large.along, large.cut))
    size, first = fold.number(small.size, large.size), fold.number(small.first, large.first)
    return replace(large, size=size, first=first)


def _parts(
    fold: Fold, small: Sequence[PointRange], large: Sequence[PointRange]
) -> tuple[PointRange, ...]:
    def gone_on(few: Lin, more: Lin) -> Lin:
        check((more - few).is_const)
        return few + (more - few) * fold.repeats

    def extrapolate_part(one: PointRange, other: PointRange) -> PointRange:
        check((one.tensor, one.along) == (other.tensor, other.along))
        index = tuple(map(gone_on, one.index, other.index))
        return replace(other, index=index, count=gone_on(one.count, other.count))

    check(len(small) == len(large))
    return tuple(map(extrapolate_part, small, large))


def _runs(fold: Fold, small: Clock) -> Runs:
    """Return the positions of the repeated period in the order of all points of the smaller run."""
    (there,) = np.nonzero(is_in_periods(turns(fold, small), fold, 1))
    begins = there[np.diff(there, prepend=-2) > 1]
    lengths = np.diff(np.searchsorted(there, begins), append=len(there))
    return Runs(begins, lengths, fold.repeats)


def _check_order(fold: Fold, small: Clock, large: Clock, runs: Runs) -> None:
    """Raise `Unlike` unless the two runs execute the same points, up to linear continuation."""
    turn, twice = turns(fold, small), is_in_periods(turns(fold, large), fold, 2)
    check(len(large) == len(small) + int(runs.cumulative_lengths[-1]))
    check(int(twice.sum()) == 2 * int(runs.cumulative_lengths[-1]))
    for name, ranks in small.ranks.items():  # one by one, because they have many points
        behind = (turn[ranks] >= fold.first + fold.period) * fold.period
        there, found = ranks + runs.added_lengths(ranks), _At(large, name, fold.dim.name)
        check(found.goes_on(small.points[name], there, behind))
        inside = is_in_periods(turn[ranks], fold, 1)
        again = there[inside] + runs.copies(ranks[inside])[1]
        check(bool(twice[there[inside]].all() & twice[again].all()))
        check(found.goes_on(small.points[name][inside], again, fold.period))


class _At:
    """Points of a statement by their positions in the order of all points."""

    def __init__(self, clock: Clock, name: str, dim: str) -> None:
        domain = clock.schedule.statements[name].domain
        self._order = np.argsort(clock.ranks[name])
        self._ranks, self._rows = clock.ranks[name][self._order], clock.points[name]
        self._moves = np.array([d == dim for d in domain], np.int64)

    def goes_on(self, rows: Array, places: Array, moved: Array | int) -> bool:
        """Return whether points, moved along the dimension, are at the given positions."""
        if not len(rows):
            return True
        at = np.searchsorted(self._ranks, places)
        if at.max() >= len(self._ranks) or not np.array_equal(self._ranks[at], places):
            return False
        found, expected = self._rows[self._order[at]], np.broadcast_to(moved, len(rows))
        return all(
            np.array_equal(found[:, k], rows[:, k] + expected * moves)
            for k, moves in enumerate(self._moves)
        )
