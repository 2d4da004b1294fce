"""Store kinds: where the values of a tensor are kept, chosen by when they live and how they are read.

| kind | holds | chosen where |
|---|---|---|
| slot | one value | no two are ever live at once |
| ring | `size` values, by the position modulo `size` along one dimension | no two of one place are |
| block | `size` rows of one array, over the points of one dimension | it is read in slices (`blocks`) |
| point | a map from points to values | nothing smaller holds them |

All of it is decided under actual bounds from the exact moments at which values are born and die, so
that a size is proved, not guessed: a place is written only after what it held has died.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar

from timerl_nb.compiler.memory.liveness.slot_live_ranges import LiveRanges
from timerl_nb.compiler.memory.liveness.value_lifetimes import Lives
from timerl_nb.compiler.memory.placement.ring_sizes import Axis, apart, fit, ring
from timerl_nb.compiler.symbolic.dimensions import Domain

StoreKind = Literal["slot", "ring", "block", "point"]
Index = TypeVar("Index")  # a coordinate, or the source code of one


@dataclass(frozen=True)
class KindTraits:
    """Properties of a storage kind: the planner, both executors and the views ask for these alone.

    Attributes:
        is_single: one entry holds the values of all points, one after the other.
        is_cyclic: the entry of a point is its position modulo the size.
        has_rows: an entry is an array with a row for each point of one dimension.
        has_slots: the entries have places in a box; a map from points has none.
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
    """Where a tensor's values are kept, and why there.

    Attributes:
        nbytes: the bytes of one value.
        most: how many values (or blocks) live at once at most.
        lifetime: the name of the values' (or blocks') lifetime.
        axes: the places of an array that holds them, by which rings and blocks are found; the rows of
            blocks last. The places of a point map are XLA's.
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
        """That of a ring's places, or a block's rows."""
        return self.axes[-1] if self.traits.is_along else None

    @property
    def stored_dim(self) -> str:
        """The dimension of a ring or block."""
        return "" if self.axis is None else self.domain[self.axis.coordinate]

    @property
    def size(self) -> int:
        """The places of a ring, the rows of a block."""
        return 1 if self.axis is None else self.axis.size

    @property
    def first_row(self) -> int:
        """The coordinate of a block's first row."""
        return 0 if self.axis is None else self.axis.first

    @property
    def shape(self) -> str:
        """The kind, with the size where there is one."""
        return (
            self.kind
            if self.axis is None
            else f"{self.kind} of {self.size} along {self.stored_dim}"
        )

    @property
    def unit(self) -> int:
        """The bytes that come and go together: a value's, or a block's."""
        return self.nbytes * self.size if self.traits.has_rows else self.nbytes

    @property
    def position(self) -> int:
        """The position in the domain of the dimension of a ring or block."""
        assert self.axis is not None
        return self.axis.coordinate

    def key(self, point: tuple[int, ...]) -> Any:
        """Under which key the store holds the value of a point, or the block that it lies in."""
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
        """The coordinates of a point without that of its row, if entries have rows."""
        if not self.traits.has_rows:
            return point
        return tuple(p for k, p in enumerate(point) if k != self.position)

    def value(self, held: Mapping[Any, Any], point: tuple[int, ...]) -> Any:
        """The value of a point in the store's contents."""
        found = held[self.key(point)]
        return found[point[self.position] - self.first_row] if self.traits.has_rows else found


@dataclass(frozen=True)
class StorageChoice:
    """A kind with its places, and the reason."""

    kind: StoreKind
    why: str
    axes: tuple[Axis, ...] = ()


def choose(lives: Lives, domain: Domain, *, smallest: bool) -> StorageChoice:
    """The smallest store that holds all values while they live.

    Args:
        smallest: False keeps everything in point maps.
    """
    why = "the option stores is 'point'"
    if smallest:
        # the operands and the results of a kernel are there together
        ranges = LiveRanges(lives.points, lives.born, lives.dies + 1)
        if apart((), [ranges]):
            return StorageChoice("slot", "never two live values")
        found = _shortest(ranges, domain)
        if found is not None:
            what = f"{domain[found.coordinate]} % {found.size}"
            return StorageChoice("ring", f"live values never share {what}", (found,))
        why = "no ring shorter than a dimension keeps live values apart"
    return StorageChoice("point", why, fit(LiveRanges.from_lives(lives), range(len(domain))))


def rows(lives: Lives, domain: Domain, row: Axis) -> StorageChoice:
    """A store of blocks, of which the rows along one dimension are given; `lives` are the blocks'."""
    axes = (
        fit(LiveRanges.from_lives(lives), range(len(domain) - 1)) if lives.most_at_once > 1 else ()
    )
    moved = [replace(a, coordinate=a.coordinate + (a.coordinate >= row.coordinate)) for a in axes]
    return StorageChoice(
        "block", f"it is read in slices of {domain[row.coordinate]}", (*moved, row)
    )


# Beyond the number of live values, few sizes are worth trying: a ring that needs more is sparse.
_TRIES = 4


def _shortest(ranges: LiveRanges, domain: Domain) -> Axis | None:
    """The smallest ring, where one is shorter than its dimension."""
    found: Axis | None = None
    for k in reversed(range(len(domain))):
        found = ring(ranges, (), k, None if found is None else found.size - 1, _TRIES) or found
    return found
