"""Lifting of moving windows: their sums and extrema become one batch operation.

A discounted sum of r[t:T] at every t, inside a loop over t, reads T values at each of T points. Outside the
loop of r, one sliding sum over all of r computes the same values (TimeRL §5.2).
Inside that loop (n-step returns during acting), lifting would delay learning until all of r exists, so it
is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit, Rewritten, chain, identity_rewrite
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.passes.lifting.prefix_accumulation import step_by_step
from timerl_nb.compiler.passes.vectorization.batching_rules import Refused
from timerl_nb.compiler.passes.vectorization.operations_kept_in_loops import Acting
from timerl_nb.compiler.passes.vectorization.vectorize import choose, vectorize_over
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import Slice


@dataclass(frozen=True)
class Windows:
    """The pass `windows`: turns reductions of moving windows into batch operations.

    Attributes:
        acting: finds operations in the loops of acting; None without trials.
    """

    acting: Acting | None = None
    name: str = "windows"

    def run(self, pdg: Pdg) -> Rewritten:
        total, acting = identity_rewrite(pdg), self.acting or Acting()
        for dim in pdg.dims.bounded:
            windows = {op.id for op in total.pdg if _is_window(op, dim)}
            if not windows:
                continue
            others = [op.id for op in total.pdg if op.id not in windows]
            kept = [*others, *acting.operations_over(dim.name)]
            chosen, why = choose(total.pdg, dim, kept)
            refused = {**total.refused, **{k: reason for k, reason in why.items() if k in windows}}
            if chosen:
                made = vectorize_over(total.pdg, dim, chosen)
                acting = acting.map_to_rewritten(total.pdg, made)
                total = chain(total, made)
            total = replace(total, refused=refused)
        return _step_by_step(total)

    def candidate_dims(self, pdg: Pdg) -> list[Dim]:
        """Return the dimensions of moving windows."""
        return [d for d in pdg.dims.bounded if any(_is_window(op, d) for op in pdg)]


def _step_by_step(total: Rewritten) -> Rewritten:
    """Replace the remaining prefixes and suffixes in loops by recurrences."""
    edit = Edit(total.pdg)
    refused = dict(total.refused)
    for op in total.pdg:
        for dim in total.pdg.dims:
            if not _is_window(op, dim):
                continue
            try:
                step_by_step(edit, op, dim)
                break
            except Refused as reason:
                before = f"{refused[op.id]}; " if op.id in refused else ""
                refused[op.id] = f"{before}it reads its whole slice: {reason}"
    total = replace(total, refused=refused)
    return chain(total, edit.finish()) if edit.steps else total


def _is_window(op: Op, dim: Dim) -> bool:
    """Whether the operation reduces a slice that moves with the dimension."""
    return op.kind in ("sum", "prod", "max", "min", "discounted_sum") and any(
        isinstance(e, Slice) and dim.name in e.symbols for e in op.inputs[0].index
    )
