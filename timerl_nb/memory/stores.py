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
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from timerl_nb.memory.timeline import Span
from timerl_nb.symbolic.domain import Domain

Array = np.ndarray[Any, np.dtype[Any]]
StoreKind = Literal["slot", "ring", "block", "point"]


@dataclass(frozen=True)
class Store:
    """Where a tensor's values are kept, and why there.

    Attributes:
        nbytes: the bytes of one value.
        most: how many values (or blocks) live at once at most.
        lifetime: the name of the values' (or blocks') lifetime.
        along: the dimension of a ring or block.
        size: the places of a ring, the rows of a block.
        first: the coordinate of a block's first row.
    """

    name: str
    kind: StoreKind
    domain: Domain
    nbytes: int
    most: int
    lifetime: str
    why: str
    along: str = ""
    size: int = 1
    first: int = 0

    def __str__(self) -> str:
        what = "block" if self.kind == "block" else "value"
        held = f"1 {what}" if self.most == 1 else f"at most {self.most:,} {what}s"
        return f"{self.name}: {self.shape}, {held} of {self.unit:,} bytes ({self.why})"

    @property
    def shape(self) -> str:
        """The kind, with the size where there is one."""
        sized = self.kind in ("ring", "block")
        return f"{self.kind} of {self.size} along {self.along}" if sized else self.kind

    @property
    def unit(self) -> int:
        """The bytes that come and go together: a value's, or a block's."""
        return self.nbytes * self.size if self.kind == "block" else self.nbytes

    @property
    def position(self) -> int:
        """The position in the domain of the dimension of a ring or block."""
        return self.domain.index(self.along)

    def key(self, point: tuple[int, ...]) -> Any:
        """Under which key the store holds the value of a point, or the block that it lies in."""
        if self.kind == "block":
            point = tuple(p for k, p in enumerate(point) if k != self.position)
        if self.kind == "slot" or (self.kind == "block" and self.most <= 1):
            return 0
        if self.kind == "ring":
            return point[self.position] % self.size
        return point[0] if len(point) == 1 else point

    def value(self, held: Mapping[Any, Any], point: tuple[int, ...]) -> Any:
        """The value of a point in the store's contents."""
        found = held[self.key(point)]
        return found[point[self.position] - self.first] if self.kind == "block" else found


@dataclass(frozen=True)
class Choice:
    """A kind with its dimension and size, and the reason."""

    kind: StoreKind
    why: str
    along: str = ""
    size: int = 1
    first: int = 0


def choose(span: Span, domain: Domain, *, smallest: bool) -> Choice:
    """The smallest store that holds all values while they live.

    Args:
        smallest: False keeps everything in point maps.
    """
    if not smallest:
        return Choice("point", "the option stores is 'point'")
    if span.lives.most_at_once <= 1:
        return Choice("slot", "never two live values")
    ring = _ring(span, domain)
    if ring is None:
        return Choice("point", "no ring shorter than a dimension keeps live values apart")
    along, size = ring
    return Choice("ring", f"live values never share {along} % {size}", along, size)


# Beyond the number of live values, few sizes are worth trying: a ring that needs more is sparse.
_MORE = 3


def _ring(span: Span, domain: Domain) -> tuple[str, int] | None:
    """The dimension and size of the smallest ring, where one is shorter than its dimension."""
    by_birth = np.argsort(span.born, kind="stable")
    points, born, dies = span.points[by_birth], span.born[by_birth], span.dies[by_birth]
    found: tuple[str, int] | None = None
    for k in reversed(range(len(domain))):
        extent = int(np.ptp(points[:, k])) + 1
        limit = min(extent - 1, span.lives.most_at_once + _MORE, found[1] - 1 if found else extent)
        for size in range(span.lives.most_at_once, limit + 1):
            if _apart(points[:, k] % size, size, born, dies):
                found = domain[k], size
                break
    return found


def by_place(place: Array, count: int) -> Array:
    """The order of values by their places, of which there are so many, and then as they are given."""
    # NumPy sorts short numbers in one turn for each of their bytes
    return np.argsort(place.astype(np.uint16) if count <= 1 << 16 else place, kind="stable")


def _apart(place: Array, count: int, born: Array, dies: Array) -> bool:
    """Whether values of the same place never live at once; all in the order of their birth.

    A value that is born while another is read for the last time meets it: the operands and the
    outputs of a kernel are there together.
    """
    order = by_place(place, count)
    place, born, dies = place[order], born[order], dies[order]
    return not bool(((born[1:] <= dies[:-1]) & (place[1:] == place[:-1])).any())
