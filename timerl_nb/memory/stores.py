"""Store kinds: where the values of a tensor are kept, chosen by when they live and how they are read.

| kind | holds | chosen where |
|---|---|---|
| slot | one value | no two are ever live at once |
| ring | `size` values, by the position modulo `size` along one dimension | no two of one place are |
| point | a map from points to values | nothing smaller holds them |

All of it is decided under actual bounds from the exact moments at which values are born and die, so
that a size is proved, not guessed: a place is written only after what it held has died.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from timerl_nb.memory.timeline import Span
from timerl_nb.symbolic.domain import Domain

Array = np.ndarray[Any, np.dtype[Any]]
StoreKind = Literal["slot", "ring", "point"]


@dataclass(frozen=True)
class Store:
    """Where a tensor's values are kept, and why there.

    Attributes:
        nbytes: the bytes of one value.
        most: how many values live at once at most.
        lifetime: the name of the values' lifetime.
        along: the dimension of a ring.
        size: the places of a ring.
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

    def __str__(self) -> str:
        held = "1 value" if self.most == 1 else f"at most {self.most:,} values"
        return f"{self.name}: {self.shape}, {held} of {self.nbytes:,} bytes ({self.why})"

    @property
    def shape(self) -> str:
        """The kind, with the size where there is one."""
        return f"ring of {self.size} along {self.along}" if self.kind == "ring" else self.kind

    def key(self, point: tuple[int, ...]) -> Any:
        """Under which key the store holds the value of a point."""
        if self.kind == "slot":
            return 0
        if self.kind == "ring":
            return point[self.domain.index(self.along)] % self.size
        return point[0] if len(point) == 1 else point


@dataclass(frozen=True)
class Choice:
    """A kind with its dimension and size, and the reason."""

    kind: StoreKind
    why: str
    along: str = ""
    size: int = 1


def choose(span: Span, domain: Domain, *, smallest: bool) -> Choice:
    """The smallest store that holds all values while they live.

    Args:
        smallest: False keeps everything in point maps.
    """
    if not smallest:
        return Choice("point", "the option stores is 'point'")
    if span.most_at_once <= 1:
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
        limit = min(extent - 1, span.most_at_once + _MORE, found[1] - 1 if found else extent)
        for size in range(span.most_at_once, limit + 1):
            if _apart(points[:, k] % size, born, dies):
                found = domain[k], size
                break
    return found


def _apart(place: Array, born: Array, dies: Array) -> bool:
    """Whether values of the same place never live at once; all in the order of their birth.

    A value that is born while another is read for the last time meets it: the operands and the
    outputs of a kernel are there together.
    """
    order = np.argsort(place, kind="stable")
    same = place[order][1:] == place[order][:-1]
    meets = born[order][1:] <= dies[order][:-1]
    return not bool((same & meets).any())
