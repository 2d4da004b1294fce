"""Symbolic indices as a user writes them, and the parsing of `x[...]` (semantics.md §3).

`Index` and `Condition` wrap the expressions of `symbolic.expr` with operators, and refuse at the
user's line what is not quasi-affine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from timerl_nb.base.errors import DomainError, IndexExpressionError
from timerl_nb.compiler.language.foreign_names import INDEX
from timerl_nb.compiler.language.lint import warn_permuted_index
from timerl_nb.compiler.language.opaque_value import Opaque
from timerl_nb.compiler.symbolic import index_expressions
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import Cond, Entry, Lin

_TENSOR_HINT = "trl.value(...) gives an index as a tensor, whose arithmetic is free."


def _refuse(what: str, hint: str = _TENSOR_HINT) -> IndexExpressionError:
    return IndexExpressionError(what, hint=hint)


def _power(text: str, index: Index) -> str:
    return f"write {text}trl.value({index}): the index as a tensor."


class _Symbolic(Opaque):
    """What integer and boolean index expressions share."""

    __slots__ = ("owner",)
    _ERROR = IndexExpressionError

    def __init__(self, owner: object) -> None:
        self.owner = owner

    def __bool__(self) -> bool:
        raise _refuse(
            f"{self} has no truth value while the program is written.",
            "trl.where(condition, x, y) chooses, & | ~ join conditions, trl.min and trl.max are of "
            "indices; Python's if, and, or, not, min, max and a < b < c cannot be. Or define a tensor "
            "by branches.",
        )

    def _as_tensor(self) -> str:
        return f"trl.value({self})"


class Index(_Symbolic):
    """An integer expression of symbolic dimensions and their bounds."""

    __slots__ = ("lin",)
    _KIND, _WORDS = "an index", INDEX

    def __init__(self, owner: object, value: Lin) -> None:
        super().__init__(owner)
        self.lin = value

    def __repr__(self) -> str:
        return str(self.lin)

    def __hash__(self) -> int:
        return hash(self.lin)

    def _to_lin(self, other: Any, sign: str) -> Lin | None:
        """The operand as an expression; None leaves the operator to the operand (a tensor)."""
        if isinstance(other, Index):
            return as_lin(self.owner, other)
        if isinstance(other, Condition):
            raise _refuse(f"{self} {sign} ({other}): a condition is not a number.")
        if isinstance(other, int | np.integer) and not isinstance(other, bool):
            return as_lin(self.owner, other)
        if isinstance(other, bool | float | complex | str | np.generic):
            raise _refuse(f"{self} {sign} {other!r}: an index has integers only.")
        return None

    def _linear(self, other: Any, sign: str, join: Callable[[Lin, Lin], Lin]) -> Any:
        found = self._to_lin(other, sign)
        return NotImplemented if found is None else Index(self.owner, join(self.lin, found))

    def __add__(self, other: Any) -> Any:
        return self._linear(other, "+", lambda a, b: a + b)

    def __radd__(self, other: Any) -> Any:
        return self._linear(other, "+", lambda a, b: b + a)

    def __sub__(self, other: Any) -> Any:
        return self._linear(other, "-", lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._linear(other, "-", lambda a, b: b - a)

    def __neg__(self) -> Index:
        return Index(self.owner, -self.lin)

    def __mul__(self, other: Any) -> Any:
        return self._linear(other, "*", self._product)

    __rmul__ = __mul__

    def _product(self, a: Lin, b: Lin) -> Lin:
        if a.is_const or b.is_const:
            return b * a.const if a.is_const else a * b.const
        raise _refuse(f"({a}) * ({b}) is not affine: one factor must be an integer.")

    def _by_constant(self, other: Any, sign: str, join: Callable[[Lin, int], Lin]) -> Any:
        found = self._to_lin(other, sign)
        if found is None:
            return NotImplemented
        if not found.is_const or found.const <= 0:
            raise _refuse(f"({self}) {sign} ({found}): the divisor must be a positive integer.")
        return Index(self.owner, join(self.lin, found.const))

    def __floordiv__(self, other: Any) -> Any:
        return self._by_constant(other, "//", lambda a, k: a // k)

    def __mod__(self, other: Any) -> Any:
        return self._by_constant(other, "%", lambda a, k: a % k)

    def __rfloordiv__(self, other: Any) -> Any:
        raise _refuse(f"{other} // ({self}) is not affine: the divisor must be a positive integer.")

    def __rmod__(self, other: Any) -> Any:
        raise _refuse(f"{other} % ({self}) is not affine: the divisor must be a positive integer.")

    def __truediv__(self, other: Any) -> Any:
        if self._to_lin(other, "/") is None:
            return NotImplemented
        raise _refuse(f"({self}) / {other}: an index is an integer; // divides and rounds down.")

    def __rtruediv__(self, other: Any) -> Any:
        raise _refuse(f"{other} / ({self}) is not affine.", _power(f"{other} / ", self))

    def __pow__(self, other: Any) -> Any:
        raise _refuse(f"({self}) ** {other} is not affine.")

    def __rpow__(self, other: Any) -> Any:
        raise _refuse(f"{other} ** ({self}) is not affine.", _power(f"{other} ** ", self))

    def __abs__(self) -> Any:
        raise _refuse(f"abs({self}) is no index expression.", f"trl.max({self}, -({self})) is.")

    def __round__(self, digits: int | None = None) -> Any:
        raise _refuse(f"{self} is an integer: there is nothing to round.")

    __floor__ = __ceil__ = __round__

    def __invert__(self) -> Any:
        raise _refuse(f"~({self}): an index is no condition.", "compare first, as in t > 0.")

    def _no_bits(self, other: Any) -> Any:
        if isinstance(other, Condition | Index | int | float):
            raise _refuse(
                f"bits of ({self}) and ({other}) cannot be joined: & and | are of conditions.",
                f"compare first, as in {self} > 0; // and * by constants shift.",
            )
        return NotImplemented

    __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = _no_bits
    __lshift__ = __rshift__ = __rlshift__ = __rrshift__ = _no_bits

    def _compare(self, other: Any, sign: str, join: Callable[[Lin, Lin], Cond]) -> Any:
        found = self._to_lin(other, sign)
        return NotImplemented if found is None else Condition(self.owner, join(self.lin, found))

    def __eq__(self, other: object) -> Any:
        return self._compare(other, "==", index_expressions.eq)

    def __ne__(self, other: object) -> Any:
        return self._compare(other, "!=", index_expressions.ne)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, "<", index_expressions.lt)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, "<=", index_expressions.le)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, ">", index_expressions.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, ">=", index_expressions.ge)


class Condition(_Symbolic):
    """A boolean expression of symbolic dimensions; `&`, `|` and `~` join them."""

    __slots__ = ("cond",)
    _KIND, _WORDS = "a condition", INDEX

    def __init__(self, owner: object, value: Cond) -> None:
        super().__init__(owner)
        self.cond = value

    def __repr__(self) -> str:
        return str(self.cond)

    def __hash__(self) -> int:
        return hash(self.cond)

    def _combine(self, other: Any, sign: str, join: Callable[..., Cond]) -> Any:
        if isinstance(other, Condition):
            return Condition(self.owner, join(self.cond, as_cond(self.owner, other)))
        if isinstance(other, bool | int | float | Index):
            raise _refuse(f"({self}) {sign} ({other}): both sides must be conditions.")
        return NotImplemented

    def __and__(self, other: Any) -> Any:
        return self._combine(other, "&", index_expressions.all_of)

    def __or__(self, other: Any) -> Any:
        return self._combine(other, "|", index_expressions.any_of)

    def __xor__(self, other: Any) -> Any:
        either = self._combine(other, "^", index_expressions.any_of)
        return either if either is NotImplemented else either & ~(self & other)

    def __eq__(self, other: object) -> Any:
        differs = self.__xor__(other)
        return differs if differs is NotImplemented else ~differs

    def __ne__(self, other: object) -> Any:
        return self.__xor__(other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Condition:
        return Condition(self.owner, index_expressions.negate(self.cond))

    def _no_numbers(self, other: Any = None) -> Any:
        if other is None or isinstance(other, Condition | Index | int | float | np.generic):
            raise _refuse(
                f"{self}: a condition is not a number.",
                f"trl.value({self}).floating() is 1 where it holds, else 0; & | ~ join conditions.",
            )
        return NotImplemented

    __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _no_numbers
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _no_numbers
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = _no_numbers
    __rmod__ = __rpow__ = _no_numbers


def extremum(which: str, args: Sequence[Any]) -> Index | int:
    """`trl.min` / `trl.max` of index expressions and integers."""
    symbolic = [arg for arg in args if isinstance(arg, Index)]
    if not symbolic:
        for arg in args:
            as_lin(None, arg)
        return min(args) if which == "min" else max(args)
    lins = [as_lin(symbolic[0].owner, arg) for arg in args]
    joined = index_expressions.minimum if which == "min" else index_expressions.maximum
    return Index(symbolic[0].owner, joined(*lins))


def _expect_own(owner: object, value: _Symbolic) -> None:
    if value.owner is not owner:
        raise _refuse(
            f"{value} belongs to another context.", "use the symbols of one context in a program."
        )


def as_lin(owner: object, value: Any) -> Lin:
    """An integer or `Index` of the context `owner` as an expression."""
    if isinstance(value, Index):
        _expect_own(owner, value)
        return value.lin
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise _refuse(f"{value} is no integer of 64 bits.", "no dimension is as long.")
        return index_expressions.const(int(value))
    kind = type(value).__name__
    hint = "an index is made of symbols, integers, + - * // %, trl.min and trl.max."
    if not isinstance(value, _Symbolic) and getattr(value, "dtype", None) == "bool":
        hint = "trl.where(mask, x, y) chooses by values; a condition in an index is of symbols."
    elif not isinstance(value, _Symbolic) and hasattr(value, "read"):
        hint = "x.take(...) selects along a concrete axis by a tensor."
    raise _refuse(f"{value!r} ({kind}) is not an index expression.", hint)


def as_cond(owner: object, value: Condition) -> Cond:
    """A condition of the context `owner` as an expression."""
    _expect_own(owner, value)
    return value.cond


def as_dims(owner: object, dims: Dims, value: Any) -> Domain:
    """Dimensions given by variable or name, one or several, in the context's order."""
    several = value if isinstance(value, tuple | list) else (value,)
    names: list[str] = []
    for one in several:
        name = as_lin(owner, one).as_symbol if isinstance(one, Index) else one
        if not isinstance(name, str) or name not in dims:
            raise DomainError(
                f"{one!r} is not a dimension of this context.",
                hint=f"the dimensions are {', '.join(dims.names)}; axes are given as axis=0.",
            )
        if name in names:
            raise DomainError(f"the dimension {name} is named twice.")
        names.append(name)
    return dims.ordered(names)


def parse(owner: object, dims: Dims, domain: Domain, key: Any, name: str) -> dict[str, Entry]:
    """The entry per dimension that `name[key]` gives, for a tensor over `domain`."""
    given = list(key) if isinstance(key, tuple) else [key]
    dots = [k for k, entry in enumerate(given) if entry is Ellipsis]
    if len(dots) > 1:
        raise _refuse(f"{name}[...]: only one `...` may stand in an index.", "write one of them.")
    if len(given) - len(dots) > len(domain):
        raise DomainError(
            f"{name} varies over ({', '.join(domain)}) and takes at most {len(domain)} indices, "
            f"not {len(given)}.",
            hint="x[...] indexes symbolic dimensions only; x.take and x.slice index axes.",
        )
    if any(entry is None for entry in given):
        raise _refuse(f"{name}[None]: an index adds no axis.", "x.unsqueeze(axis) adds one.")
    rest: list[Any] = [None] * (len(domain) - len(given) + len(dots))
    at = dots[0] if dots else len(given)
    full = [*given[:at], *rest, *given[at + len(dots) :]]
    entries = {
        d: dims[d].var if entry is None else _entry(owner, dims, d, entry, name)
        for d, entry in zip(domain, full, strict=True)
    }
    warn_permuted_index(name, entries)
    return entries


def _entry(owner: object, dims: Dims, dim: str, entry: Any, name: str) -> Entry:
    if isinstance(entry, slice):
        if entry.step is not None and entry.step != 1:
            raise _refuse(
                f"{name}: a slice with a step ({entry.step}) is not supported.",
                "read single points, as in x[2 * t], or slice first and index the axis.",
            )
        lo = index_expressions.ZERO if entry.start is None else as_lin(owner, entry.start)
        hi = dims[dim].size if entry.stop is None else as_lin(owner, entry.stop)
        for end in (lo, hi):
            _not_negative(dims, dim, end, name)
        if lo.is_const and hi.is_const and hi.const < lo.const:
            raise _refuse(
                f"{name}: the slice {lo}:{hi} ends before it begins.",
                "slices go upwards; x[T - 1 - t] reads backwards.",
            )
        return index_expressions.span(lo, hi)
    if isinstance(entry, Condition):
        raise _refuse(f"{name}: a condition stands alone in an index.", f"write {name}[{entry}].")
    point = as_lin(owner, entry)
    _not_negative(dims, dim, point, name)
    return point


def _not_negative(dims: Dims, dim: str, e: Lin, name: str) -> None:
    if e.is_const and e.const < 0:
        raise _refuse(
            f"{name}: the index {e} is negative.",
            f"positions count from 0; the last ones are {dims[dim].bound} - 1, …",
        )
