"""Choices of a finished search, in the form shown by the stages of its passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from timerl_nb.compiler.ir.recorded_pass_decisions import Candidate, Forecast, PassChoice
from timerl_nb.compiler.passes.rematerialization.rematerialize import Rematerialize
from timerl_nb.compiler.passes.tiling.incrementalize_reductions import Incrementalize
from timerl_nb.compiler.passes.vectorization.vectorize import STRATEGIES, Vectorize
from timerl_nb.driver.compiling.compile_decision import Decision
from timerl_nb.driver.search.decision_graphs import DecisionGraphs

Tried = Mapping[Decision, Forecast | str]

_FOR_SPEED: Final = "for speed"  # left to the passes


def explain_choices(
    graphs: DecisionGraphs, tried: Tried, budget: int, taken: Decision
) -> dict[str, tuple[PassChoice, ...]]:
    """Return the choices of each pass, with the forecast of each candidate.

    Args:
        graphs: the decisions of the program.
        tried: the forecast of each examined decision, or a reason against it.
        budget: device bytes.
        taken: the chosen decision.
    """
    found = tried.get(taken)
    fits = isinstance(found, Forecast) and found.needed <= budget
    why = f"nothing fits {budget:,} bytes, and it needs the least memory"
    if fits:
        why = f"it is the fastest candidate within {budget:,} bytes"

    def choose(
        what: str, docs: Mapping[str, str], of: Mapping[str, list[Decision]], name_taken: str
    ) -> PassChoice:
        # a candidate's forecast is that of its best decision
        found = [
            Candidate(
                name,
                doc,
                known=_best_forecast(tried, budget, [taken] if name == name_taken else of[name]),
            )
            for name, doc in docs.items()
        ]
        return PassChoice(
            what, tuple(found), next(one for one in found if one.name == name_taken), why
        )

    vectorize: list[PassChoice] = []
    for k, dim in enumerate(graphs.dims):
        strategies = {
            strategy: STRATEGIES[strategy]
            for strategy in STRATEGIES
            if strategy in graphs.strategies
        }
        of = {
            strategy: [one for one in tried if one.strategies[k][1] == strategy]
            for strategy in strategies
        }
        vectorize.append(
            choose(f"vectorize over {dim.name}", strategies, of, taken.strategies[k][1])
        )
    named = {None: _FOR_SPEED, False: "keep", True: "recompute"}
    docs = {"keep": "store all values of acting", "recompute": "recompute every possible value"}
    made = {named[strategy]: docs[named[strategy]] for strategy in graphs.recompute}
    if taken.recompute is None:
        made[_FOR_SPEED] = "recompute cheap values"
    of = {n: [one for one in tried if named[one.recompute] == n] for n in made}
    recompute = choose("keep or recompute", made, of, named[taken.recompute])
    like = replace(taken, blocks=(), swap=False)
    near = [one for one in tried if replace(one, blocks=(), swap=False) == like]
    near.sort(key=lambda one: one.blocks or ())
    cuts = {_blocks_text(one): one.blocks_doc for one in near}
    of = {name: [one for one in near if _blocks_text(one) == name] for name in cuts}
    blocks = choose("incrementalize", cuts, of, _blocks_text(taken))
    return {
        Vectorize.name: tuple(vectorize),
        Rematerialize.name: (recompute,),
        Incrementalize.name: (blocks,),
    }


def _best_forecast(tried: Tried, budget: int, decisions: Iterable[Decision]) -> Forecast | str:
    found = [tried[one] for one in decisions]
    able = [one for one in found if isinstance(one, Forecast)]
    if not able:
        return str(found[0]) if found else "not examined: it cannot be faster, or isl gave up"
    fitting = [one for one in able if one.needed <= budget]
    if fitting:
        return min(fitting, key=lambda one: one.seconds)
    return min(able, key=lambda one: one.needed)


def _blocks_text(one: Decision) -> str:
    if one.blocks is None:
        return _FOR_SPEED
    return ", ".join(f"{name}: {size}" for name, size in one.blocks) or "whole"
