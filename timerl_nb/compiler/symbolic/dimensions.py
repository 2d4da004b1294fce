"""Symbolic dimensions and domains.

A dimension is a variable (`t`) with an upper bound symbol (`T`): 0 <= t < T. A block dimension
counts blocks of another dimension. It has the same bound and a step: 0 <= 8*t_block < T. A domain
is a tuple of dimension names in the order of the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from timerl_nb.base.errors import DomainError
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    Cond,
    Lin,
    Slice,
    all_of,
    eq,
    ge,
    lt,
    minimum,
    span,
    sym,
)

Domain = tuple[str, ...]
# Metadata key of fields added later. A digest ignores such a field at its default value, so older
# digests stay valid.
LATER: Final = "later"


@dataclass(frozen=True)
class Dim:
    """One symbolic dimension.

    Attributes:
        name: the variable, such as `t`.
        bound: the symbol of the upper bound, such as `T`.
        step: the number of points of the bound's range per point of this dimension. The last block
            may be shorter.
        over: the dimensions that a dynamic bound depends on; None for a bound that is fixed before
            the run. The symbol of a dynamic bound means the length at the current point.
        seeds: whether the dimension counts independent runs. Its coordinate is added to the seed of
            the run.
        endless: whether the dimension is unbounded. Nothing may depend on its bound, and nothing
            may be computed before the iteration that needs it.
        value: the bound's actual value, if all sets and relations are restricted to it.
    """

    name: str
    bound: str
    step: int = 1
    over: Domain | None = None
    seeds: bool = field(default=False, metadata={LATER: True})
    endless: bool = field(default=False, metadata={LATER: True})
    value: int | None = field(default=None, metadata={LATER: True})

    @property
    def var(self) -> Lin:
        return sym(self.name)

    @property
    def size(self) -> Lin:
        """Number of points, as an expression of the bound."""
        return (sym(self.bound) + (self.step - 1)) // self.step

    @property
    def full_range(self) -> Slice:
        return span(0, self.size)

    @property
    def range_condition(self) -> Cond:
        return all_of(ge(self.var, 0), lt(self.var * self.step, sym(self.bound)))

    @property
    def block(self) -> Slice:
        """The points of the bound's range that the current point covers."""
        return self.part_at_point(span(0, sym(self.bound)))

    def part_at_point(self, whole: Slice) -> Slice:
        """Return the part of a range that the current point covers.

        Args:
            whole: a range as long as the bound.
        """
        start = whole.lo + self.var * self.step
        end = start + self.step
        return span(start, end if self.step == 1 else minimum(end, whole.hi))

    def count(self, bounds: Mapping[str, int]) -> int:
        """Return the number of points under actual bounds."""
        return -(-bounds[self.bound] // self.step)

    def __str__(self) -> str:
        return f"{self.var * self.step} < {self.bound}"


@dataclass(frozen=True)
class Dims:
    """The dimensions of a program, in order."""

    all: tuple[Dim, ...]

    def __iter__(self) -> Iterator[Dim]:
        return iter(self.all)

    def __getitem__(self, name: str) -> Dim:
        for dim in self.all:
            if dim.name == name:
                return dim
        raise KeyError(name)

    def __contains__(self, name: str) -> bool:
        return any(dim.name == name for dim in self.all)

    def check(self, *names: str) -> None:
        """Raise a `DomainError` unless every name is a dimension."""
        for name in names:
            if name not in self:
                raise DomainError(
                    f"{name} is not a dimension.",
                    hint=f"the dimensions are {', '.join(self.names)}.",
                )

    @cached_property
    def names(self) -> Domain:
        return tuple(dim.name for dim in self.all)

    @cached_property
    def bounds(self) -> tuple[str, ...]:
        """Names of the bounds, without duplicates."""
        return tuple(dict.fromkeys(dim.bound for dim in self.all))

    @cached_property
    def dynamic(self) -> tuple[Dim, ...]:
        """The dimensions with dynamic bounds, each after those that its bound depends on."""
        left = [dim for dim in self.all if dim.over is not None]
        found: list[Dim] = []
        while left:
            names = {dim.name for dim in left}
            outer = next((dim for dim in left if names.isdisjoint(dim.over or ())), left[0])
            found.append(outer)
            left.remove(outer)
        return tuple(found)

    @cached_property
    def seeds(self) -> Dim | None:
        """The dimension that counts seeds, or None."""
        return next((dim for dim in self.all if dim.seeds), None)

    @cached_property
    def endless(self) -> Dim | None:
        """The unbounded dimension, or None."""
        return next((dim for dim in self.all if dim.endless), None)

    @cached_property
    def bounded(self) -> tuple[Dim, ...]:
        """The dimensions with an end. Only these can be vectorised."""
        return tuple(dim for dim in self.all if not dim.endless)

    def with_endless(self, name: str) -> Dims:
        """Return the dimensions with one of them made unbounded."""
        return Dims(tuple(replace(d, endless=True) if d.name == name else d for d in self.all))

    def with_dynamic(self, name: str, over: Domain) -> Dims:
        """Return the dimensions with the bound of one of them made dynamic.

        Args:
            name: the dimension.
            over: the dimensions that its bound depends on.
        """
        return Dims(tuple(replace(d, over=over) if d.name == name else d for d in self.all))

    def with_values(self, names: Iterable[str], bounds: Mapping[str, int]) -> Dims:
        """Return the dimensions with the bounds of the named ones fixed at their actual values."""
        wanted = set(names)
        return Dims(
            tuple(replace(d, value=bounds[d.bound]) if d.name in wanted else d for d in self.all)
        )

    @cached_property
    def values(self) -> Mapping[str, int]:
        """The fixed bounds and their values."""
        return {dim.bound: dim.value for dim in self.all if dim.value is not None}

    def known(self, domain: Domain) -> tuple[Dim, ...]:
        """Return the dimensions whose dynamic bounds a point of `domain` determines."""
        return tuple(dim for dim in self.dynamic if set(dim.over or ()) <= set(domain))

    def lengths(self, domain: Domain) -> tuple[str, ...]:
        """Return the dynamic bounds that a point of `domain` determines."""
        return tuple(dim.bound for dim in self.known(domain))

    def ending(self, domain: Domain) -> tuple[Dim, ...]:
        """Return the dimensions at whose dynamic bounds a tensor over `domain` ends."""
        return tuple(dim for dim in self.known(domain) if dim.name in domain)

    def mention(self, symbols: Iterable[str]) -> bool:
        """Return whether a dynamic bound is among the symbols."""
        return not {dim.bound for dim in self.dynamic}.isdisjoint(symbols)

    def dims_of_symbols(self, symbols: Iterable[str]) -> Domain:
        """Return the dimensions that the symbols depend on, in order.

        A dynamic bound depends on the dimensions of its `over`.
        """
        wanted = set(symbols)
        for dim in self.dynamic:
            if dim.bound in wanted:
                wanted |= set(dim.over or ())
        return self.ordered(wanted)

    def ordered(self, names: Iterable[str]) -> Domain:
        """Return the dimensions among `names`, in order and without duplicates.

        Other symbols are ignored.
        """
        wanted = set(names)
        return tuple(dim.name for dim in self.all if dim.name in wanted)

    def range_condition(self, domain: Domain) -> Cond:
        """Return the condition for being within the range of each dimension of `domain`.

        It includes the values of fixed bounds.
        """
        fixed = (eq(sym(bound), value) for bound, value in self.values.items())
        return all_of(TRUE, *fixed, *(self[name].range_condition for name in domain))


class Ceiling(int):
    """The largest value of a dynamic bound.

    Attributes:
        until: the condition that ends the dimension earlier, as text.
        raised: whether a run may exceed the value. This is so if the user gave no ceiling.
    """

    until: str
    raised: bool

    def __new__(cls, value: int, until: str, *, raised: bool = False) -> Ceiling:
        made = super().__new__(cls, value)
        made.until, made.raised = until, raised
        return made


class Endless(int):
    """The bound of an unbounded dimension: an integer that no run reaches."""

    def __new__(cls) -> Endless:
        return super().__new__(cls, 1 << 53)

    def __reduce__(self) -> tuple[type[Endless], tuple[()]]:
        return Endless, ()

    def __repr__(self) -> str:
        return "endless"


ENDLESS: Final = Endless()


def bounds_text(bounds: Mapping[str, int]) -> str:
    """Return bounds as text, such as `B = 64, I endless, T <= 500 until done`."""

    def text(name: str, value: int) -> str:
        if isinstance(value, Endless):
            return f"{name} endless"
        if not isinstance(value, Ceiling):
            return f"{name} = {value}"
        more = " (or more)" if value.raised else ""
        return f"{name} <= {int(value)}{more} until {value.until}"

    return ", ".join(text(name, value) for name, value in bounds.items())
