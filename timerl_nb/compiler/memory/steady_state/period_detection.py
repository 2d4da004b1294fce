"""Detection of a steady state: long runs represented by a few iterations.

After its first and before its last iterations, a loop may repeat itself with some period, at points
moved by this period. It does so if every condition and index depends on the loop's dimension only
through its distance from a constant or from the bound, and through remainders. A program with a
bound of a million is then planned under two small bounds, one period apart, and all numbers of the
plan continue linearly. The loop is the outermost one or one inside it.
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

# Coefficients of the dimension and of its bound in coordinates, and in distances between
# coordinates.
_PLACES: Final = frozenset({(0, 0), (1, 0), (0, 1)})
_DISTANCES: Final = frozenset({(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, -1), (-1, 1)})


@dataclass(frozen=True)
class Fold:
    """A loop with a periodic middle part.

    Attributes:
        dim: the loop's dimension.
        bounds: the actual bounds.
        period: the period in iterations.
        few: the number of iterations in the smaller of two short runs; the larger one has one
            period more.
        first: an iteration of the loop from which on both short runs are periodic.
        inner: whether the loop is inside the outermost loop, and periodic in each of its
            iterations.
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
        """Number of periods in the long run, beyond the smaller short run."""
        return (self.turns - self.few) // self.period

    @property
    def windows(self) -> tuple[Point, Point]:
        """The bounds of the two short runs."""
        name = self.dim.bound
        small, large = ({**self.bounds, name: self.few + k * self.period} for k in (0, 1))
        return small, large

    def number(self, small: int, large: int) -> int:
        """Return a number of the long run from two numbers of the short runs."""
        return small + self.repeats * (large - small)


@dataclass(frozen=True)
class Unfolded:
    """The reason why a run is not planned from a few iterations.

    Attributes:
        why: the reason.
        lines: the user's lines behind the reason, with descriptions.
        hint: the remedy.
    """

    why: str
    lines: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    hint: str = ""


class _Otherwise(Exception):
    """The iterations may not be periodic."""


_NOT_ALIKE: Final = (
    "a condition or an index uses {} other than with a constant offset or modulo a constant"
)


def find_fold(
    constraints: Constraints,
    schedule: ScheduleTree,
    lifetimes: Sequence[Lifetime],
    bounds: Point,
) -> Fold | Unfolded:
    """Return the period of a run under actual bounds, or why it is not used.

    Of several periodic loops, the one with the fewest points in its short runs is chosen.
    """
    dims, loops = constraints.pdg.dims, schedule.loops()
    first = {name: around[0] for name, around in loops.items() if around}
    along = {d for _, at in first.values() for d in dims.ordered(at.symbols)}
    if len({number for number, _ in first.values()}) != 1 or len(along) != 1:
        return Unfolded("the program has no single outermost loop along one dimension")
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
    """Return the number of points in both short runs."""
    return sum(_count(schedule, window) for window in fold.windows)


def _count(schedule: ScheduleTree, bounds: Point) -> int:
    return sum(most_points(schedule, bounds).values())


def turns_along(dim: Dim, schedule: ScheduleTree, *, inner: bool) -> dict[str, list[Lin]]:
    """Return the position of each statement in the loops along a dimension.

    Args:
        dim: the dimension.
        schedule: the schedule.
        inner: whether these are loops inside the outermost one, excluding it.
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
    """Return the period along a dimension, or why it is not used."""
    if dim.value is not None:
        return Unfolded(f"no order of execution is valid for all {dim.bound}")
    alone = [one for one in constraints.pdg.dims if one.bound == dim.bound] == [dim]
    places = turns_along(dim, schedule, inner=inner)
    moving = {name for name, at in places.items() if any(dim.name in e.symbols for e in at)}
    inside = {name for name, s in schedule.statements.items() if dim.name in s.domain}
    single = all(len(at) == 1 for at in places.values())
    if dim.step != 1 or dim.over is not None or not alone or inside != moving or not single:
        where = "one inner loop" if inner else "one outermost loop"
        return Unfolded(f"the statements over {dim.name} do not all run in {where} over {dim.name}")
    found = _DimensionUses(dim, bounds)
    try:
        found.all_of(constraints, schedule, lifetimes)
        for (at,) in places.values():
            found.coordinate(at)
    except _Otherwise:
        return Unfolded(_NOT_ALIKE.format(dim.name), found.lines(constraints.pdg))
    # A dependence from a value to its reader to the reader's time takes three steps, each at most
    # `farthest` long, and one more. Blocks of an inner loop's values may add one.
    reach, period = 3 * (found.farthest + inner) + 2, found.period
    few = max(2 * reach + 2 * period, found.least)
    few += (bounds[dim.bound] - few) % period
    if 2 * (few + period) > bounds[dim.bound]:  # both short runs are planned
        moduli = sorted({by for by, _ in found.moduli(constraints.pdg)})
        often = (
            f"iterations of {dim.name} repeat with period {period:,}"
            if period > 1
            else f"iterations of {dim.name} are alike"
        )
        if len(moduli) > 1:
            often += f", the least common multiple of {' and '.join(f'{by:,}' for by in moduli)}"
        why = f"{often}, but only from iteration {reach + period:,} on, and {bounds[dim.bound]:,} iterations are too few"
        hint = (
            "choose moduli such that the larger ones are multiples of the smaller ones"
            if moduli[1:]
            else ""
        )
        return Unfolded(why, found.lines(constraints.pdg), hint)
    return Fold(dim, bounds, period, few, reach + period, inner)


def holds(
    fold: Fold, constraints: Constraints, schedule: ScheduleTree, lifetimes: Sequence[Lifetime]
) -> bool:
    """Return whether a run has the same period with other lifetimes."""
    found = _DimensionUses(fold.dim, fold.bounds)
    try:
        found.all_of(constraints, schedule, lifetimes)
    except _Otherwise:
        return False
    near = 3 * found.farthest + 2 + fold.period <= fold.first
    return near and fold.period % found.period == 0 and found.least <= fold.few


class _DimensionUses:
    """Uses of one dimension in the expressions of a program.

    Attributes:
        farthest: the greatest distance from a constant or from the bound.
        least: the least bound from which on all conditions behave alike.
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
        """Add a program: the points and times of its statements, its reads, and its last uses."""
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
            if life.returned is not None:
                self.cond(life.returned.condition())

    def moduli(self, pdg: Pdg) -> Iterator[tuple[int, Origin]]:
        """Yield the modulus and the line of each operation with this dimension modulo a number."""
        for op in pdg:
            alone = _DimensionUses(self._dim, self._bounds)
            with suppress(_Otherwise):
                alone._op(op)
            if alone.period > 1:
                yield alone.period, op.origin

    def lines(self, pdg: Pdg) -> dict[str, Origin]:
        """Return one line per modulus, with a description."""
        name = self._dim.name
        return {f"{name} modulo {by:,} is used at": at for by, at in self.moduli(pdg)}

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
        """Add a condition."""
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
        """Add an index or a time.

        It must be constant, or move with the dimension or with the bound.
        """
        if e.symbols & self._about and self._is_new("coordinate", e):
            self._lin(e, _PLACES)

    def _is_new(self, role: str, what: object) -> bool:
        key = role, what
        known = key in self._seen
        self._seen.add(key)
        return not known

    def _lin(self, e: Lin, allowed: frozenset[tuple[int, int]], *, compared: bool = False) -> None:
        """Add an expression, and check its coefficients of the dimension and of the bound.

        Args:
            e: the expression.
            allowed: the pairs of coefficients allowed.
            compared: whether the expression is compared with 0. Other dimensions then make no
                difference in iterations far enough away.
        """
        moves, distance = {name: Fraction(0) for name in self._about}, Fraction(0)

        def add(one: Lin, share: Fraction) -> None:
            """Add an expression, times a factor."""
            nonlocal distance
            distance += abs(share * one.const)
            for atom, factor in one.terms:
                by = share * factor
                if not atom.symbols & self._about:
                    if not compared or not isinstance(atom, Sym) or atom.name not in self._within:
                        raise _Otherwise  # two dimensions in one expression
                    distance += abs(by) * self._within[atom.name]
                    continue
                if isinstance(atom, Sym):
                    moves[atom.name] += by
                elif isinstance(atom, Div | Mod):
                    self.period = lcm(self.period, atom.by)
                    distance += abs(by) * (atom.by if isinstance(atom, Mod) else 1)
                    if isinstance(atom, Div):  # it moves as its operand does
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
        """Add a minimum, a maximum, or a choice by a condition."""
        if isinstance(atom, Extremum):
            parts = atom.args
        else:
            assert isinstance(atom, Pick)
            self.cond(atom.cond)
            parts = atom.then, atom.other
        for part in parts:
            self._lin(part, allowed)
