"""Decisions that options leave open, and the memory that XLA states for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from timerl_nb.compiler.ir.recorded_pass_decisions import PassChoice
from timerl_nb.compiler.memory.memory_plan import MemoryPlan

# Values of options, by name.
Changed = tuple[tuple[str, bool | tuple[str, ...]], ...]


@dataclass(frozen=True)
class Decision:
    """A choice for everything that options leave open; None leaves it to the passes, for speed.

    Attributes:
        ways: by sequential dimension, how it is vectorised (`WAYS`).
        again: recompute all results of acting that can be recomputed, or none.
        blocks: sizes of blocks by dimension.
        swap: values may be moved to the host.
        changed: options other than the program's, if no other decision fits the budget.
    """

    ways: tuple[tuple[str, str], ...] = ()
    again: bool | None = None
    blocks: tuple[tuple[str, int], ...] | None = None
    swap: bool = True
    changed: Changed = ()

    @property
    def blocks_doc(self) -> str:
        """Text of its block sizes."""
        if self.blocks is None:
            return "what is fastest"
        sizes = (f"blocks of {size} along {name}" for name, size in self.blocks)
        return ", ".join(sizes) or "no blocks"

    @property
    def changed_text(self) -> str:
        """The changed options as a user writes them."""
        return ", ".join(f"{name}={value!r}" for name, value in self.changed)

    def __str__(self) -> str:
        text = [f"{way} over {name}" for name, way in self.ways]
        text += ["computed again"] if self.again else []
        text += [self.blocks_doc] if self.blocks != () else []
        text += ["waiting on the host"] if self.swap else []
        text += [self.changed_text] if self.changed else []
        return ", ".join(text) or "as it is"


# By decision, the excess of XLA's figure over the estimate; the entry of None is a guess
# for all decisions without a figure of XLA.
Stated = tuple[tuple[Decision | None, int], ...]


def stated_beyond(decision: Decision, stated: Stated) -> int:
    """The excess of a decision's memory over the estimate, by XLA's figures.

    Of a decision with blocks of another size, the bytes are taken to grow with the size.
    """
    found, guess = 0, 0
    for one, nbytes in stated:
        if one == decision:
            return nbytes
        if one is None:
            guess = nbytes
            continue
        sizes, others = dict(decision.blocks or ()), dict(one.blocks or ())
        alike = sizes and sizes.keys() == others.keys()
        if alike and replace(one, blocks=decision.blocks, swap=decision.swap) == decision:
            found = max(found, nbytes * prod(sizes.values()) // prod(others.values()))
    return found or guess


@dataclass(frozen=True)
class SearchResult:
    """Result of a search: the decision, the choices by pass, and the seconds of the search.

    `plan` is the decision's memory plan, if it is still in memory.
    """

    decision: Decision
    choices: Mapping[str, tuple[PassChoice, ...]]
    seconds: float = 0.0
    plan: MemoryPlan | None = None
