"""Swapping: moves values to the host between two uses to fit a program into its budget.

The schedule determines the next use after each use. The worth of a gap is the number of bytes it
removes from the device while the budget is exceeded, per byte moved. Gaps come in groups
(`use_sequence`). A group is swapped as a whole, described by relations
(`compiler/isl/reuse_intervals`), so the loop nest stays readable. Source: the TimeRL paper, section
6.2.

Values never change, and blocks do not change after their last write. So the copy on the host stays
valid until the value is freed. A value is copied only once, even if it leaves the device several
times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from heapq import heapify, heappop, heappush

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.isl.isl_scheduler import Edge
from timerl_nb.compiler.isl.reuse_intervals import Ends, Gap, Gaps
from timerl_nb.compiler.isl.sets_and_relations import Set
from timerl_nb.compiler.memory.liveness.last_uses import Lifetime
from timerl_nb.compiler.memory.liveness.use_sequence import Calendar, Pause, Uses
from timerl_nb.compiler.memory.memory_timeline import Absences
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import ge, sym


@dataclass(frozen=True)
class Slack:
    """Device memory spent to avoid waiting for copies.

    Attributes:
        copying: the duration of a copy to the host, in executed points (`time_to_copy`). The value
            occupies the device meanwhile.
        ahead: the prefetch distance between the return of a value and its use, in iterations of the
            reader's innermost loop.
    """

    copying: int
    ahead: int


# from the fastest to the most economical
SLACKS = (Slack(2, 1), Slack(0, 0))


def time_to_copy(slack: Slack, dims: Dims) -> int:
    """Return the duration of a copy to the host, in executed points.

    It is 0 under a dynamic bound, because any point may not run.
    """
    return 0 if dims.dynamic else slack.copying


# Swaps that move less than this part of all moved bytes are not reduced.
_SHARE = 1 / 16

# Smaller values are moved only if moving larger ones does not suffice.
LARGE = 1 << 16


@dataclass(frozen=True)
class Swap:
    """Swapped tensors of one lifetime, in one group of gaps.

    Attributes:
        lifetime: the name of the lifetime.
        tensors: the tensors.
        ends: the group of gaps.
        away: the absences, point by point.
        find: returns the group as relations.
        since: a dimension and the first coordinate of the swapped values; None for all values.
    """

    lifetime: str
    tensors: tuple[Tensor, ...]
    ends: Ends
    away: Absences
    find: Callable[[], Gap] = field(compare=False, repr=False)
    since: tuple[str, int] | None = None

    @cached_property
    def gap(self) -> Gap:
        """The group as relations."""
        whole = self.find()
        if self.since is None:
            return whole
        (name, first), leaves = self.since, whole.leaves
        return whole.restrict_values(
            Set.from_condition(leaves.dims, leaves.left, ge(sym(name), first))
        )

    @property
    def bytes_moved(self) -> int:
        """Bytes moved to the host during a run."""
        return self.away.nbytes * self.away.turns


@dataclass(frozen=True)
class Swaps:
    """All swaps, and their slack."""

    all: tuple[Swap, ...]
    slack: Slack

    @property
    def bytes_moved(self) -> int:
        """Bytes moved to the host during a run."""
        return sum(swap.bytes_moved for swap in self.all)

    @cached_property
    def tensors(self) -> frozenset[Tensor]:
        return frozenset(t for swap in self.all for t in swap.tensors)

    @cached_property
    def absences(self) -> Mapping[str, list[Absences]]:
        """The absences of each lifetime's values from the device."""
        found: dict[str, list[Absences]] = {}
        for swap in self.all:
            found.setdefault(swap.lifetime, []).append(swap.away)
        return found

    def first_coordinates(self, lifetime: str) -> Mapping[str, int]:
        """Return the first coordinate of a lifetime's swapped values, by dimension.

        Empty if all values are swapped.
        """
        found = [swap.since for swap in self.all if swap.lifetime == lifetime]
        firsts = [one for one in found if one is not None]
        if len(firsts) < len(found) or len({name for name, _ in firsts}) != 1:
            return {}
        return {firsts[0][0]: max(first for _, first in firsts)}

    def offload_calls(self) -> list[Edge]:
        """Return the copies to the host as calls to insert after statements."""
        return [
            Edge(s.ends.before, leave_name(s.lifetime), s.gap.leaves.inverse()) for s in self.all
        ]

    def fetch_calls(self) -> list[Edge]:
        """Return the copies from the host as calls to insert before statements."""
        return [
            Edge(s.ends.after, return_name(s.lifetime), s.gap.returns.inverse())
            for s in self.all
            if s.ends.after is not None and s.gap.returns is not None
        ]


NO_SWAPS = Swaps((), SLACKS[0])


def leave_name(lifetime: str) -> str:
    """Return the name of a copy to the host in the loop tree."""
    return f"leave{lifetime}"


def return_name(lifetime: str) -> str:
    """Return the name of a copy from the host in the loop tree."""
    return f"return{lifetime}"


class Swapping:
    """Search for swaps to bring a program below its budget.

    Args:
        clock: the order of all points.
        lifetimes: the lifetimes.
        sizes: the bytes of each tensor's value or block.
        pinned: tensors excluded from swapping.
        blocks: the tensors stored as blocks.
    """

    def __init__(
        self,
        clock: Clock,
        lifetimes: Sequence[Lifetime],
        sizes: Mapping[Tensor, int],
        pinned: Iterable[Tensor],
        blocks: Container[Tensor],
    ) -> None:
        self._clock, self._sizes, self._blocks = clock, sizes, blocks
        fixed = set(pinned)
        self._lifetimes = [
            life
            for life in lifetimes
            if not fixed.intersection(life.tensors) and len(clock.points[life.producer])
        ]
        self._calendar = Calendar(clock)
        self._uses: dict[str, Uses] = {}
        self._pauses: dict[tuple[str, int], list[Pause]] = {}
        self._classes: dict[tuple[Slack, int], list[Swap]] = {}
        self._gaps: dict[tuple[str, int], dict[Ends, Gap]] = {}

    def choose(self, live: Array, budget: int) -> Swaps:
        """Return swaps that satisfy the budget, or come as close as possible.

        Args:
            live: the live bytes during every executed point, without swaps.
            budget: the bytes allowed.
        """
        if budget > 0:  # a budget of 0 cannot be satisfied
            swaps, peak = _cover(self.classes(SLACKS[0], LARGE), live, budget)
            if peak <= budget:
                return Swaps(tuple(swaps), SLACKS[0])
        sparing = self.classes(SLACKS[-1])
        reach = int((live - sum(swap.away.change(len(live)) for swap in sparing)).max(initial=0))
        if reach <= budget:
            for slack, least in ((SLACKS[0], 1), (SLACKS[-1], LARGE)):
                swaps, peak = _cover(self.classes(slack, least), live, budget)
                if peak <= budget:
                    return Swaps(tuple(swaps), slack)
        swaps, _ = _cover(sparing, live, max(budget, reach))
        return Swaps(tuple(swaps), SLACKS[-1]) if swaps else NO_SWAPS

    def forget(self) -> None:
        """Free the search data: plans are long-lived, and these data are larger."""
        self._uses.clear()
        self._pauses.clear()
        self._classes.clear()
        self._calendar = Calendar(self._clock)

    def reduce_swaps(self, swaps: Swaps, live: Array, budget: int) -> Swaps:
        """Return the same swaps of fewer values: only those from some coordinate on.

        Args:
            swaps: the swaps.
            live: see `choose`.
            budget: the bytes allowed. If the swaps already exceed it, they stay as they are.
        """
        end, found = len(live), list(swaps.all)
        excess = live - budget - sum(swap.away.change(end) for swap in found)
        if excess.max(initial=0) > 0:
            return swaps
        for k, swap in sorted(enumerate(swaps.all), key=lambda pair: -pair[1].bytes_moved):
            if swap.bytes_moved < _SHARE * swaps.bytes_moved:
                break
            without = excess + swap.away.change(end)

            def fits(fewer: Swap, without: Array = without) -> bool:
                return bool((without - fewer.away.change(end)).max() <= 0)

            along = self.domain(swap) if swap.since is None else (swap.since[0],)
            fewer = [swap, *(self._postpone(swap, d, fits) for d in along)]
            found[k] = min(fewer, key=lambda one: one.bytes_moved)
            excess = without - found[k].away.change(end)
        return replace(swaps, all=tuple(found))

    def _postpone(self, swap: Swap, name: str, fits: Callable[[Swap], bool]) -> Swap:
        """Return the swap, restricted to values from the latest possible coordinate on."""
        at = self._clock.coordinate(self.domain(swap), name, swap.away.codes)
        firsts = np.unique(at).tolist()
        late = bisect_left(
            firsts, True, lo=1, key=lambda first: not fits(self.restrict_swap(swap, name, first))
        )
        return self.restrict_swap(swap, name, firsts[late - 1]) if late > 1 else swap

    def restrict_swap(self, swap: Swap, name: str, first: int) -> Swap:
        """Return a swap, restricted to values from coordinate `first` on along a dimension."""
        away = swap.away
        here = self._clock.coordinate(self.domain(swap), name, away.codes) >= first
        gaps = (column[here] for column in (away.codes, away.used, away.gone, away.back))
        return replace(swap, away=Absences(away.nbytes, *gaps), since=(name, first))

    def domain(self, swap: Swap) -> Domain:
        """Return the dimensions of a swap's values."""
        return next(life.domain for life in self._lifetimes if life.name == swap.lifetime)

    def classes(self, slack: Slack, least: int = 1) -> list[Swap]:
        """Return all groups of gaps of values with at least `least` bytes."""
        if (slack, least) not in self._classes:
            self._classes[slack, least] = self._find_swaps(slack, least)
        return self._classes[slack, least]

    def _find_swaps(self, slack: Slack, least: int) -> list[Swap]:
        found: list[Swap] = []
        copying = time_to_copy(slack, self._clock.schedule.dims)
        for life in self._lifetimes:
            moved = tuple(t for t in life.tensors if self._sizes[t] >= least)
            if not moved:
                continue
            nbytes = sum(self._sizes[t] for t in moved)
            for one in self._find_pauses(life, slack.ahead):
                away = Absences(nbytes, one.codes, one.used, one.used + 1 + copying, one.back)
                find = partial(self._gap, life, slack.ahead, one.ends)
                found.append(Swap(life.name, moved, one.ends, away, find))
        return found

    def _find_pauses(self, life: Lifetime, ahead: int) -> list[Pause]:
        """Return a lifetime's groups of gaps."""
        key = life.name, ahead
        if key not in self._pauses:
            if life.name not in self._uses:
                self._uses[life.name] = Uses(self._calendar, life)
            pauses = self._uses[life.name].pauses(ahead)
            if life.tensors[0] in self._blocks:
                pauses = _once_written(pauses, life.producer)
            self._pauses[key] = pauses
        return self._pauses[key]

    def _gap(self, life: Lifetime, ahead: int, ends: Ends) -> Gap:
        key = life.name, ahead
        if key not in self._gaps:
            gaps = Gaps(self._calendar.times, life.uses, life.kept)
            both = *gaps.between_uses(ahead), *gaps.after_last_use()
            self._gaps[key] = {gap.ends: gap for gap in both}
        return self._gaps[key][ends]


def _once_written(pauses: list[Pause], producer: str) -> list[Pause]:
    """Return a block's gaps after its last write."""
    if any(one.ends.after == producer != one.ends.before for one in pauses):
        return []  # the block is read between writes
    return [one for one in pauses if one.ends.after != producer]


def _cover(classes: Sequence[Swap], live: Array, budget: int) -> tuple[list[Swap], int]:
    """Return few groups that keep live bytes within the budget, and the remaining peak.

    The choice is greedy, by bytes removed from the device while the budget is exceeded, per byte
    moved. This prefers values with a late next use. The peak remains above the budget if no groups
    suffice.
    """
    excess = live - budget
    chosen: list[Swap] = []
    # The worth of a group only decreases with every choice, so few groups are evaluated again.
    left = [(-_worth(swap, excess), k) for k, swap in enumerate(classes)]
    heapify(left)
    while left and excess.max(initial=0) > 0:
        _, k = heappop(left)
        now = -_worth(classes[k], excess), k
        if left and now > left[0]:
            heappush(left, now)
            continue
        if now[0] == 0:
            break
        excess = excess - classes[k].away.change(len(live))
        chosen.append(classes[k])
    for swap in reversed(chosen[:-1]):  # remove swaps that later ones made superfluous
        without = excess + swap.away.change(len(live))
        if without.max(initial=0) <= 0:
            chosen.remove(swap)
            excess = without
    return chosen, int(excess.max(initial=-budget)) + budget


def _worth(swap: Swap, excess: Array) -> float:
    away = swap.away
    saved = np.minimum(away.change(len(excess)), np.maximum(excess, 0)).sum()
    return float(saved) / (away.nbytes * max(1, len(away.used)))
