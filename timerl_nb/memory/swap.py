"""Swapping: which values wait on the host between two uses, so that a program keeps to its budget.

The schedule says for every use of a value when the next one is, so that nothing is guessed: a gap is
worth the bytes that it takes off the device while there are too many, for every byte that is moved.
Gaps come in classes (`symbolic/gaps`), and a class is swapped as a whole, which keeps the loop nest
readable (000_9a2364bc51ddf94b.txt §6.2).

Values never change, blocks not after they are written: once copied, a value stays on the host until
it is freed, and leaves the device a second time without being copied.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.ir.ops import Tensor
from timerl_nb.memory.lifetimes import Lifetime
from timerl_nb.memory.timeline import Away
from timerl_nb.schedule.clock import Clock
from timerl_nb.symbolic.domain import Dims
from timerl_nb.symbolic.gaps import Gap, Gaps
from timerl_nb.symbolic.points import all_pairs
from timerl_nb.symbolic.polyhedra import Relation
from timerl_nb.symbolic.scheduling import Edge


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


# Values of fewer bytes are moved only where moving larger ones is not enough.
LARGE = 1 << 16


@dataclass(frozen=True)
class Swap:
    """The tensors of one lifetime that leave the device in one class of gaps."""

    lifetime: str
    tensors: tuple[Tensor, ...]
    gap: Gap
    away: Away


@dataclass(frozen=True)
class Swaps:
    """What is swapped, and with how much slack."""

    all: tuple[Swap, ...]
    slack: Slack

    @cached_property
    def tensors(self) -> frozenset[Tensor]:
        return frozenset(t for swap in self.all for t in swap.tensors)

    @cached_property
    def away(self) -> Mapping[str, list[Away]]:
        """By lifetime, when its values are not on the device."""
        found: dict[str, list[Away]] = {}
        for swap in self.all:
            found.setdefault(swap.lifetime, []).append(swap.away)
        return found

    def leaving(self) -> list[Edge]:
        """The offloads as calls to graft behind statements."""
        return [
            Edge(s.gap.before, leave_name(s.lifetime), s.gap.leaves.inverse()) for s in self.all
        ]

    def returning(self) -> list[Edge]:
        """The fetches as calls to graft ahead of statements."""
        return [
            Edge(s.gap.after, return_name(s.lifetime), s.gap.returns.inverse())
            for s in self.all
            if s.gap.after is not None and s.gap.returns is not None
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
        self._known: dict[tuple[str, int], list[tuple[Gap, Array, Array, Array]]] = {}

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

    def classes(self, slack: Slack, least: int = 1) -> list[Swap]:
        """All classes of gaps of values of at least so many bytes, useful or not."""
        found: list[Swap] = []
        copying = time_to_copy(slack, self._clock.schedule.dims)
        for life in self._lifetimes:
            moved = tuple(t for t in life.tensors if self._sizes[t] >= least)
            if not moved:
                continue
            nbytes = sum(self._sizes[t] for t in moved)
            for gap, codes, used, back in self._gaps(life, slack.ahead):
                away = Away(nbytes, codes, used, used + 1 + copying, back)
                found.append(Swap(life.name, moved, gap, away))
        return found

    def _gaps(self, life: Lifetime, ahead: int) -> list[tuple[Gap, Array, Array, Array]]:
        """A lifetime's gaps; the value of each, and the times of the use before and the return."""
        known = self._known.get((life.name, ahead))
        if known is None:
            gaps = Gaps(self._clock.schedule, life.uses, life.kept, self._clock.bounds)
            both = [*gaps.between_uses(ahead), *gaps.after_last_use()]
            if life.tensors[0] in self._blocks:
                both = _once_written(both, life.producer)
            known = self._known[life.name, ahead] = [(g, *self._times(life, g)) for g in both]
        return known

    def _times(self, life: Lifetime, gap: Gap) -> tuple[Array, Array, Array]:
        codes, used = self._ranks(life, gap.before, gap.leaves)
        back = np.full(len(used), len(self._clock), np.int64)
        if gap.after is not None and gap.returns is not None:
            # a value's gaps follow one another: the first to begin is the first to end
            _, back = self._ranks(life, gap.after, gap.returns)
        return codes, used, back

    def _ranks(self, life: Lifetime, statement: str, pairs: Relation) -> tuple[Array, Array]:
        """Values, and ranks of a statement's points, by value and then by time."""
        values, points = all_pairs(pairs, self._clock.bounds)
        ranks = self._clock.rank(statement, points)
        codes = self._clock.codes(life.domain, values)
        order = np.lexsort((ranks, codes))
        return codes[order], ranks[order]


def _once_written(gaps: list[Gap], producer: str) -> list[Gap]:
    """A block's gaps between uses that leave it as it is: those after the last value is written."""
    if any(gap.after == producer != gap.before for gap in gaps):
        return []  # it is read between writes
    return [gap for gap in gaps if gap.after != producer]


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
