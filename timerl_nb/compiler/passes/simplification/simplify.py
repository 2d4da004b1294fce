"""Simplification: dead and duplicate code, constant folding, algebra, broadcasts, factors of sums."""

from __future__ import annotations

from dataclasses import dataclass

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit, Rewritten
from timerl_nb.compiler.passes.simplification.algebra_rules import RULES
from timerl_nb.compiler.passes.simplification.hoist_factors import hoist_factors
from timerl_nb.compiler.passes.simplification.local_rules_cse_dce import (
    apply_rules,
    remove_dead,
    remove_duplicates,
)
from timerl_nb.compiler.passes.simplification.restrict_domains import restrict_domains


@dataclass(frozen=True)
class Simplify:
    """Pass for dead and duplicate code, constant folding, algebra, factors of sums, and unneeded points."""

    name: str = "simplify"

    def run(self, pdg: Pdg) -> Rewritten:
        edit = Edit(pdg)
        remove_dead(edit)
        apply_rules(edit, RULES)
        remove_duplicates(edit)
        hoist_factors(edit)
        apply_rules(edit, RULES)
        remove_duplicates(edit)
        remove_dead(edit)
        restrict_domains(edit)
        return edit.finish()
