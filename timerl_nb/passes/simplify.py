"""Simplification: dead and duplicate code, constant folding, algebra, broadcasts, factors of sums."""

from __future__ import annotations

from dataclasses import dataclass

from timerl_nb.ir.pdg import Pdg
from timerl_nb.ir.rewrite import Edit, Rewritten
from timerl_nb.passes.algebra import RULES
from timerl_nb.passes.hoist_factors import hoist_factors
from timerl_nb.passes.restrict_domains import restrict_domains
from timerl_nb.passes.rules import apply_rules, remove_dead, remove_duplicates


@dataclass(frozen=True)
class Simplify:
    """Dead and duplicate code, constant folding, algebra, factors of sums, unused points."""

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
