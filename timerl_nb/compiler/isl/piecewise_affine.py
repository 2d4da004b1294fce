"""Conversion of index expressions to isl's piecewise affine functions, and of conditions to sets.

Expressions are converted bottom up instead of as text, because isl expands nested choices, minima
and maxima of a text into all combinations of their cases. Each subexpression is converted once,
with as few pieces as possible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Final

import islpy as isl

from timerl_nb.compiler.isl.operation_limit import CONTEXT, coalesce_pieces, spend
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    And,
    Atom,
    Cmp,
    Cond,
    Div,
    Extremum,
    Lin,
    Mod,
    Sym,
)

_SET, _IN, _PARAM = isl.dim_type.set, isl.dim_type.in_, isl.dim_type.param


# Keywords of isl's text format, in either case, and isl's names for unnamed dimensions and
# divisions.
_OF_ISL: Final = re.compile(
    r"((?i:and|or|not|exists|implies|mod|floord?|ceild?|min|max|infinity|infty|nan|rat|true|false)|[eio]\d+)_*"
)


def isl_name(symbol: str) -> str:
    """Return a symbol's name in isl texts.

    The result is never a keyword of isl. Different symbols have different names.
    """
    word = symbol.rstrip("'")
    return f"{word}_{symbol[len(word) :]}" if _OF_ISL.fullmatch(word) else symbol


@dataclass(frozen=True)
class Space:
    """Symbols of expressions: parameters (bounds) and named dimensions.

    Functions and sets are correct only at points that satisfy `given`. This allows them fewer
    pieces.
    """

    bounds: tuple[str, ...]
    names: Domain
    given: Cond = TRUE

    @cached_property
    def raw(self) -> isl.Space:
        space = isl.Space.set_alloc(CONTEXT, len(self.bounds), len(self.names))
        for kind, of in ((_PARAM, self.bounds), (_SET, self.names)):
            for k, name in enumerate(of):
                space = space.set_dim_name(kind, k, isl_name(name))
        return space

    @cached_property
    def zero(self) -> isl.Aff:
        return isl.Aff.zero_on_domain(isl.LocalSpace.from_space(self.raw))

    @cached_property
    def coefficient_positions(self) -> dict[str, tuple[isl.dim_type, int]]:
        """The position of each symbol's coefficient in an affine function."""
        found = {name: (_PARAM, k) for k, name in enumerate(self.bounds)}
        return found | {name: (_IN, k) for k, name in enumerate(self.names)}

    @cached_property
    def valid_points(self) -> isl.Set | None:
        """The points that satisfy `given`, or None for all points."""
        free = Space(self.bounds, self.names)
        return None if self.given is TRUE else points(self.given, free)


@lru_cache(maxsize=10_000)
def _number(value: int) -> isl.Val:
    return isl.Val(value)


def _affine(e: Lin, space: Space) -> isl.Aff | None:
    """Return the expression as an affine function; None if it has atoms other than symbols."""
    found = space.zero
    for atom, coef in e.terms:
        if not isinstance(atom, Sym):
            return None
        found = found.set_coefficient_val(*space.coefficient_positions[atom.name], _number(coef))
    return found.set_constant_val(_number(e.const)) if e.const else found


@lru_cache(maxsize=50_000)
def function(e: Lin, space: Space) -> isl.PwAff:
    """Return an expression as a piecewise affine function."""
    affine = _affine(e, space)
    if affine is not None:
        return isl.PwAff.from_aff(affine)
    total: isl.PwAff | None = None
    for atom, coef in e.terms:
        part = _atom(atom, space)
        if coef != 1:
            part = part.scale_val(_number(coef))
        total = part if total is None else spend(isl.PwAff.add, total, part)
    assert total is not None  # holds because a constant is affine
    if e.const:
        total = total.add_constant_val(_number(e.const))
    return total if len(e.terms) == 1 else _simple(total, space)


@lru_cache(maxsize=50_000)
def _atom(atom: Atom, space: Space) -> isl.PwAff:
    if isinstance(atom, Sym):
        one = space.zero.set_coefficient_val(*space.coefficient_positions[atom.name], _number(1))
        return isl.PwAff.from_aff(one)
    if isinstance(atom, Div):
        arg = function(atom.arg, space).scale_down_val(_number(atom.by))
        return spend(isl.PwAff.floor, arg)
    if isinstance(atom, Mod):
        return spend(isl.PwAff.mod_val, function(atom.arg, space), _number(atom.by))
    if isinstance(atom, Extremum):
        join = isl.PwAff.min if atom.which == "min" else isl.PwAff.max
        args = [function(arg, space) for arg in atom.args]
        return reduce(lambda a, b: _simple(spend(join, a, b), space), args)
    then, other = function(atom.then, space), function(atom.other, space)
    chosen = spend(isl.Set.indicator_function, points(atom.cond, space))
    return _simple(spend(isl.PwAff.cond, chosen, then, other), space)


def _simple(made: isl.PwAff, space: Space) -> isl.PwAff:
    """Return the function with fewer pieces, restricted to the valid points of the space."""
    if made.n_piece() < 2:
        return made
    if space.valid_points is not None:
        made = spend(
            isl.PwAff.gist,
            spend(isl.PwAff.intersect_domain, made, space.valid_points),
            space.valid_points,
        )
    return coalesce_pieces(made)


@lru_cache(maxsize=50_000)
def points(cond: Cond, space: Space) -> isl.Set:
    """Return the points that satisfy a condition."""
    if isinstance(cond, Cmp):
        value = function(cond.arg, space)
        if cond.rel == ">=":
            found = spend(isl.PwAff.nonneg_set, value)
        elif cond.rel == "==":
            found = spend(isl.PwAff.zero_set, value)
        else:
            found = spend(isl.PwAff.non_zero_set, value)
        return coalesce_pieces(found) if found.n_basic_set() > 1 else found
    parts = [points(arg, space) for arg in cond.args]
    if isinstance(cond, And):
        if not parts:
            return isl.Set.universe(space.raw)
        return reduce(lambda a, b: spend(isl.Set.intersect, a, b), parts)
    if not parts:
        return isl.Set.empty(space.raw)
    return reduce(lambda a, b: coalesce_pieces(spend(isl.Set.union, a, b)), parts)
