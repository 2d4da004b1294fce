"""Symbolic dimensions and their order.

A dimension is a variable (`t`) with an upper bound symbol (`T`): 0 <= t < T. One that counts blocks
of another's points has the same bound and a step: 0 <= 8*t_block < T. A domain is the tuple of the
names of the dimensions that something varies over, always in the context's order.
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
# Marks a field that records had not from the first: at its default it does not count in a digest.
LATER: Final = "later"


@dataclass(frozen=True)
class Dim:
    """One symbolic dimension: the names of its variable and of its bound.

    Each of its points stands for `step` points below the bound; the last block may be shorter.

    A dynamic bound is another number at each point of the dimensions `over`, known as the program
    runs: its symbol then means the length at the point where it stands. None is a bound like others.

    One that counts `seeds` stands for runs side by side: its coordinate is added to the run's seed.

    One that is `endless` has no last point: nothing may depend on its bound, or be made ahead of its turn.

    With a `value`, all sets and relations hold under that value of the bound alone.
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
        """The number of points."""
        return (sym(self.bound) + (self.step - 1)) // self.step

    @property
    def full_range(self) -> Slice:
        return span(0, self.size)

    @property
    def range_condition(self) -> Cond:
        return all_of(ge(self.var, 0), lt(self.var * self.step, sym(self.bound)))

    @property
    def block(self) -> Slice:
        """The points below the bound that the current point stands for."""
        return self.part_at_point(span(0, sym(self.bound)))

    def part_at_point(self, whole: Slice) -> Slice:
        """Of a range as long as the bound, the part that the current point stands for."""
        start = whole.lo + self.var * self.step
        end = start + self.step
        return span(start, end if self.step == 1 else minimum(end, whole.hi))

    def count(self, bounds: Mapping[str, int]) -> int:
        """The number of points under actual bounds."""
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
        """Raise a `DomainError` where a name is no dimension."""
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
        """The bounds' names, each once."""
        return tuple(dict.fromkeys(dim.bound for dim in self.all))

    @cached_property
    def dynamic(self) -> Dim | None:
        """The dimension whose bound is dynamic, if there is one."""
        return next((dim for dim in self.all if dim.over is not None), None)

    @cached_property
    def seeds(self) -> Dim | None:
        """The dimension that counts seeds, if there is one."""
        return next((dim for dim in self.all if dim.seeds), None)

    @cached_property
    def endless(self) -> Dim | None:
        """The dimension without an end, if there is one."""
        return next((dim for dim in self.all if dim.endless), None)

    @cached_property
    def bounded(self) -> tuple[Dim, ...]:
        """The dimensions that have an end: along others nothing is a batch."""
        return tuple(dim for dim in self.all if not dim.endless)

    def with_endless(self, name: str) -> Dims:
        """The same dimensions, one of them without an end."""
        return Dims(tuple(replace(d, endless=True) if d.name == name else d for d in self.all))

    def with_dynamic(self, name: str, over: Domain) -> Dims:
        """The same dimensions, the bound of one of them dynamic."""
        return Dims(tuple(replace(d, over=over) if d.name == name else d for d in self.all))

    def with_values(self, names: Iterable[str], bounds: Mapping[str, int]) -> Dims:
        """Return the same dimensions, the bounds of the named ones fixed at their actual values."""
        wanted = set(names)
        return Dims(
            tuple(replace(d, value=bounds[d.bound]) if d.name in wanted else d for d in self.all)
        )

    @cached_property
    def values(self) -> Mapping[str, int]:
        """The bounds fixed at one value."""
        return {dim.bound: dim.value for dim in self.all if dim.value is not None}

    def is_bound_known(self, domain: Domain) -> bool:
        """Whether a dynamic bound has a value at a point of `domain`."""
        return self.dynamic is not None and set(self.dynamic.over or ()) <= set(domain)

    def lengths(self, domain: Domain) -> tuple[str, ...]:
        """The dynamic bounds that have a value at a point of `domain`, and vary with it."""
        return (
            (self.dynamic.bound,)
            if self.dynamic is not None and self.is_bound_known(domain)
            else ()
        )

    def ends(self, domain: Domain) -> bool:
        """Whether a tensor over `domain` ends where a dynamic bound says, point by point."""
        return (
            self.dynamic is not None and self.dynamic.name in domain and self.is_bound_known(domain)
        )

    def mention(self, symbols: Iterable[str]) -> bool:
        """Whether a dynamic bound is among the symbols."""
        return self.dynamic is not None and self.dynamic.bound in set(symbols)

    def dims_of_symbols(self, symbols: Iterable[str]) -> Domain:
        """The dimensions that the symbols vary with: themselves, and those that a bound varies over."""
        wanted = set(symbols)
        if self.dynamic is not None and self.dynamic.bound in wanted:
            wanted |= set(self.dynamic.over or ())
        return self.ordered(wanted)

    def ordered(self, names: Iterable[str]) -> Domain:
        """The given dimensions, each once, in the program's order; other symbols are left out."""
        wanted = set(names)
        return tuple(dim.name for dim in self.all if dim.name in wanted)

    def range_condition(self, domain: Domain) -> Cond:
        """0 <= d < D for each dimension of the domain, and the values of fixed bounds."""
        fixed = (eq(sym(bound), value) for bound, value in self.values.items())
        return all_of(TRUE, *fixed, *(self[name].range_condition for name in domain))


class Ceiling(int):
    """The greatest value of a dynamic bound: a number that shows what ends it earlier.

    It may be `raised`, where the user gave none, and a run reaches it.
    """

    until: str
    raised: bool

    def __new__(cls, value: int, until: str, *, raised: bool = False) -> Ceiling:
        made = super().__new__(cls, value)
        made.until, made.raised = until, raised
        return made


class Endless(int):
    """The bound of a dimension without an end: a number that no run reaches, and every loop counts to."""

    def __new__(cls) -> Endless:
        return super().__new__(cls, 1 << 53)

    def __reduce__(self) -> tuple[type[Endless], tuple[()]]:
        return Endless, ()

    def __repr__(self) -> str:
        return "endless"


ENDLESS: Final = Endless()


def bounds_text(bounds: Mapping[str, int]) -> str:
    """`B = 64, I endless, T <= 500 until done`."""

    def text(name: str, value: int) -> str:
        if isinstance(value, Endless):
            return f"{name} endless"
        if not isinstance(value, Ceiling):
            return f"{name} = {value}"
        more = " (or more)" if value.raised else ""
        return f"{name} <= {int(value)}{more} until {value.until}"

    return ", ".join(text(name, value) for name, value in bounds.items())
