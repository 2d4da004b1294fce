"""Rematerialisation: what acting made is computed again block by block, or kept until it is used.

Values that are kept along a dimension go to memory and come back. Where learning runs in blocks, they
can be computed again from what is kept anyway (`recompute`), in the cache. `bandwidth_model` says what either way
costs;
what takes less memory is done where it takes little more time. (The paper leaves
it open: 000_9a2364bc51ddf94b.txt §9.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from timerl_nb.base.machine_model import Machine
from timerl_nb.base.options import Blocks
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Rewritten, chain, identity_rewrite
from timerl_nb.compiler.ir.recorded_pass_decisions import Candidate, PassChoice
from timerl_nb.compiler.passes.pass_pipeline import Bounds
from timerl_nb.compiler.passes.rematerialization.recompute_at_readers import (
    Recomputable,
    find_recomputable,
    recompute,
)
from timerl_nb.compiler.passes.tiling.reduction_block_size_model import BandwidthModel
from timerl_nb.compiler.passes.tiling.reduction_tiling import find_tiling
from timerl_nb.compiler.passes.vectorization.batching_rules import Refused
from timerl_nb.compiler.symbolic.dimensions import Dim

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
    """

    bounds: Bounds
    always: bool = False
    machine: Machine | None = None
    blocks: int | Blocks | None = None
    name: str = "rematerialize"

    def run(self, pdg: Pdg) -> Rewritten:
        total = identity_rewrite(pdg)
        for dim in pdg.dims:
            if dim.over is None and dim.step == 1:
                total = chain(total, self._rematerialize_along(total.pdg, dim))
        return total

    def _rematerialize_along(self, pdg: Pdg, dim: Dim) -> Rewritten:
        """One dimension: values that could be computed again, and those that are."""
        found = find_recomputable(pdg, dim)
        values, why = _in_blocks(pdg, found)
        if not values:
            return replace(identity_rewrite(pdg), refused={**found.why, **why})
        whole = recompute(pdg, found, values)
        ways = [
            Candidate("keep", "what acting made is kept", (("again", False),)),
            Candidate("again", "all that can be", (("again", True),)),
        ]
        if self.always:
            made, taken, reason = whole, ways[1], "the options say so"
        else:
            chosen, more = self._select_cheap(pdg, found, values)
            why |= more
            made = recompute(pdg, found, chosen) if chosen else identity_rewrite(pdg)
            if chosen and not self._in_blocks(made.pdg, dim):
                why |= dict.fromkeys(chosen, "learning is so small that it runs in no blocks")
                chosen, made = (), identity_rewrite(pdg)
            taken, reason = ways[0], "that is faster, or all of it is small"
            if chosen:
                doc = f"{', '.join(pdg[k].name for k in chosen)} computed again"
                taken = Candidate("mixed", doc)
                reason = "that takes less memory, and little more time if any"
                ways.append(taken)
        choice = PassChoice(f"keep or compute again along {dim.name}", tuple(ways), taken, reason)
        return replace(made, refused={**found.why, **why}, choices=(choice,))

    def _in_blocks(self, pdg: Pdg, dim: Dim) -> bool:
        """Whether blocks along a dimension follow."""
        if self.blocks is not None:
            return isinstance(self.blocks, int) or dim.name in dict(self.blocks)
        assert self.machine is not None
        return (
            BandwidthModel(pdg, dict(self.bounds), self.machine).block(find_tiling(pdg, dim))
            is not None
        )

    def _select_cheap(
        self, pdg: Pdg, found: Recomputable, values: tuple[int, ...]
    ) -> tuple[tuple[int, ...], dict[int, str]]:
        """Those of the values that cost about as much to compute again, and why not the others."""
        if self.machine is None:
            return (), dict.fromkeys(values, "there is room for it, and its memory is near")
        model = BandwidthModel(pdg, dict(self.bounds), self.machine)
        allowed = SPENT * (
            model.computing(pdg.ops) + sum(model.storage_seconds(k, found.dim) for k in values)
        )
        chosen: tuple[int, ...] = ()
        why: dict[int, str] = {}
        for op_id in values:
            kept = model.stored_bytes(op_id, found.dim)
            ops = found.recomputed_operations(pdg, (*chosen, op_id)) - found.recomputed_operations(
                pdg, chosen
            )
            cost = model.computing(ops) - model.storage_seconds(op_id, found.dim)
            if kept < WORTH:
                why[op_id] = f"its {kept:,} bytes are not worth it"
            elif cost > allowed:
                why[op_id] = f"it saves {kept:,} bytes, and would take {cost:.2g} s more in all"
            else:
                chosen = (*chosen, op_id)
                allowed -= cost
        return chosen, why


def _in_blocks(pdg: Pdg, found: Recomputable) -> tuple[tuple[int, ...], dict[int, str]]:
    """The values of which, computed again, only blocks would be needed at a time."""
    values, why = found.values, dict[int, str]()
    while values:
        try:
            made = recompute(pdg, found, values)
        except Refused as refusal:
            return (), dict.fromkeys(values, str(refusal))
        tiling = find_tiling(made.pdg, found.dim)
        whole = {k for k in values if not set(made.ids[k]) & set(tiling.axes)}
        if not whole:
            return values, why
        why |= dict.fromkeys(whole, "somebody needs it at all points at once")
        values = tuple(k for k in values if k not in whole)
    return (), why
