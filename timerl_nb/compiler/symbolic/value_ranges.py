"""Interval arithmetic on index expressions: value ranges, and conditions that they decide."""

from __future__ import annotations

from collections.abc import Mapping

from timerl_nb.compiler.symbolic.index_expressions import (
    FALSE,
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
    all_of,
    any_of,
)

Range = tuple[int, int]  # smallest and largest value


def extent(e: Lin, of: Mapping[str, Range]) -> Range:
    """Return a range that contains all values of an expression.

    The bounds may be loose, because each atom is treated as independent of the others.

    Args:
        e: the expression.
        of: a range per symbol.
    """
    low = high = e.const
    for atom, coef in e.terms:
        least, most = sorted(coef * end for end in _atom(atom, of))
        low, high = low + least, high + most
    return low, high


def _atom(atom: Atom, of: Mapping[str, Range]) -> Range:
    if isinstance(atom, Sym):
        return of[atom.name]
    if isinstance(atom, Div | Mod):
        low, high = extent(atom.arg, of)
        if isinstance(atom, Div):
            return low // atom.by, high // atom.by
        same = low // atom.by == high // atom.by
        return (low % atom.by, high % atom.by) if same else (0, atom.by - 1)
    if isinstance(atom, Extremum):
        ends = zip(*(extent(arg, of) for arg in atom.args), strict=True)
        low, high = map(min if atom.which == "min" else max, ends)
        return low, high
    either = *extent(atom.then, of), *extent(atom.other, of)
    return min(either), max(either)


def simplify_condition(cond: Cond, of: Mapping[str, Range]) -> Cond:
    """Return the condition without comparisons that the ranges already decide."""
    if isinstance(cond, Cmp):
        low, high = extent(cond.arg, of)
        if cond.rel == ">=":
            return TRUE if low >= 0 else FALSE if high < 0 else cond
        if low <= 0 <= high and low != high:
            return cond
        return TRUE if (low == high == 0) == (cond.rel == "==") else FALSE
    join = all_of if isinstance(cond, And) else any_of
    return join(*(simplify_condition(arg, of) for arg in cond.args))
