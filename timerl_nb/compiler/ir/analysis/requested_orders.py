"""Orders requested by the user in addition to data dependences: `ctx.before(a, b)`.

An order names two operations, and the earlier points for each later point. It passes no value, so it is
stored separately from the operands. Transformations of operations ignore it, and each edit of the graph
updates it (decision 014).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.operations import Op, Output, Read
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import Entry, Index


@dataclass(frozen=True)
class Order:
    """Operation `after` runs at a point once `before` has run at the points `at`.

    `at` has an index per dimension of `before`, in the coordinates of `after`. A dimension without an index
    is taken as a whole; so is one whose index contains dimensions unknown to `after`.
    """

    before: int
    after: int
    at: tuple[tuple[str, Entry], ...] = ()
    origin: Origin = field(default=Origin(), compare=False)

    def index(self, dims: Dims, before: Domain, after: Domain) -> Index:
        """Return the index into a tensor over `before`, for a reader over `after`."""
        entries = dict(self.at)
        found: list[Entry] = []
        for d in before:
            entry = entries.get(d)
            known = entry is not None and set(dims.ordered(entry.symbols)) <= set(after)
            found.append(entry if entry is not None and known else dims[d].full_range)
        return tuple(found)

    def to_read(self, dims: Dims, before: Output, after: Op) -> Read:
        """Return the order as a read without a value."""
        return Read(self.before, 0, self.index(dims, before.domain, after.domain))


def rewrite_orders(
    orders: tuple[Order, ...], ids: Mapping[int, tuple[int, ...]]
) -> Iterator[tuple[Order, tuple[Order, ...]]]:
    """Yield each order with its replacements; none if one of its operations was removed."""
    for order in orders:
        yield (
            order,
            tuple(
                Order(before, after, order.at, order.origin)
                for before in ids.get(order.before, ())
                for after in ids.get(order.after, ())
            ),
        )
