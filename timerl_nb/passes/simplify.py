"""Simplification: dead and duplicate code, constant folding, algebra, broadcasts, factors of sums."""

from __future__ import annotations

from dataclasses import dataclass

from timerl_nb.ir.pdg import Pdg
from timerl_nb.ir.rewrite import Edit, Rewritten
from timerl_nb.passes.algebra import RULES
from timerl_nb.passes.factors import lift_factors
from timerl_nb.passes.rules import apply_rules, remove_dead, remove_duplicates
from timerl_nb.passes.unused import restrict_to_needed


@dataclass(frozen=True)
class Simplify:
    """Dead and duplicate code, constant folding, algebra, factors of sums, unused points."""

    name: str = "simplify"

    def run(self, pdg: Pdg) -> Rewritten:
        edit = Edit(pdg)
        remove_dead(edit)
        apply_rules(edit, RULES)
        remove_duplicates(edit)
        lift_factors(edit)
        apply_rules(edit, RULES)
        remove_duplicates(edit)
        remove_dead(edit)
        restrict_to_needed(edit)
        return edit.finish()
