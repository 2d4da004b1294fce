"""Substitution in index expressions and conditions, with simplification.

`rewrite` replaces atoms of any kind, `subst` replaces symbols by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from timerl_nb.compiler.symbolic.index_expressions import (
    And,
    Atom,
    Cmp,
    Cond,
    Div,
    Entry,
    Extremum,
    Lin,
    Mod,
    Pick,
    Slice,
    Sym,
    all_of,
    any_of,
    compare,
    const,
    extremum,
    pick,
    span,
    sym,
)

Subst = Mapping[str, Lin]


def rewrite(e: Lin, replace: Callable[[Atom], Lin | None]) -> Lin:
    """Return the expression with some atoms replaced.

    Args:
        e: the expression.
        replace: returns an atom's replacement, or None to rewrite its operands instead.
    """
    total = const(e.const)
    for atom, coef in e.terms:
        total = total + (replace(atom) or _rewrite_inside(atom, replace)) * coef
    return total


def _rewrite_inside(atom: Atom, replace: Callable[[Atom], Lin | None]) -> Lin:
    if isinstance(atom, Sym):
        return sym(atom.name)
    if isinstance(atom, Div):
        return rewrite(atom.arg, replace) // atom.by
    if isinstance(atom, Mod):
        return rewrite(atom.arg, replace) % atom.by
    if isinstance(atom, Extremum):
        return extremum(atom.which, [rewrite(arg, replace) for arg in atom.args])
    then, other = rewrite(atom.then, replace), rewrite(atom.other, replace)
    return pick(rewrite_cond(atom.cond, replace), then, other)


def rewrite_cond(cond: Cond, replace: Callable[[Atom], Lin | None]) -> Cond:
    if isinstance(cond, Cmp):
        return compare(cond.rel, rewrite(cond.arg, replace))
    joined = all_of if isinstance(cond, And) else any_of
    return joined(*(rewrite_cond(arg, replace) for arg in cond.args))


def find_pick(e: Lin) -> Pick | None:
    """Return an innermost choice (`Pick`) of the expression, or None."""
    for atom, _ in e.terms:
        inner: tuple[Lin, ...] = ()
        if isinstance(atom, Div | Mod):
            inner = (atom.arg,)
        elif isinstance(atom, Extremum):
            inner = atom.args
        elif isinstance(atom, Pick):
            inner = (atom.then, atom.other)
        for arg in inner:
            if (found := find_pick(arg)) is not None:
                return found
        if isinstance(atom, Pick):
            return atom
    return None


def subst(e: Lin, by: Subst) -> Lin:
    """Return the expression with all symbols of `by` replaced simultaneously."""
    if not any(name in by for name in e.symbols):
        return e
    return rewrite(e, lambda atom: by.get(atom.name) if isinstance(atom, Sym) else None)


def subst_cond(cond: Cond, by: Subst) -> Cond:
    if not any(name in by for name in cond.symbols):
        return cond
    return rewrite_cond(cond, lambda atom: by.get(atom.name) if isinstance(atom, Sym) else None)


def subst_entry(entry: Entry, by: Subst) -> Entry:
    if isinstance(entry, Slice):
        return span(subst(entry.lo, by), subst(entry.hi, by))
    return subst(entry, by)
