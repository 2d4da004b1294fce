"""Storage kinds of tensors, chosen from live ranges and reads.

- slot: one value. Chosen if no two values are live simultaneously.
- ring: `size` values, by position modulo `size` along one dimension. Chosen if values of equal
  remainder are never live simultaneously.
- block: an array with `size` rows along one dimension (`block_storage`). `placement_planner` tries
  it first if slices read the tensor; `choose` selects among the other kinds.
- point: a map from points to values. Chosen if no other kind is possible.

The choice uses exact live ranges under actual bounds. So sizes are proved: an entry is overwritten
only after the end of its value's live range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar

from timerl_nb.compiler.memory.liveness.slot_live_ranges import LiveRanges
from timerl_nb.compiler.memory.liveness.value_lifetimes import ValueLiveRanges
from timerl_nb.compiler.memory.placement.ring_sizes import Axis, fit, have_disjoint_slots, ring
from timerl_nb.compiler.symbolic.dimensions import Domain

StoreKind = Literal["slot", "ring", "block", "point"]
Index = TypeVar("Index")  # a coordinate, or its source code


@dataclass(frozen=True)
class KindTraits:
    """Properties of a storage kind. The planner, both executors and the views use only these.

    Attributes:
        is_single: one entry holds all values, one after the other.
        is_cyclic: the entry of a point is its position modulo the size.
        has_rows: an entry is an array with a row for each point of one dimension.
        has_slots: the entries form a box of slots, unlike a map from points.
    """

    is_single: bool = False
    is_cyclic: bool = False
    has_rows: bool = False
    has_slots: bool = True

    @property
    def is_along(self) -> bool:
        """Whether one dimension, with a size, determines the entry or its rows."""
        return self.is_cyclic or self.has_rows


KINDS: Final[Mapping[StoreKind, KindTraits]] = {
    "slot": KindTraits(is_single=True),
    "ring": KindTraits(is_cyclic=True),
    "block": KindTraits(has_rows=True),
    "point": KindTraits(has_slots=False),
}


@dataclass(frozen=True)
class Store:
    """Storage of one tensor, and the reason for its kind.

    Attributes:
        name: the tensor's name.
        kind: the storage kind.
        domain: the dimensions of the tensor.
        nbytes: the bytes of one value.
        most: the greatest number of simultaneously live values (or blocks).
        lifetime: the name of the lifetime of the values (or blocks).
        why: the reason for the kind.
        axes: the slots of an array for the values; rows of blocks come last. Only XLA's programs
            use the slots of a point map.
    """

    name: str
    kind: StoreKind
    domain: Domain
    nbytes: int
    most: int
    lifetime: str
    why: str
    axes: tuple[Axis, ...]

    @property
    def traits(self) -> KindTraits:
        """The properties of the kind."""
        return KINDS[self.kind]

    def __str__(self) -> str:
        what = self.kind if self.traits.has_rows else "value"
        held = f"1 {what}" if self.most == 1 else f"at most {self.most:,} {what}s"
        return f"{self.name}: {self.shape}, {held} of {self.unit:,} bytes ({self.why})"

    @property
    def axis(self) -> Axis | None:
        """The axis of a ring's slots or a block's rows, else None."""
        return self.axes[-1] if self.traits.is_along else None

    @property
    def stored_dim(self) -> str:
        """The dimension of a ring or block."""
        return "" if self.axis is None else self.domain[self.axis.coordinate]

    @property
    def size(self) -> int:
        """The number of slots of a ring or rows of a block, else 1."""
        return 1 if self.axis is None else self.axis.size

    @property
    def first_row(self) -> int:
        """The coordinate of a block's first row."""
        return 0 if self.axis is None else self.axis.first

    @property
    def shape(self) -> str:
        """The kind as text, with the size if it has one."""
        return (
            self.kind
            if self.axis is None
            else f"{self.kind} of {self.size} along {self.stored_dim}"
        )

    @property
    def unit(self) -> int:
        """The bytes of one allocation: a value or a block."""
        return self.nbytes * self.size if self.traits.has_rows else self.nbytes

    @property
    def position(self) -> int:
        """The position of the dimension of a ring or block in the domain."""
        assert self.axis is not None
        return self.axis.coordinate

    def key(self, point: tuple[int, ...]) -> Any:
        """Return the key of the entry with the value of a point, or with its block."""
        if self.has_one_entry:
            return 0
        if self.traits.is_cyclic:
            return point[self.position] % self.size
        found = self.without_row(point)
        return found[0] if len(found) == 1 else found

    @property
    def has_one_entry(self) -> bool:
        """Whether all points share one entry."""
        return self.traits.is_single or (self.traits.has_rows and self.most <= 1)

    def without_row(self, point: tuple[Index, ...]) -> tuple[Index, ...]:
        """Return the coordinates of a point, without that of its row if entries have rows."""
        if not self.traits.has_rows:
            return point
        return tuple(p for k, p in enumerate(point) if k != self.position)

    def has_row(self, point: tuple[int, ...]) -> bool:
        """Whether entries have a row for a point; rows that nothing reads are not stored."""
        if not self.traits.has_rows:
            return True
        return 0 <= point[self.position] - self.first_row < self.size

    def value(self, held: Mapping[Any, Any], point: tuple[int, ...]) -> Any:
        """Return the value of a point from the store's contents."""
        found = held[self.key(point)]
        return found[point[self.position] - self.first_row] if self.traits.has_rows else found


@dataclass(frozen=True)
class StorageChoice:
    """A storage kind with its axes, and the reason."""

    kind: StoreKind
    why: str
    axes: tuple[Axis, ...] = ()


def choose(lives: ValueLiveRanges, domain: Domain, *, smallest: bool) -> StorageChoice:
    """Return a slot, a short ring or a point map for values with the given live ranges.

    Args:
        lives: the live ranges.
        domain: the dimensions of the tensor.
        smallest: False returns a point map.
    """
    why = "the option stores='point' is set"
    if smallest:
        # a kernel's operands and results exist at the same time
        ranges = LiveRanges(lives.points, lives.born, lives.dies + 1)
        if have_disjoint_slots((), [ranges]):
            return StorageChoice("slot", "one live value at a time")
        found = _shortest(ranges, domain)
        if found is not None:
            what = f"{domain[found.coordinate]} % {found.size}"
            return StorageChoice("ring", f"live values differ in {what}", (found,))
        why = "no ring shorter than the dimension was found"
    return StorageChoice("point", why, fit(LiveRanges.from_values(lives), range(len(domain))))


def rows(lives: ValueLiveRanges, domain: Domain, row: Axis) -> StorageChoice:
    """Return a store of blocks.

    Args:
        lives: the live ranges of the blocks.
        domain: the dimensions of the tensor.
        row: the axis of the rows.
    """
    axes = (
        fit(LiveRanges.from_values(lives), range(len(domain) - 1)) if lives.most_at_once > 1 else ()
    )
    moved = [replace(a, coordinate=a.coordinate + (a.coordinate >= row.coordinate)) for a in axes]
    return StorageChoice(
        "block", f"it is read in slices of {domain[row.coordinate]}", (*moved, row)
    )


# Few sizes above the number of live values are worth trying: a larger ring would be sparse.
_TRIES = 4


def _shortest(ranges: LiveRanges, domain: Domain) -> Axis | None:
    """Return a short ring, if one shorter than its dimension is found, else None."""
    found: Axis | None = None
    for k in reversed(range(len(domain))):
        found = ring(ranges, (), k, None if found is None else found.size - 1, _TRIES) or found
    return found
