"""Decisions for open options, and XLA's memory figures for them."""

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
    """A choice for every open option; None leaves the choice to the passes, which optimise time.

    Attributes:
        strategies: vectorisation strategy of each sequential dimension (`STRATEGIES`).
        recompute: whether every possible result of acting is recomputed, or none.
        blocks: block sizes by dimension.
        swap: whether values may be moved to the host.
        changed: options other than the user's, if nothing else fits the budget.
    """

    strategies: tuple[tuple[str, str], ...] = ()
    recompute: bool | None = None
    blocks: tuple[tuple[str, int], ...] | None = None
    swap: bool = True
    changed: Changed = ()

    @property
    def blocks_doc(self) -> str:
        """The block sizes as text."""
        if self.blocks is None:
            return "the fastest size"
        sizes = (f"blocks of {size} along {name}" for name, size in self.blocks)
        return ", ".join(sizes) or "no blocks"

    @property
    def changed_text(self) -> str:
        """The changed options, in the user's syntax."""
        return ", ".join(f"{name}={value!r}" for name, value in self.changed)

    def __str__(self) -> str:
        text = [f"{strategy} over {name}" for name, strategy in self.strategies]
        text += ["recomputed"] if self.recompute else []
        text += [self.blocks_doc] if self.blocks != () else []
        text += ["waiting on the host"] if self.swap else []
        text += [self.changed_text] if self.changed else []
        return ", ".join(text) or "unchanged"


# Excess of XLA's figure over the estimate, by decision. The entry of None is a guess for all decisions
# without a figure of XLA.
Stated = tuple[tuple[Decision | None, int], ...]


def stated_beyond(decision: Decision, stated: Stated) -> int:
    """Return the excess of a decision's memory over the estimate, by XLA's figures.

    For another block size, the excess is scaled in proportion to the size.
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
    """Result of a search.

    Attributes:
        decision: the chosen decision.
        choices: the choices of each pass, by name.
        seconds: the duration of the search.
        plan: the memory plan of the decision, if it is still in memory.
    """

    decision: Decision
    choices: Mapping[str, tuple[PassChoice, ...]]
    seconds: float = 0.0
    plan: MemoryPlan | None = None
