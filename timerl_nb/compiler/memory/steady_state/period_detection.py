"""Long runs, of which a few turns say what all do.

Behind its first turns and ahead of its last ones, a turn of a loop does what the turn some
period before it did, at points moved by that period: where every condition and index says of the loop's
dimension no more than how far it is from a constant or from the bound, and what it is modulo some number.
Then a program under a bound of a million is planned under two small ones, a period apart: whatever is a
number of the plan goes on in a straight line. The loop is the outermost one, or else one within it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, lcm
from typing import Final

from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree
from timerl_nb.compiler.isl.sets_and_relations import Point, Set
from timerl_nb.compiler.memory.liveness.last_uses import Lifetime
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.enumerated_schedule_points import most_points
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import (
    And,
    Atom,
    Cmp,
    Cond,
    Div,
    Extremum,
    Lin,
    Mod,
    Or,
    Pick,
    Slice,
    Sym,
    const,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst

# How often the dimension and its bound occur in where something is, and in how far two things are apart.
_PLACES: Final = frozenset({(0, 0), (1, 0), (0, 1)})
_DISTANCES: Final = frozenset({(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, -1), (-1, 1)})


@dataclass(frozen=True)
class Fold:
    """The turns of a loop, of which those in the middle are all alike.

    Attributes:
        dim: the loop's dimension; its bound is `turns`.
        bounds: the actual bounds.
        period: after so many turns the same is done again.
        few: the turns of the smaller of two runs that stand for the whole one; the larger one has a
            period more.
        first: the turn, counted by the loop, that both begin to repeat with at the latest.
        inner: it is a loop within the outermost one, so that its turns repeat in each of that one's.
    """

    dim: Dim
    bounds: Point
    period: int
    few: int
    first: int
    inner: bool = False

    @property
    def turns(self) -> int:
        return self.bounds[self.dim.bound]

    @property
    def repeats(self) -> int:
        """How many periods the whole run has more than the smaller one."""
        return (self.turns - self.few) // self.period

    @property
    def windows(self) -> tuple[Point, Point]:
        """The bounds of the two runs."""
        name = self.dim.bound
        small, large = ({**self.bounds, name: self.few + k * self.period} for k in (0, 1))
        return small, large

    def number(self, small: int, large: int) -> int:
        """What is so much under the two windows, under the actual bounds."""
        return small + self.repeats * (large - small)


@dataclass(frozen=True)
class Unfolded:
    """Why it is not known that a run repeats, or why that does not help.

    Attributes:
        lines: the user's lines behind that, and what they say.
        hint: what to do about it.
    """

    why: str
    lines: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    hint: str = ""


class _Otherwise(Exception):
    """Turns may differ in another way."""


_NOT_ALIKE: Final = (
    "a condition or an index says more of {} than its distance, or what it is modulo a number"
)


def find_fold(
    constraints: Constraints,
    schedule: ScheduleTree,
    lifetimes: Sequence[Lifetime],
    bounds: Point,
) -> Fold | Unfolded:
    """How a run under actual bounds repeats; or why that is not known, or does not pay.

    Of several loops it is the one of which the fewest points say what all do.
    """
    dims, loops = constraints.pdg.dims, schedule.loops()
    first = {name: around[0] for name, around in loops.items() if around}
    along = {d for _, at in first.values() for d in dims.ordered(at.symbols)}
    if len({number for number, _ in first.values()}) != 1 or len(along) != 1:
        return Unfolded("its turns are not those of one outermost loop along one dimension")
    outer = dims[along.pop()]
    whole = _repeats(constraints, schedule, lifetimes, bounds, outer)
    found = [whole] if isinstance(whole, Fold) else []
    for dim in dims:
        if dim != outer and dim.count(bounds) > 1:
            inner = _repeats(constraints, schedule, lifetimes, bounds, dim, inner=True)
            if isinstance(inner, Fold) and _points(schedule, inner) < _count(schedule, bounds):
                found.append(inner)
    return min(found, key=lambda fold: _points(schedule, fold), default=whole)


def _points(schedule: ScheduleTree, fold: Fold) -> int:
    """How many points there are in both windows."""
    return sum(_count(schedule, window) for window in fold.windows)


def _count(schedule: ScheduleTree, bounds: Point) -> int:
    return sum(most_points(schedule, bounds).values())


def turns_along(dim: Dim, schedule: ScheduleTree, *, inner: bool) -> dict[str, list[Lin]]:
    """For each statement in them its turns of the loops along a dimension.

    Args:
        inner: they are loops within the outermost one, and not that one.
    """
    loops = schedule.loops()
    if not inner:
        return {name: [around[0][1]] for name, around in loops.items() if around}
    numbers = {n for around in loops.values() for n, at in around if dim.name in at.symbols}
    found = {name: [at for n, at in around if n in numbers] for name, around in loops.items()}
    return {name: at for name, at in found.items() if at}


def _repeats(
    constraints: Constraints,
    schedule: ScheduleTree,
    lifetimes: Sequence[Lifetime],
    bounds: Point,
    dim: Dim,
    *,
    inner: bool = False,
) -> Fold | Unfolded:
    """How the turns along a dimension repeat; or why that is not known, or does not pay."""
    if dim.value is not None:
        return Unfolded(f"no order of execution holds for all {dim.bound}")
    alone = [one for one in constraints.pdg.dims if one.bound == dim.bound] == [dim]
    places = turns_along(dim, schedule, inner=inner)
    moving = {name for name, at in places.items() if any(dim.name in e.symbols for e in at)}
    inside = {name for name, s in schedule.statements.items() if dim.name in s.domain}
    single = all(len(at) == 1 for at in places.values())
    if dim.step != 1 or dim.over is not None or not alone or inside != moving or not single:
        where = "a loop" if inner else "one outermost loop"
        return Unfolded(f"what runs along {dim.name} is not all in {where} of single turns")
    found = _DimensionUses(dim, bounds)
    try:
        found.all_of(constraints, schedule, lifetimes)
        for (at,) in places.values():
            found.coordinate(at)
    except _Otherwise:
        return Unfolded(_NOT_ALIKE.format(dim.name), found.lines(constraints.pdg))
    # a value, who reads it, and when that runs: three steps, each as far as a constant goes, and one more
    # blocks of a loop's values may say one more of them than the program does
    reach, period = 3 * (found.farthest + inner) + 2, found.period
    few = max(2 * reach + 2 * period, found.least)
    few += (bounds[dim.bound] - few) % period
    if 2 * (few + period) > bounds[dim.bound]:  # both windows are planned
        moduli = sorted({by for by, _ in found.moduli(constraints.pdg)})
        often = (
            f"turns of {dim.name} are alike after {period:,}" if period > 1 else "turns are alike"
        )
        if len(moduli) > 1:
            often += f", the least common multiple of {' and '.join(f'{by:,}' for by in moduli)}"
        why = f"{often}, from turn {reach + period:,} on: {bounds[dim.bound]:,} turns are too few for that"
        hint = (
            "let the larger of these numbers be multiples of the smaller ones" if moduli[1:] else ""
        )
        return Unfolded(why, found.lines(constraints.pdg), hint)
    return Fold(dim, bounds, period, few, reach + period, inner)


def holds(
    fold: Fold, constraints: Constraints, schedule: ScheduleTree, lifetimes: Sequence[Lifetime]
) -> bool:
    """Whether a run repeats so with other lifetimes, too."""
    found = _DimensionUses(fold.dim, fold.bounds)
    try:
        found.all_of(constraints, schedule, lifetimes)
    except _Otherwise:
        return False
    near = 3 * found.farthest + 2 + fold.period <= fold.first
    return near and fold.period % found.period == 0 and found.least <= fold.few


class _DimensionUses:
    """What the expressions of a program say of one dimension.

    Attributes:
        farthest: the greatest distance from a constant, or from the bound.
        least: bounds from this one on are the same to all conditions.
        period: the least common multiple of all moduli.
    """

    def __init__(self, dim: Dim, bounds: Point) -> None:
        self._dim, self._bounds, self._about = dim, bounds, {dim.name, dim.bound}
        self._within: dict[str, int] = {}  # the greatest value of each other dimension
        self._others = {n: const(value) for n, value in bounds.items() if n != dim.bound}
        self.farthest, self.least, self.period = 0, 1, 1
        self._seen: set[tuple[str, object]] = set()

    def all_of(
        self, constraints: Constraints, schedule: ScheduleTree, lifetimes: Sequence[Lifetime]
    ) -> None:
        """Take in a program: when it runs where, what it reads, and who reads it last."""
        dims = schedule.dims
        self._within = {d.name: d.count(self._bounds) - 1 for d in dims if d.name != self._dim.name}
        for name, points in schedule.statements.items():
            self.cond(points.condition(Set.from_condition(dims, points.domain)))
            for e in schedule.times()[name]:
                self.coordinate(e)
        for op in constraints.pdg:
            self._op(op)
        for life in lifetimes:
            for edge in (*life.frees, *life.taken):
                for where, to in edge.pairs.pieces:
                    self.cond(where)
                    for e in to:
                        self.coordinate(e)
            if life.kept is not None:
                self.cond(life.kept.condition())

    def moduli(self, pdg: Pdg) -> Iterator[tuple[int, Origin]]:
        """Modulo what operations say something of the dimension, and their lines."""
        for op in pdg:
            alone = _DimensionUses(self._dim, self._bounds)
            with suppress(_Otherwise):
                alone._op(op)
            if alone.period > 1:
                yield alone.period, op.origin

    def lines(self, pdg: Pdg) -> dict[str, Origin]:
        """The same lines, one for each number, by what is said there."""
        name = self._dim.name
        return {f"{name} modulo {by:,} is from": at for by, at in self.moduli(pdg)}

    def _op(self, op: Op) -> None:
        self.cond(op.where)
        for read in op.inputs:
            self._visit_read(read)

    def _visit_read(self, read: Read) -> None:
        self.cond(read.cond)
        for e in read.index:
            for one in (e.lo, e.hi) if isinstance(e, Slice) else (e,):
                self.coordinate(one)

    def cond(self, cond: Cond) -> None:
        """Take in a condition."""
        if not cond.symbols & self._about or not self._is_new("cond", cond):
            return
        if isinstance(cond, Cmp):
            bound = sym(self._dim.bound)
            more, less = cond.arg - bound, cond.arg + bound
            if more.is_const:
                self.least = max(self.least, (cond.rel != ">=") - more.const)
            elif less.is_const:
                self.least = max(self.least, less.const + 1)
            else:
                self._lin(cond.arg, _DISTANCES, compared=True)
        else:
            assert isinstance(cond, And | Or)
            for arg in cond.args:
                self.cond(arg)

    def coordinate(self, e: Lin) -> None:
        """Take in an index or a time: it stays, or moves as the dimension does."""
        if e.symbols & self._about and self._is_new("coordinate", e):
            self._lin(e, _PLACES)

    def _is_new(self, role: str, what: object) -> bool:
        key = role, what
        known = key in self._seen
        self._seen.add(key)
        return not known

    def _lin(self, e: Lin, allowed: frozenset[tuple[int, int]], *, compared: bool = False) -> None:
        """Take in an expression of which so many of the dimension and of the bound are allowed.

        Args:
            compared: with 0, so that of turns far enough away the other dimensions make no difference.
        """
        moves, distance = {name: Fraction(0) for name in self._about}, Fraction(0)

        def add(one: Lin, share: Fraction) -> None:
            """Add an expression, times a share."""
            nonlocal distance
            distance += abs(share * one.const)
            for atom, factor in one.terms:
                by = share * factor
                if not atom.symbols & self._about:
                    if not compared or not isinstance(atom, Sym) or atom.name not in self._within:
                        raise _Otherwise  # two dimensions together
                    distance += abs(by) * self._within[atom.name]
                    continue
                if isinstance(atom, Sym):
                    moves[atom.name] += by
                elif isinstance(atom, Div | Mod):
                    self.period = lcm(self.period, atom.by)
                    distance += abs(by) * (atom.by if isinstance(atom, Mod) else 1)
                    if isinstance(atom, Div):  # moved by a period, it moves as the quotient does
                        add(atom.arg, by / atom.by)
                    elif any(not isinstance(inner, Sym) for inner, _ in atom.arg.terms):
                        raise _Otherwise
                elif by in (-1, 1):
                    self._choice(atom, frozenset((a * int(by), b * int(by)) for a, b in allowed))
                else:
                    raise _Otherwise

        add(subst(e, self._others), Fraction(1))
        found = moves[self._dim.name], moves[self._dim.bound]
        if found not in allowed:
            raise _Otherwise
        if found != (0, 0):
            self.farthest = max(self.farthest, ceil(distance))

    def _choice(self, atom: Atom, allowed: frozenset[tuple[int, int]]) -> None:
        """Take in a minimum, a maximum, or a choice by a condition."""
        if isinstance(atom, Extremum):
            parts = atom.args
        else:
            assert isinstance(atom, Pick)
            self.cond(atom.cond)
            parts = atom.then, atom.other
        for part in parts:
            self._lin(part, allowed)
