"""Orders that the user asks for, beyond what the equations need: `ctx.before(a, b)`.

An order names two operations, and for every point of the later one the points of the earlier one
that must have run. It passes no value, so it is kept beside the graph's operations and not among
their operands: what transforms an operation leaves it alone, and each edit of the graph takes it
along (decision 014).
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
    """Operation `after` runs at a point when `before` has run at the points `at`.

    `at` gives an index for each dimension of `before`, as seen from a point of `after`. A dimension
    without one is taken whole, and so is one whose index moves with what `after` does not vary over.
    """

    before: int
    after: int
    at: tuple[tuple[str, Entry], ...] = ()
    origin: Origin = field(default=Origin(), compare=False)

    def index(self, dims: Dims, before: Domain, after: Domain) -> Index:
        """The index into a tensor over `before`, for a reader over `after`."""
        entries = dict(self.at)
        found: list[Entry] = []
        for d in before:
            entry = entries.get(d)
            known = entry is not None and set(dims.ordered(entry.symbols)) <= set(after)
            found.append(entry if entry is not None and known else dims[d].full_range)
        return tuple(found)

    def to_read(self, dims: Dims, before: Output, after: Op) -> Read:
        """The order as a read that passes nothing on."""
        return Read(self.before, 0, self.index(dims, before.domain, after.domain))


def rewrite_orders(
    orders: tuple[Order, ...], ids: Mapping[int, tuple[int, ...]]
) -> Iterator[tuple[Order, tuple[Order, ...]]]:
    """Each order with what it has become; nothing where one of its operations is gone."""
    for order in orders:
        yield (
            order,
            tuple(
                Order(before, after, order.at, order.origin)
                for before in ids.get(order.before, ())
                for after in ids.get(order.after, ())
            ),
        )
