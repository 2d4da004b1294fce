"""Rematerialisation: what acting made is computed again block by block, or kept until it is used.

Values that are kept along a dimension go to memory and come back. Where learning runs in blocks, they
can be computed again from what is kept anyway (`again`), in the cache. `traffic` says what either way
costs;
what takes less memory is done where it takes little more time. (The paper leaves
it open: 000_9a2364bc51ddf94b.txt §9.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from timerl_nb.config import Blocks
from timerl_nb.ir.choice import Candidate, Choice, Forecaster, cheapest
from timerl_nb.ir.pdg import Pdg
from timerl_nb.ir.rewrite import Rewritten, chain, unchanged
from timerl_nb.passes.again import Again, compute_again, find_again
from timerl_nb.passes.batch_rules import Refused
from timerl_nb.passes.cut import find_cut
from timerl_nb.passes.traffic import Machine, Traffic
from timerl_nb.symbolic.domain import Dim

SPENT = 0.25  # of a run: so much time may go into keeping less memory
WORTH = 1 << 23  # bytes that are worth computing something again


@dataclass(frozen=True)
class Rematerialize:
    """Values computed again where learning needs them, or kept.

    Attributes:
        bounds: actual bounds.
        always: compute again whatever can be; otherwise what costs no more.
        machine: what keeping costs; None where that is not known, or nothing.
        blocks: the block sizes that are given for the reductions; None where they are chosen.
        budget: device bytes; None for no limit.
        forecaster: says what a graph would cost.
    """

    bounds: Mapping[str, int]
    forecaster: Forecaster
    always: bool = False
    machine: Machine | None = None
    blocks: int | Blocks | None = None
    budget: int | None = None
    name: str = "rematerialize"

    def __hash__(self) -> int:
        return hash((self.always, self.budget, tuple(self.bounds.items()), self.forecaster))

    def run(self, pdg: Pdg) -> Rewritten:
        total = unchanged(pdg)
        for dim in pdg.dims:
            if dim.over is None and dim.step == 1:
                total = chain(total, self._along(total.pdg, dim))
        return total

    def _along(self, pdg: Pdg, dim: Dim) -> Rewritten:
        """One dimension: values that could be computed again, and those that are."""
        again = find_again(pdg, dim)
        values, why = _in_blocks(pdg, again)
        if not values:
            return replace(unchanged(pdg), refused={**again.why, **why})
        whole = compute_again(pdg, again, values)
        ways = [
            Candidate("keep", "what acting made is kept", lambda: pdg, self.forecaster),
            Candidate("again", "all that can be", lambda: whole.pdg, self.forecaster),
        ]
        if self.always:
            made, taken, reason = whole, ways[1], "the options say so"
        elif self.budget is not None and not _fits(ways[0], self.budget):
            taken, reason = cheapest(tuple(ways), self.budget)
            made = unchanged(pdg) if taken is ways[0] else whole
        else:
            chosen, more = self._cheap(pdg, again, values)
            why |= more
            made = compute_again(pdg, again, chosen) if chosen else unchanged(pdg)
            if chosen and not self._in_blocks(made.pdg, dim):
                why |= dict.fromkeys(chosen, "learning is so small that it runs in no blocks")
                chosen, made = (), unchanged(pdg)
            taken, reason = ways[0], "that is faster, or all of it is small"
            if chosen:
                doc = f"{', '.join(pdg[k].name for k in chosen)} computed again"
                taken = Candidate("mixed", doc, lambda: made.pdg, self.forecaster)
                reason = "that takes less memory, and little more time if any"
                ways.append(taken)
        choice = Choice(f"keep or compute again along {dim.name}", tuple(ways), taken, reason)
        return replace(made, refused={**again.why, **why}, choices=(choice,))

    def _in_blocks(self, pdg: Pdg, dim: Dim) -> bool:
        """Whether blocks along a dimension follow."""
        if self.blocks is not None:
            return isinstance(self.blocks, int) or dim.name in dict(self.blocks)
        assert self.machine is not None
        return Traffic(pdg, self.bounds, self.machine).block(find_cut(pdg, dim)) is not None

    def _cheap(
        self, pdg: Pdg, again: Again, values: tuple[int, ...]
    ) -> tuple[tuple[int, ...], dict[int, str]]:
        """Those of the values that cost about as much to compute again, and why not the others."""
        if self.machine is None:
            return (), dict.fromkeys(values, "there is room for it, and its memory is near")
        traffic = Traffic(pdg, self.bounds, self.machine)
        allowed = SPENT * (
            traffic.computing(pdg.ops) + sum(traffic.keeping(k, again.dim) for k in values)
        )
        chosen: tuple[int, ...] = ()
        why: dict[int, str] = {}
        for op_id in values:
            kept = traffic.kept(op_id, again.dim)
            ops = again.copied(pdg, (*chosen, op_id)) - again.copied(pdg, chosen)
            cost = traffic.computing(ops) - traffic.keeping(op_id, again.dim)
            if kept < WORTH:
                why[op_id] = f"its {kept:,} bytes are not worth it"
            elif cost > allowed:
                why[op_id] = f"it saves {kept:,} bytes, and would take {cost:.2g} s more in all"
            else:
                chosen = (*chosen, op_id)
                allowed -= cost
        return chosen, why


def _in_blocks(pdg: Pdg, again: Again) -> tuple[tuple[int, ...], dict[int, str]]:
    """The values of which, computed again, only blocks would be needed at a time."""
    values, why = again.values, dict[int, str]()
    while values:
        try:
            made = compute_again(pdg, again, values)
        except Refused as refusal:
            return (), dict.fromkeys(values, str(refusal))
        cut = find_cut(made.pdg, again.dim)
        whole = {k for k in values if not set(made.ids[k]) & set(cut.axes)}
        if not whole:
            return values, why
        why |= dict.fromkeys(whole, "somebody needs it at all points at once")
        values = tuple(k for k in values if k not in whole)
    return (), why


def _fits(candidate: Candidate, budget: int) -> bool:
    found = candidate.forecast
    return not isinstance(found, str) and found.peak <= budget and not found.swapped
