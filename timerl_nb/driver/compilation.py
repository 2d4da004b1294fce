"""Finished compilation: an immutable value with the request and every stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from timerl_nb.base.errors import Origin, warn
from timerl_nb.base.options import Options
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.passes.pass_pipeline import Pipeline
from timerl_nb.driver.compile_request import CompileRequest
from timerl_nb.driver.compiling.compile_pipeline import Front
from timerl_nb.driver.compiling.pass_selection import pipeline
from timerl_nb.driver.program_warnings import find_warnings
from timerl_nb.driver.search.measured_plan_tuning import Tuning
from timerl_nb.driver.stage_artifacts import StageArtifacts
from timerl_nb.driver.stages import UNOBSERVED, CompileObserver, Stage, Stages


@dataclass(frozen=True, eq=False)
class Compilation(StageArtifacts):
    """The stages compiled from one request.

    Attributes:
        request: the input, with the options found by tuning if it ran.
        front: the passes and the schedule.
        stages: all stages in order, by name.
        tuning: the measurements behind the options; None without `tune`.
    """

    request: CompileRequest
    front: Front
    stages: Stages
    tuning: Tuning | None = None

    @property
    def bounds(self) -> dict[str, int]:
        return self.request.bounds

    @property
    def options(self) -> Options:
        return self.request.options

    @property
    def owner(self) -> Context:
        """The context of the graph's symbols."""
        return self.request.owner

    @property
    def source(self) -> tuple[Stage, ...]:
        """The stages before the passes."""
        return self.stages["source"], self.stages["pdg"]

    @property
    def pipeline(self) -> Pipeline:
        """The passes that ran, in order."""
        dynamic, decision = bool(self.pdg.ends), self.front.decision
        return pipeline(self.options, self.bounds, decision, dynamic=dynamic)

    @cached_property
    def warnings(self) -> list[tuple[str, Origin | None]]:
        """Avoidable costs of time or memory, each with the user's line if there is one."""
        return find_warnings(self, self.front, self.options)

    def issue_warnings(self) -> None:
        for text, origin in self.warnings:
            warn(text, origin=origin)


def compile_stages(
    request: CompileRequest,
    source: tuple[Stage, ...],
    front: Front | None = None,
    observer: CompileObserver = UNOBSERVED,
    *,
    least: bool = True,
) -> Compilation:
    """Run all stages after the source.

    Args:
        request: the input.
        source: the stages before the passes.
        front: passes and a schedule that also hold under these bounds; None to run the passes.
        observer: receives every new stage, in order.
        least: if nothing fits the budget, report the plan with the lowest memory.

    Raises:
        BudgetError: nothing fits the budget.
        ScheduleError: no valid order of execution exists.
    """
    compiler, options, bounds = request.compiler, request.options, request.bounds
    if front is None:
        front = compiler.compile_front(options, bounds, observer, least=least)
    else:
        front = compiler.with_forecast_source(front, options, bounds)
    back = compiler.compile_back(front, options, bounds, observer)
    return Compilation(request, front, Stages((*source, *front.stages, *back)))
