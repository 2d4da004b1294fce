"""Symbolic indices and conditions, and the parsing of `x[...]`.

`Index` and `Condition` wrap the expressions of `symbolic.index_expressions` with Python operators. An operation
that is not quasi-affine raises an error at the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from timerl_nb.base.display_registry import list_public
from timerl_nb.base.errors import DomainError, IndexExpressionError
from timerl_nb.compiler.ir.operation_attributes import ValueAttrs
from timerl_nb.compiler.ir.operations import Op, is_own
from timerl_nb.compiler.language.foreign_names import INDEX
from timerl_nb.compiler.language.lint import warn_permuted_index
from timerl_nb.compiler.language.opaque_value import Opaque
from timerl_nb.compiler.symbolic import index_expressions
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import Cond, Entry, Lin

_TENSOR_HINT = "convert the index to a tensor with trl.value(...); tensors allow any arithmetic."


def _refuse(what: str, hint: str = _TENSOR_HINT) -> IndexExpressionError:
    return IndexExpressionError(what, hint=hint)


def _power(text: str, index: Index) -> str:
    return f"write {text}trl.value({index}): the index as a tensor."


class _Symbolic(Opaque):
    """Base of integer and boolean index expressions."""

    __slots__ = ("owner",)
    _ERROR = IndexExpressionError

    def __init__(self, owner: object) -> None:
        self.owner = owner

    def __bool__(self) -> bool:
        raise _refuse(
            f"{self} has no truth value while the program is written.",
            "write trl.where(condition, x, y) or a tensor defined by branches instead of if; & | ~ instead of "
            "and, or, not; (a < b) & (b < c) instead of a < b < c; trl.min and trl.max instead of min and max.",
        )

    def _as_tensor(self) -> str:
        return f"trl.value({self})"


@list_public(hidden="lin owner")
class Index(_Symbolic):
    """Integer expression of symbolic dimensions and their bounds."""

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
        """Return the operand as an expression; None if the operand's own operator should handle it."""
        if isinstance(other, Index):
            return as_lin(self.owner, other)
        if isinstance(other, Condition):
            raise _refuse(f"{self} {sign} ({other}): a condition is not a number.")
        if isinstance(other, int | np.integer) and not isinstance(other, bool):
            return as_lin(self.owner, other)
        if isinstance(other, bool | float | complex | str | np.generic):
            raise _refuse(f"{self} {sign} {other!r}: index arithmetic takes integers only.")
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
        raise _refuse(
            f"({a}) * ({b}) is not affine: one factor must be an integer.",
            f"write trl.value({a}) * trl.value({b}): tensors allow any arithmetic.",
        )

    def _by_constant(self, other: Any, sign: str, join: Callable[[Lin, int], Lin]) -> Any:
        found = self._to_lin(other, sign)
        if found is None:
            return NotImplemented
        if not found.is_const or found.const <= 0:
            if found == 0:
                raise _refuse(f"({self}) {sign} 0: the divisor is 0.", "choose a positive divisor.")
            raise _refuse(
                f"({self}) {sign} ({found}): the divisor must be a positive integer.",
                f"write trl.value({self}) {sign} {found if found.is_const else f'trl.value({found})'}: "
                "tensors allow any arithmetic.",
            )
        return Index(self.owner, join(self.lin, found.const))

    def __floordiv__(self, other: Any) -> Any:
        return self._by_constant(other, "//", lambda a, k: a // k)

    def __mod__(self, other: Any) -> Any:
        return self._by_constant(other, "%", lambda a, k: a % k)

    def __rfloordiv__(self, other: Any) -> Any:
        raise _refuse(
            f"{other} // ({self}) is not affine: the divisor must be a positive integer.",
            _power(f"{other} // ", self),
        )

    def __rmod__(self, other: Any) -> Any:
        raise _refuse(
            f"{other} % ({self}) is not affine: the divisor must be a positive integer.",
            _power(f"{other} % ", self),
        )

    def __truediv__(self, other: Any) -> Any:
        if self._to_lin(other, "/") is None:
            return NotImplemented
        raise _refuse(
            f"({self}) / {other}: an index is an integer.",
            "use //, which rounds down, or convert the index to a tensor with trl.value(...).",
        )

    def __rtruediv__(self, other: Any) -> Any:
        raise _refuse(f"{other} / ({self}) is not affine.", _power(f"{other} / ", self))

    def __pow__(self, other: Any) -> Any:
        raise _refuse(
            f"({self}) ** {other} is not affine.",
            f"write trl.value({self}) ** {f'trl.value({other})' if isinstance(other, Index) else other}: "
            "tensors allow any arithmetic.",
        )

    def __rpow__(self, other: Any) -> Any:
        raise _refuse(f"{other} ** ({self}) is not affine.", _power(f"{other} ** ", self))

    def __abs__(self) -> Any:
        raise _refuse(
            f"abs({self}) is not an index expression.", f"write trl.max({self}, -({self}))."
        )

    def __round__(self, digits: int | None = None) -> Any:
        raise _refuse(f"{self} is an integer: there is nothing to round.")

    __floor__ = __ceil__ = __round__

    def __invert__(self) -> Any:
        raise _refuse(f"~({self}): an index is not a condition.", "compare first, as in t > 0.")

    def _no_bits(self, other: Any) -> Any:
        if isinstance(other, Condition | Index | int | float):
            raise _refuse(
                f"({self}) and ({other}) have no bitwise operators: & and | combine conditions.",
                f"compare first, as in {self} > 0; to shift bits, use // and * by constants.",
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
    """Boolean expression of symbolic dimensions; `&`, `|` and `~` combine conditions."""

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
                f"trl.value({self}).floating() is 1 where the condition is true, else 0; & | ~ combine conditions.",
            )
        return NotImplemented

    __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _no_numbers
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _no_numbers
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = _no_numbers
    __rmod__ = __rpow__ = _no_numbers


def extremum(which: str, args: Sequence[Any]) -> Index | int:
    """Return the minimum or maximum of index expressions and integers."""
    symbolic = [arg for arg in args if isinstance(arg, Index)]
    if not symbolic:
        for arg in args:
            as_lin(None, arg)
        return min(args) if which == "min" else max(args)
    lins = [as_lin(symbolic[0].owner, arg) for arg in args]
    joined = index_expressions.minimum if which == "min" else index_expressions.maximum
    return Index(symbolic[0].owner, joined(*lins))


def choose(condition: Condition, x: Any, y: Any) -> Index:
    """Return the index expression `x` where a condition holds, else `y`."""
    owner = condition.owner
    then, other = as_lin(owner, x), as_lin(owner, y)
    return Index(owner, index_expressions.pick(as_cond(owner, condition), then, other))


def _expect_own(owner: object, value: _Symbolic) -> None:
    if value.owner is not owner:
        raise _refuse(
            f"{value} belongs to another context.", "use the symbols of one context in a program."
        )


def as_lin(owner: object, value: Any) -> Lin:
    """Return an integer, an `Index` of the context `owner` or a tensor made from one as an expression."""
    if isinstance(value, Index):
        _expect_own(owner, value)
        return value.lin
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise _refuse(f"{value} does not fit into 64 bits.", "use a smaller integer.")
        return index_expressions.const(int(value))
    found = expression_of(value)
    if found is not None and getattr(value, "ctx", None) is owner:
        return found
    kind = type(value).__name__
    hint = "write an index with symbols, integers, + - * // %, trl.min and trl.max."
    if not isinstance(value, _Symbolic) and getattr(value, "dtype", None) == "bool":
        hint = "select by values with trl.where(mask, x, y); a condition in an index contains symbols only."
    elif not isinstance(value, _Symbolic) and hasattr(value, "read"):
        hint = "to index an axis by a tensor, write x.take(at, axis)."
    raise _refuse(f"{value!r} ({kind}) is not an index expression.", hint)


def expression_of(value: Any) -> Lin | None:
    """Return the index expression of a tensor made by `trl.value`; None for other values."""
    op = getattr(value, "op", None)
    if not isinstance(op, Op) or not isinstance(op.attrs, ValueAttrs):
        return None
    own = is_own(value.read.index, op.domain) and not op.attrs.axes
    return op.attrs.expr if own and isinstance(op.attrs.expr, Lin) else None


def as_cond(owner: object, value: Condition) -> Cond:
    """Return a condition of the context `owner` as an expression."""
    _expect_own(owner, value)
    return value.cond


def as_dims(owner: object, dims: Dims, value: Any) -> Domain:
    """Return the names of dimensions given by variable or name, in the context's order."""
    several = value if isinstance(value, tuple | list) else (value,)
    names: list[str] = []
    for one in several:
        name = as_lin(owner, one).as_symbol if isinstance(one, Index) else one
        if not isinstance(name, str) or name not in dims:
            raise DomainError(
                f"{one!r} is not a dimension of this context.",
                hint=f"the dimensions are {', '.join(dims.names)}; for an axis, write axis=0.",
            )
        if name in names:
            raise DomainError(
                f"the dimension {name} is named twice.", hint="name each dimension once."
            )
        names.append(name)
    return dims.ordered(names)


def parse(owner: object, dims: Dims, domain: Domain, key: Any, name: str) -> dict[str, Entry]:
    """Return the index entry for each dimension of a tensor over `domain`, for `name[key]`."""
    given = list(key) if isinstance(key, tuple) else [key]
    dots = [k for k, entry in enumerate(given) if entry is Ellipsis]
    if len(dots) > 1:
        raise _refuse(f"{name}[...]: an index contains more than one `...`.", "write one `...`.")
    if len(given) - len(dots) > len(domain):
        raise DomainError(
            f"{name} varies over ({', '.join(domain)}) and takes at most {len(domain)} indices, "
            f"not {len(given)}.",
            hint="x[...] indexes symbolic dimensions only; use x.take and x.slice for axes.",
        )
    if any(entry is None for entry in given):
        raise _refuse(
            f"{name}[None]: an index cannot add an axis.", "add one with x.unsqueeze(axis)."
        )
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
    """Parse one entry of an index: a slice of the dimension `dim`, or a position in it.

    Raises:
        IndexExpressionError: the entry is a condition, a slice with a step, or not an index.
    """
    if isinstance(entry, slice):
        if entry.step is not None and entry.step != 1:
            raise _refuse(
                f"{name}: a slice with a step ({entry.step}) is not supported.",
                "read single points, as in x[2 * t], or slice first and index the axis.",
            )
        size = dims[dim].size
        lo = index_expressions.ZERO if entry.start is None else _position(owner, size, entry.start)
        hi = size if entry.stop is None else _position(owner, size, entry.stop)
        for end in (lo, hi):
            _not_negative(dims, dim, end, name)
        length = hi - lo
        if length.is_const and length.const < 0:
            raise _refuse(
                f"{name}: the slice {lo}:{hi} ends before it begins.",
                "give the smaller end first; x[T - 1 - t] reads backwards.",
            )
        return index_expressions.span(lo, hi)
    if isinstance(entry, Condition):
        raise _refuse(
            f"{name} is indexed with the condition {entry} beside other indices.",
            f"write x[{entry}]; to index it as well, write x[…][{entry}].",
        )
    point = _position(owner, dims[dim].size, entry)
    _not_negative(dims, dim, point, name)
    return point


def _position(owner: object, size: Lin, value: Any) -> Lin:
    """Return a position as an expression; a negative integer counts from the end of the dimension."""
    found = as_lin(owner, value)
    counts_back = isinstance(value, int | np.integer) and value < 0
    return size + found if counts_back else found


def _not_negative(dims: Dims, dim: str, e: Lin, name: str) -> None:
    if e.is_const and e.const < 0:
        raise _refuse(
            f"{name}: the index expression has the value {e}, which is negative.",
            f"count positions from 0; the last one is {dims[dim].bound} - 1, or the integer -1.",
        )
