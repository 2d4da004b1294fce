"""Swapping: which values wait on the host between two uses, so that a program keeps to its budget.

The schedule says for every use of a value when the next one is, so that nothing is guessed: a gap is
worth the bytes that it takes off the device while there are too many, for every byte that is moved.
Gaps come in classes (`uses`), and a class is swapped as a whole, as relations (`compiler/isl/reuse_intervals`), which keeps the loop nest
readable (000_9a2364bc51ddf94b.txt §6.2).

Values never change, blocks not after they are written: once copied, a value stays on the host until
it is freed, and leaves the device a second time without being copied.
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
from timerl_nb.compiler.memory.memory_timeline import Away
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import ge, sym


@dataclass(frozen=True)
class Slack:
    """How much device memory is spent on not waiting for copies.

    Attributes:
        copying: a value that leaves stays on the device, being copied, for that many executed points
            (`time_to_copy`).
        ahead: by how many turns of its reader's innermost loop a value returns before it is needed.
    """

    copying: int
    ahead: int


# From the fastest to the most sparing.
SLACKS = (Slack(2, 1), Slack(0, 0))


def time_to_copy(slack: Slack, dims: Dims) -> int:
    """For how many executed points a value that leaves stays: none where any may never run."""
    return slack.copying if dims.dynamic is None else 0


# What moves less than this share of all that moves is not looked at for what might stay.
_SHARE = 1 / 16

# Values of fewer bytes are moved only where moving larger ones is not enough.
LARGE = 1 << 16


@dataclass(frozen=True)
class Swap:
    """The tensors of one lifetime that leave the device in one class of gaps.

    Attributes:
        since: a dimension, and from which coordinate on values leave; None for all of them.
    """

    lifetime: str
    tensors: tuple[Tensor, ...]
    ends: Ends
    away: Away
    find: Callable[[], Gap] = field(compare=False, repr=False)
    since: tuple[str, int] | None = None

    @cached_property
    def gap(self) -> Gap:
        """The class as relations."""
        whole = self.find()
        if self.since is None:
            return whole
        (name, first), leaves = self.since, whole.leaves
        return whole.restrict_values(
            Set.from_condition(leaves.dims, leaves.left, ge(sym(name), first))
        )

    @property
    def bytes_moved(self) -> int:
        """The bytes that leave in a run."""
        return self.away.nbytes * self.away.turns


@dataclass(frozen=True)
class Swaps:
    """What is swapped, and with how much slack."""

    all: tuple[Swap, ...]
    slack: Slack

    @property
    def bytes_moved(self) -> int:
        """The bytes that leave in a run."""
        return sum(swap.bytes_moved for swap in self.all)

    @cached_property
    def tensors(self) -> frozenset[Tensor]:
        return frozenset(t for swap in self.all for t in swap.tensors)

    @cached_property
    def absences(self) -> Mapping[str, list[Away]]:
        """By lifetime, when its values are not on the device."""
        found: dict[str, list[Away]] = {}
        for swap in self.all:
            found.setdefault(swap.lifetime, []).append(swap.away)
        return found

    def first_coordinates(self, lifetime: str) -> Mapping[str, int]:
        """By dimension, from which coordinate on values of a lifetime leave; nothing for all."""
        found = [swap.since for swap in self.all if swap.lifetime == lifetime]
        firsts = [one for one in found if one is not None]
        if len(firsts) < len(found) or len({name for name, _ in firsts}) != 1:
            return {}
        return {firsts[0][0]: max(first for _, first in firsts)}

    def offload_calls(self) -> list[Edge]:
        """The offloads as calls to graft behind statements."""
        return [
            Edge(s.ends.before, leave_name(s.lifetime), s.gap.leaves.inverse()) for s in self.all
        ]

    def fetch_calls(self) -> list[Edge]:
        """The fetches as calls to graft ahead of statements."""
        return [
            Edge(s.ends.after, return_name(s.lifetime), s.gap.returns.inverse())
            for s in self.all
            if s.ends.after is not None and s.gap.returns is not None
        ]


NO_SWAPS = Swaps((), SLACKS[0])


def leave_name(lifetime: str) -> str:
    """The name under which the loop tree calls an offload."""
    return f"leave{lifetime}"


def return_name(lifetime: str) -> str:
    """The name under which the loop tree calls a fetch."""
    return f"return{lifetime}"


class Swapping:
    """The search for the swaps that bring a program below its budget."""

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
        """The swaps that keep to the budget, or come as close as swapping can.

        Args:
            live: the device's live bytes during every executed point, without swapping.
        """
        if budget > 0:  # else nothing keeps to it
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
        """Let go of what is weighed: plans are kept, and it takes more than they do."""
        self._uses.clear()
        self._pauses.clear()
        self._classes.clear()
        self._calendar = Calendar(self._clock)

    def reduce_swaps(self, swaps: Swaps, live: Array, budget: int) -> Swaps:
        """The same swaps of fewer values: those from some coordinate on, where the budget allows it.

        Args:
            live: see `choose`.
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
        """The swap of the values from as late a coordinate on as fits."""
        at = self._clock.coordinate(self.domain(swap), name, swap.away.codes)
        firsts = np.unique(at).tolist()
        late = bisect_left(
            firsts, True, lo=1, key=lambda first: not fits(self.restrict_swap(swap, name, first))
        )
        return self.restrict_swap(swap, name, firsts[late - 1]) if late > 1 else swap

    def restrict_swap(self, swap: Swap, name: str, first: int) -> Swap:
        """A swap of the values from some coordinate on along a dimension."""
        away = swap.away
        here = self._clock.coordinate(self.domain(swap), name, away.codes) >= first
        gaps = (column[here] for column in (away.codes, away.used, away.gone, away.back))
        return replace(swap, away=Away(away.nbytes, *gaps), since=(name, first))

    def domain(self, swap: Swap) -> Domain:
        """The dimensions of the values that it moves."""
        return next(life.domain for life in self._lifetimes if life.name == swap.lifetime)

    def classes(self, slack: Slack, least: int = 1) -> list[Swap]:
        """All classes of gaps of values of at least so many bytes, useful or not."""
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
                away = Away(nbytes, one.codes, one.used, one.used + 1 + copying, one.back)
                find = partial(self._gap, life, slack.ahead, one.ends)
                found.append(Swap(life.name, moved, one.ends, away, find))
        return found

    def _find_pauses(self, life: Lifetime, ahead: int) -> list[Pause]:
        """A lifetime's classes of gaps."""
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
    """A block's gaps between uses that leave it as it is: those after the last value is written."""
    if any(one.ends.after == producer != one.ends.before for one in pauses):
        return []  # it is read between writes
    return [one for one in pauses if one.ends.after != producer]


def _cover(classes: Sequence[Swap], live: Array, budget: int) -> tuple[list[Swap], int]:
    """Few classes that keep live bytes within the budget, the most useful first; the peak left.

    What is chosen is worth the most bytes off the device, while there are too many, per byte moved:
    in other words, what is needed again latest.
    """
    excess = live - budget
    chosen: list[Swap] = []
    # what is worth something becomes worth less with every choice, so that few are looked at again
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
    for swap in reversed(chosen[:-1]):  # what later choices made superfluous
        without = excess + swap.away.change(len(live))
        if without.max(initial=0) <= 0:
            chosen.remove(swap)
            excess = without
    return chosen, int(excess.max(initial=-budget)) + budget


def _worth(swap: Swap, excess: Array) -> float:
    away = swap.away
    saved = np.minimum(away.change(len(excess)), np.maximum(excess, 0)).sum()
    return float(saved) / (away.nbytes * max(1, len(away.used)))
