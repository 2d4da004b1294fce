"""Quasi-affine index expressions and conditions.

Every integer expression is a `Lin`: a constant plus integer multiples of atoms. Atoms are symbols
(a dimension's variable or bound), floor divisions and remainders by constants, minima and maxima,
and choices between two expressions. Conditions compare a `Lin` with zero and are joined by and /
or. Negation is applied to the comparisons, so there is no `Not`.

Nodes are simplified on creation and hash-consed: equal expressions are the same object. Users write
them through `language.indexing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import gcd
from typing import Any, Final, Literal

Rel = Literal[">=", "==", "!="]
Which = Literal["min", "max"]

# Programs use few distinct expressions many times. So nodes live as long as the process, and the
# results of the arithmetic below are cached.
_TABLE: dict[tuple[Any, ...], Any] = {}


class Node:
    """A hash-consed node.

    Nodes of equal structure are the same object, so `==` compares identities.
    """

    __slots__ = ("fields", "symbols")
    fields: tuple[Any, ...]
    symbols: frozenset[str]

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (type(self), *self.fields)


def _make(cls: type[Any], *fields: Any) -> Any:
    key = (cls, *fields)
    node = _TABLE.get(key)
    if node is None:
        node = object.__new__(cls)
        node.fields = fields
        node.symbols = frozenset(_symbols(cls, fields))
        for name, value in zip(cls.__slots__, fields, strict=True):
            setattr(node, name, value)
        _TABLE[key] = node
    return node


def _symbols(cls: type[Any], fields: Iterable[Any]) -> Iterable[str]:
    if cls is Sym:
        yield next(iter(fields))
        return
    for field in fields:
        if isinstance(field, Node):
            yield from field.symbols
        elif isinstance(field, tuple):
            yield from _symbols(cls, field)


# --- atoms -----------------------------------------------------------------------------------


class Sym(Node):
    """A symbol: a dimension's variable (`t`) or its upper bound (`T`)."""

    __slots__ = ("name",)
    name: str

    def __str__(self) -> str:
        return self.name


class Div(Node):
    """floor(arg / by), by > 0."""

    __slots__ = ("arg", "by")
    arg: Lin
    by: int

    def __str__(self) -> str:
        return f"{_tight(self.arg)} // {self.by}"


class Mod(Node):
    """arg - by * floor(arg / by), by > 0."""

    __slots__ = ("arg", "by")
    arg: Lin
    by: int

    def __str__(self) -> str:
        return f"{_tight(self.arg)} % {self.by}"


class Extremum(Node):
    """The minimum or maximum of several expressions."""

    __slots__ = ("which", "args")
    which: Which
    args: tuple[Lin, ...]

    def __str__(self) -> str:
        return f"{self.which}({', '.join(map(str, self.args))})"


class Pick(Node):
    """`then` if the condition holds, else `other`."""

    __slots__ = ("cond", "then", "other")
    cond: Cond
    then: Lin
    other: Lin

    def __str__(self) -> str:
        return f"where({self.cond}, {self.then}, {self.other})"


Atom = Sym | Div | Mod | Extremum | Pick


def _tight(e: Lin) -> str:
    return str(e) if len(e.terms) + bool(e.const) == 1 and e.is_atom else f"({e})"


# --- linear combinations ---------------------------------------------------------------------


class Lin(Node):
    """An integer expression: `const` + the sum of coefficient * atom."""

    __slots__ = ("const", "terms")
    const: int
    terms: tuple[tuple[Atom, int], ...]

    @property
    def is_const(self) -> bool:
        return not self.terms

    @property
    def is_atom(self) -> bool:
        return self.const == 0 and len(self.terms) == 1 and self.terms[0][1] == 1

    @property
    def as_symbol(self) -> str | None:
        """The symbol's name if the expression is a single symbol, else None."""
        if self.is_atom and isinstance(self.terms[0][0], Sym):
            return self.terms[0][0].name
        return None

    def __add__(self, other: Lin | int) -> Lin:
        return _sum(self, other)

    def __radd__(self, other: int) -> Lin:
        return self + other

    def __neg__(self) -> Lin:
        return self * -1

    def __sub__(self, other: Lin | int) -> Lin:
        return self + (-other)

    def __rsub__(self, other: int) -> Lin:
        return -self + other

    def __mul__(self, k: int) -> Lin:
        return _scale(self, k)

    def __rmul__(self, k: int) -> Lin:
        return self * k

    def __floordiv__(self, by: int) -> Lin:
        return _floordiv(self, by)

    def __mod__(self, by: int) -> Lin:
        return _mod(self, by)

    def __str__(self) -> str:
        parts: list[str] = []
        for atom, coef in sorted(self.terms, key=lambda term: term[1] < 0):
            body = str(atom)
            if abs(coef) != 1:
                shown = f"({body})" if isinstance(atom, Div | Mod) else body
                body = f"{abs(coef)}*{shown}"
            elif isinstance(atom, Div | Mod) and (coef < 0 or parts):
                body = f"({body})"
            parts.append((" - " if parts else "-") + body if coef < 0 else _plus(parts) + body)
        if self.const or not parts:
            sign = " - " if self.const < 0 else " + "
            parts.append(f"{sign}{abs(self.const)}" if parts else str(self.const))
        return "".join(parts)


@cache
def _sum(a: Lin, b: Lin | int) -> Lin:
    if isinstance(b, int):
        return _make(Lin, a.const + b, a.terms) if b else a
    return _linear(a.const + b.const, (*a.terms, *b.terms))


@cache
def _scale(e: Lin, k: int) -> Lin:
    return _linear(e.const * k, tuple((a, c * k) for a, c in e.terms))


def _plus(parts: list[str]) -> str:
    return " + " if parts else ""


def _linear(const: int, terms: Iterable[tuple[Atom, int]]) -> Lin:
    total: dict[Atom, int] = {}
    for atom, coef in terms:
        total[atom] = total.get(atom, 0) + coef
    kept = [(atom, coef) for atom, coef in total.items() if coef]
    return _make(Lin, const, tuple(sorted(kept, key=lambda term: _order(term[0]))))


def _order(atom: Atom) -> tuple[int, str]:
    return (0 if isinstance(atom, Sym) else 1, str(atom))


def _atom_to_lin(atom: Atom) -> Lin:
    return _make(Lin, 0, ((atom, 1),))


def const(value: int) -> Lin:
    return _make(Lin, int(value), ())


def sym(name: str) -> Lin:
    return _atom_to_lin(_make(Sym, name))


_INVENTED: Final = "''"


def invent_symbol(word: str) -> str:
    """Return a symbol name for internal use.

    It contains two primes, unlike any name in a program.
    """
    return word + _INVENTED


def invented_word(name: str) -> str | None:
    """Return the word of a symbol made by `invent_symbol`; None for a symbol of the program."""
    return name.removesuffix(_INVENTED) if name.endswith(_INVENTED) else None


def lin(value: Lin | int) -> Lin:
    return value if isinstance(value, Lin) else const(value)


ZERO: Final = const(0)


def _floordiv(e: Lin, by: int) -> Lin:
    if by <= 0:
        raise ValueError("division by a constant that is not positive")
    if by == 1:
        return e
    # (k*x + r) // k == x + r // k
    whole = [(a, c // by) for a, c in e.terms if c % by == 0]
    rest = _linear(e.const % by, [(a, c) for a, c in e.terms if c % by])
    outside = _linear(e.const // by, whole)
    if rest.is_const:
        return outside
    if rest.is_atom and isinstance(rest.terms[0][0], Div):  # floor(floor(x/m)/n) == floor(x/(m*n))
        inner = rest.terms[0][0]
        return outside + _floordiv(inner.arg, inner.by * by)
    g = gcd(by, *(c for _, c in rest.terms))
    if g > 1:
        reduced = _linear(rest.const // g, [(a, c // g) for a, c in rest.terms])
        return outside + _floordiv(reduced, by // g)
    return outside + _atom_to_lin(_make(Div, rest, by))


def _mod(e: Lin, by: int) -> Lin:
    if by <= 0:
        raise ValueError("remainder by a constant that is not positive")
    rest = _linear(e.const % by, [(a, c % by) for a, c in e.terms])
    if rest.is_const:
        return const(rest.const % by)
    if rest.is_atom and isinstance(rest.terms[0][0], Mod) and rest.terms[0][0].by % by == 0:
        return _mod(rest.terms[0][0].arg, by)  # (x % mn) % n == x % n
    return _atom_to_lin(_make(Mod, rest, by))


def extremum(which: Which, args: Iterable[Lin | int]) -> Lin:
    best: dict[tuple[Any, ...], int] = {}  # the best constant per combination of atoms
    pick = min if which == "min" else max
    pending = [lin(arg) for arg in args]
    while pending:
        arg = pending.pop(0)
        atom = arg.terms[0][0] if len(arg.terms) == 1 and arg.terms[0][1] == 1 else None
        if isinstance(atom, Extremum) and atom.which == which:
            pending[:0] = [inner + arg.const for inner in atom.args]
            continue
        best[arg.terms] = pick(best.get(arg.terms, arg.const), arg.const)
    kept = [_make(Lin, value, terms) for terms, value in best.items()]
    if len(kept) == 1:
        return kept[0]
    return _atom_to_lin(_make(Extremum, which, tuple(kept)))


def minimum(*args: Lin | int) -> Lin:
    return extremum("min", args)


def maximum(*args: Lin | int) -> Lin:
    return extremum("max", args)


def pick(cond: Cond, then: Lin | int, other: Lin | int) -> Lin:
    """Return an expression equal to `then` if `cond` holds, else to `other`."""
    then, other = lin(then), lin(other)
    if cond is TRUE or then is other:
        return then
    if cond is FALSE:
        return other
    return _atom_to_lin(_make(Pick, cond, then, other))


# --- conditions ------------------------------------------------------------------------------


class Cmp(Node):
    """`arg rel 0`."""

    __slots__ = ("rel", "arg")
    rel: Rel
    arg: Lin

    def __str__(self) -> str:
        left = _linear(0, [(a, c) for a, c in self.arg.terms if c > 0])
        right = _linear(0, [(a, -c) for a, c in self.arg.terms if c < 0])
        c = self.arg.const
        if self.rel != ">=":
            return f"{left} {self.rel} {right - c}" if left.terms else f"{right} {self.rel} {c}"
        if not left.terms:
            return f"{right} <= {c}"
        if right.terms and c < 0:
            swap = right.is_atom and c == -1
            return f"{right} < {left}" if swap else f"{left} > {right - c - 1}"
        return f"{left} >= {right - c}"


class And(Node):
    """Conjunction of conditions; without any, it is TRUE."""

    __slots__ = ("args",)
    args: tuple[Cond, ...]

    def __str__(self) -> str:
        parts = (f"({c})" if isinstance(c, Or) else str(c) for c in self.args)
        return " & ".join(parts) if self.args else "True"


class Or(Node):
    """Disjunction of conditions; without any, it is FALSE."""

    __slots__ = ("args",)
    args: tuple[Cond, ...]

    def __str__(self) -> str:
        parts = (f"({c})" if isinstance(c, And) else str(c) for c in self.args)
        return " | ".join(parts) if self.args else "False"


Cond = Cmp | And | Or

TRUE: Final[Cond] = _make(And, ())
FALSE: Final[Cond] = _make(Or, ())


@cache
def compare(rel: Rel, arg: Lin) -> Cond:
    """Return the condition `arg rel 0` in normal form."""
    if arg.is_const:
        holds = arg.const >= 0 if rel == ">=" else (arg.const == 0) == (rel == "==")
        return TRUE if holds else FALSE
    g = gcd(*(c for _, c in arg.terms))
    if rel == ">=":
        return _make(Cmp, rel, _linear(arg.const // g, [(a, c // g) for a, c in arg.terms]))
    if arg.const % g:
        return FALSE if rel == "==" else TRUE
    if arg.terms[0][1] < 0:
        g = -g
    return _make(Cmp, rel, _linear(arg.const // g, [(a, c // g) for a, c in arg.terms]))


def eq(a: Lin | int, b: Lin | int) -> Cond:
    return compare("==", lin(a) - b)


def ne(a: Lin | int, b: Lin | int) -> Cond:
    return compare("!=", lin(a) - b)


def ge(a: Lin | int, b: Lin | int) -> Cond:
    return compare(">=", lin(a) - b)


def le(a: Lin | int, b: Lin | int) -> Cond:
    return compare(">=", lin(b) - a)


def lt(a: Lin | int, b: Lin | int) -> Cond:
    return compare(">=", lin(b) - a - 1)


def gt(a: Lin | int, b: Lin | int) -> Cond:
    return lt(b, a)


@cache
def negate(cond: Cond) -> Cond:
    """Return the negation of a condition."""
    if isinstance(cond, Cmp):
        if cond.rel == ">=":
            return compare(">=", -cond.arg - 1)
        return compare("==" if cond.rel == "!=" else "!=", cond.arg)
    joined = any_of if isinstance(cond, And) else all_of
    return joined(*(negate(arg) for arg in cond.args))


def all_of(*conds: Cond) -> Cond:
    return _join(And, TRUE, FALSE, conds)


def any_of(*conds: Cond) -> Cond:
    return _join(Or, FALSE, TRUE, conds)


def _join(cls: type[Any], neutral: Cond, absorbing: Cond, conds: Iterable[Cond]) -> Cond:
    kept: dict[Cond, None] = {}
    for cond in conds:
        parts: tuple[Cond, ...] = (cond,)
        if isinstance(cond, And | Or) and isinstance(cond, cls):
            parts = cond.args
        for part in parts:
            if part is absorbing or negate(part) in kept:
                return absorbing
            if part is not neutral:
                kept[part] = None
    if len(kept) == 1:
        return next(iter(kept))
    return _make(cls, tuple(kept)) if kept else neutral


# --- slices ----------------------------------------------------------------------------------


class Slice(Node):
    """The half-open range lo : hi of positions along one dimension."""

    __slots__ = ("lo", "hi")
    lo: Lin
    hi: Lin

    @property
    def length(self) -> Lin:
        """hi - lo. A negative length means an empty range."""
        return _distribute(self.hi, self.lo)

    def __str__(self) -> str:
        return f"{self.lo}:{self.hi}"


def _distribute(hi: Lin, lo: Lin) -> Lin:
    # min(t + 5, T) - t is easier to read, and to simplify, as min(5, T - t).
    if len(hi.terms) == 1 and isinstance(hi.terms[0][0], Extremum) and hi.terms[0][1] == 1:
        atom = hi.terms[0][0]
        return extremum(atom.which, [arg + hi.const - lo for arg in atom.args])
    return hi - lo


def span(lo: Lin | int, hi: Lin | int) -> Slice:
    return _make(Slice, lin(lo), lin(hi))


Entry = Lin | Slice
Index = tuple[Entry, ...]


def index_text(index: Index) -> str:
    return "[" + ", ".join(map(str, index)) + "]"
