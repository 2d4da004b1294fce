"""Execution of the passes and the scheduler. The result is usually valid for all bounds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_verifier import verify
from timerl_nb.compiler.ir.recorded_pass_decisions import Ask, PassChoice
from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree
from timerl_nb.compiler.isl.operation_limit import limit_isl_work
from timerl_nb.compiler.passes.dynamic_bound_expansion import DynamicBounds
from timerl_nb.compiler.passes.pass_pipeline import Pipeline
from timerl_nb.compiler.passes.rematerialization.rematerialize import Rematerialize
from timerl_nb.compiler.passes.tiling.incrementalize_reductions import (
    Incrementalize,
)
from timerl_nb.compiler.passes.vectorization.vectorize import Vectorize
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.fallback_schedule import Parts, schedule_by_parts_if_needed
from timerl_nb.compiler.scheduling.infeasible_schedule_error import explain_cycle
from timerl_nb.compiler.scheduling.vectorization_trials import Trials
from timerl_nb.driver.compiling.compile_decision import Decision, SearchResult
from timerl_nb.driver.stages import CompileObserver, Stage


@dataclass(frozen=True, eq=False)
class Front:
    """The results of passes and scheduling, valid for all bounds or for some values of a few bounds."""

    stages: tuple[Stage, ...]
    constraints: Constraints
    tree: ScheduleTree
    parts: Parts | None  # set if isl has reached its work limit
    seconds: float
    known: bool = False  # whether a trial has found the schedule already
    decision: Decision = field(default_factory=Decision)
    search_choices: tuple[PassChoice, ...] = ()  # choices of the search for passes without a stage
    beyond: int = 0  # excess of XLA's figure over the estimate, in bytes

    @property
    def bounds(self) -> Mapping[str, int]:
        """Bounds with a fixed value in the schedule; empty if it holds for all bounds."""
        return self.tree.dims.values

    def with_forecast_source(self, ask: Ask) -> Front:
        """Return the same stages with candidates that request their own forecasts."""
        return replace(self, stages=tuple(stage.with_forecast_source(ask) for stage in self.stages))

    @property
    def saved_by(self) -> dict[str, str]:
        """Memory savings of the passes, each with its reason."""
        found: dict[str, str] = {}
        for stage in self.stages:
            taken = [one for one in stage.choices if one.taken is not one.candidates[0]]
            why = next((one.why for one in (*taken, *stage.choices)), "the options require it")
            if stage.name == Vectorize.name:
                found |= {f"{one.what}: {one.taken.name}": one.why for one in taken}
            if stage.name == Rematerialize.name and stage.steps:
                found["recomputed"] = why
            if stage.name == Incrementalize.name and stage.rewritten is not None:
                dims = stage.rewritten.pdg.dims
                for cut in (dim for dim in dims if dim.step != 1):
                    along = next(dim.name for dim in dims if dim.bound == cut.bound)
                    found[f"in blocks of {cut.step} along {along}"] = why
        if self.decision.changed:
            found[self.decision.changed_text] = "nothing fits the budget without it"
        return found


def compile_front(
    pdg: Pdg,
    passes: Pipeline,
    trials: Trials,
    ceiling: int,
    observer: CompileObserver,
    decided: SearchResult,
) -> Front:
    """Run the passes and the scheduler; `observer` receives every stage immediately."""
    with explain_cycle(pdg):
        return _front(pdg, passes, trials, ceiling, observer, decided)


def _front(
    pdg: Pdg,
    passes: Pipeline,
    trials: Trials,
    ceiling: int,
    observer: CompileObserver,
    decided: SearchResult,
) -> Front:
    """Run the passes, verify the graph after each one, and find a schedule; see `compile_front`."""
    source = pdg
    stages: list[Stage] = []
    searching = next((one.name for one in passes if decided.choices.get(one.name)), "")
    for one in passes:
        start, known = time.perf_counter(), trials.has_run(one, pdg)
        if one.name == searching:  # the duration of the search counts towards this pass
            start, known = start - decided.seconds, False
        with limit_isl_work(f"the pass {one.name}"):
            made = trials.run(one, pdg)
        made = replace(made, choices=decided.choices.get(one.name, made.choices))
        seconds = time.perf_counter() - start
        verify(made.pdg, pdg)
        summary = f"{len(pdg):,} -> {format_count(len(made.pdg), 'operation')}, {format_count(len(made.steps), 'step')}"
        if one.name in ("fuse", "separate"):
            summary = f"{format_count(len(pdg), 'operation')} -> {format_count(_kernels(made.pdg), 'kernel')}"
        stages.append(Stage(one.name, made.pdg, seconds, summary, made, pdg, known))
        observer.stage(stages[-1])
        pdg = made.pdg
        if one.name == DynamicBounds.name:
            source = pdg
    start = time.perf_counter()
    found = trials.lookup(pdg)
    is_known, parts = found is not None, None
    if found is None:
        constraints = Constraints(pdg)
        with limit_isl_work("checking the schedule"):
            tree, parts = schedule_by_parts_if_needed(constraints, ceiling, source)
        found = constraints, tree
    seconds, decision = time.perf_counter() - start, decided.decision
    names = {stage.name for stage in stages}
    beside = (made for name, made in decided.choices.items() if name not in names)
    search_choices = tuple(one for made in beside for one in made if len(one.candidates) > 1)
    return Front(tuple(stages), *found, parts, seconds, is_known, decision, search_choices)


def _kernels(pdg: Pdg) -> int:
    return sum(op.kind == "dataflow" for op in pdg)
