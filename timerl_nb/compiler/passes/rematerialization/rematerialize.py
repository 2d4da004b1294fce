"""Rematerialisation: values of acting are recomputed block by block in learning, or stored.

Values stored along a dimension are written to memory and read back. If learning is tiled, they can be
recomputed in the cache from other stored values (`recompute_at_readers`). A bandwidth model estimates both
costs; the option with less memory is taken if it is not much slower. (The paper leaves this open:
TimeRL §9.)
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

SPENT = 0.25  # largest share of a run's time to spend on saving memory
WORTH = 1 << 23  # smallest number of bytes for recomputation


@dataclass(frozen=True)
class Rematerialize:
    """The pass `rematerialize`: recomputes values for learning instead of storing them.

    Attributes:
        bounds: actual bounds.
        always: whether to recompute every possible value, instead of cheap ones only.
        machine: the machine model for storage costs; None if they are unknown or zero.
        blocks: the user's block sizes of reductions; None if they are chosen.
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
        """Process one dimension."""
        found = find_recomputable(pdg, dim)
        values, why = _in_blocks(pdg, found)
        if not values:
            return replace(identity_rewrite(pdg), refused={**found.why, **why})
        whole = recompute(pdg, found, values)
        strategies = [
            Candidate("keep", "store all values of acting", (("recompute", False),)),
            Candidate("recompute", "recompute every possible value", (("recompute", True),)),
        ]
        if self.always:
            made, taken, reason = whole, strategies[1], "the options require it"
        else:
            chosen, more = self._select_cheap(pdg, found, values)
            why |= more
            made = recompute(pdg, found, chosen) if chosen else identity_rewrite(pdg)
            if chosen and not self._in_blocks(made.pdg, dim):
                why |= dict.fromkeys(chosen, "learning is too small for blocks")
                chosen, made = (), identity_rewrite(pdg)
            taken, reason = strategies[0], "that is faster, or all values are small"
            if chosen:
                doc = f"recompute {', '.join(pdg[k].name for k in chosen)}"
                taken = Candidate("mixed", doc)
                reason = "that saves memory at little or no cost in time"
                strategies.append(taken)
        choice = PassChoice(f"keep or recompute along {dim.name}", tuple(strategies), taken, reason)
        return replace(made, refused={**found.why, **why}, choices=(choice,))

    def _in_blocks(self, pdg: Pdg, dim: Dim) -> bool:
        """Whether reductions along a dimension will be tiled."""
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
        """Return the cheap values, and the reasons against recomputing the others."""
        if self.machine is None:
            return (), dict.fromkeys(values, "memory suffices, and storage is cheap")
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
                why[op_id] = f"it would save {kept:,} bytes and take {cost:.2g} s more in all"
            else:
                chosen = (*chosen, op_id)
                allowed -= cost
        return chosen, why


def _in_blocks(pdg: Pdg, found: Recomputable) -> tuple[tuple[int, ...], dict[int, str]]:
    """Return the values with readers in blocks, after their recomputation."""
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
        why |= dict.fromkeys(whole, "an operation needs it at all points together")
        values = tuple(k for k in values if k not in whole)
    return (), why
