"""Compiler of one source graph: runs the stages, and caches each for other options and bounds.

Graphs, schedules and plans are immutable values, so they serve as cache keys. Restoring an earlier option
is free. Changing an option of one pass repeats that pass and the later stages
(docs/decisions/019-cache-keys.md).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from timerl_nb.base.errors import (
    CeilingError,
    ScheduleError,
    TimeRLError,
    VerificationError,
)
from timerl_nb.base.garbage_collection import disable_gc
from timerl_nb.base.lru_cache import Lru
from timerl_nb.base.options import Options
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_verifier import verify
from timerl_nb.compiler.memory.liveness.last_uses import KnownLifetimes
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.scheduling.infeasible_schedule_error import (
    dims_to_fix,
    persists,
    refuse_cycles,
)
from timerl_nb.compiler.scheduling.schedule_artifact import Schedule
from timerl_nb.compiler.scheduling.vectorization_trials import SEARCHED, Trials
from timerl_nb.compiler.symbolic.dimensions import bounds_text
from timerl_nb.driver.compiling.compilation_cache import CompilationCache
from timerl_nb.driver.compiling.compile_decision import Decision, Stated, stated_beyond
from timerl_nb.driver.compiling.compile_pipeline import Front, compile_front
from timerl_nb.driver.compiling.machine_dependent_options import (
    check_devices,
    device_limit,
    is_remade,
    machine_of,
    planner,
)
from timerl_nb.driver.compiling.memory_stage import make_memory_stage, planner_of, suggest_fit
from timerl_nb.driver.compiling.pass_selection import pipeline
from timerl_nb.driver.compiling.planned_program import PlannedProgram
from timerl_nb.driver.compiling.source_checks import check_reads, check_types
from timerl_nb.driver.search.memory_budget_search import Known, Search, key_of_plans
from timerl_nb.driver.stages import UNOBSERVED, CompileObserver, Listing, Stage
from timerl_nb.runtime.state.disk_cache import CacheEntry

MOST: Final = 16  # cached passes and schedules
POINTS: Final = 4_000_000  # cached plans, counted in executed points of about 150 bytes


class Compiler:
    """Compiler of one source graph, with cached stages.

    Args:
        pdg: the user's graph.
        siblings: compilers of the same graph with other generators of random bits, by generator.

    Raises:
        VerificationError: the graph is not well-formed.
    """

    def __init__(self, pdg: Pdg, siblings: dict[str, Compiler] | None = None) -> None:
        start = time.perf_counter()
        self.pdg = pdg
        self.siblings: dict[str, Compiler] = {} if siblings is None else siblings
        verify(pdg)
        self._refused: ScheduleError | None = None  # for all bounds
        try:
            refuse_cycles(pdg)
        except ScheduleError as error:
            self._refused = error
        self._verified = time.perf_counter() - start
        self._at: Lru[str, Compiler] = Lru(MOST)
        self._trials: dict[tuple[int, bool], Trials] = {}
        self._proved: Lru[str, float] = Lru(MOST)
        self._fronts: Lru[tuple[object, ...], Front] = Lru(MOST)
        self._asking: Lru[tuple[object, ...], Front] = Lru(MOST)
        self._cache = CompilationCache(pdg)
        # Shared by all searches: other budgets use plans of the same graphs.
        self._unswapped: Known = Lru(
            POINTS // 8, lambda plans: max(plans.points, POINTS // 8 // SEARCHED)
        )
        self._lifetimes = KnownLifetimes(SEARCHED)
        self._stated: dict[tuple[Options, str], Stated] = {}
        # The plan of the last search until its first use. Plans are large, so only one is stored.
        self._searched: tuple[object, MemoryPlan | None] = None, None
        # The key contains bounds as text: a ceiling equals its number, but has another text.
        self._plans: Lru[tuple[object, ...], PlannedProgram] = Lru(
            POINTS, lambda planned: max(planned.points, POINTS // MOST)
        )

    def source(self, bounds: Mapping[str, int]) -> tuple[Stage, Stage]:
        """Check the program, and return the stages before the passes.

        Raises:
            BoundsError: data arrays are too short.
            ReadError, BranchError: undefined reads, or branches with gaps or overlaps.
            ShapeError: the program uses 64-bit types, and JAX has them disabled.
        """
        check_types(self.pdg)
        listing, text = Listing(self.pdg), bounds_text(bounds)
        seconds = self._verified + self._proved.get(text, lambda: self._time_reads(bounds))
        return (
            Stage("source", listing, 0.0, format_count(len(listing.lines), "line")),
            Stage("pdg", self.pdg, seconds, f"{format_count(len(self.pdg), 'operation')}, {text}"),
        )

    def _time_reads(self, bounds: Mapping[str, int]) -> float:
        """Check the reads, and return the duration in seconds."""
        start = time.perf_counter()
        check_reads(self.pdg, bounds)
        return time.perf_counter() - start

    @disable_gc()
    def compile_front(
        self,
        options: Options,
        bounds: Mapping[str, int],
        observer: CompileObserver = UNOBSERVED,
        *,
        least: bool = True,
    ) -> Front:
        """Return the passes and the schedule.

        They usually hold for all bounds. Within a memory budget, they depend on the bounds. If no order of
        execution holds for all bounds, the scheduler tries these bounds alone.

        Args:
            options: the options.
            bounds: actual bounds, by name.
            observer: receives every stage, in order.
            least: if nothing fits the budget, return the stages of the decision with the lowest memory.

        Raises:
            BudgetError: nothing fits, and `least` is False.
            OptionError: there are fewer devices than requested.
            ScheduleError: no valid order exists, or isl reached its work limit.
        """
        try:
            if self._refused is not None:
                raise self._refused
            return self._compile_front(options, bounds, observer, least=least)
        except (ScheduleError, VerificationError) as error:
            is_final = isinstance(error, CeilingError) or self.pdg.dims.values
            if is_final or persists(self.pdg, error, bounds):
                raise
            return self._front_at(error, options, bounds, observer, least=least)

    def _front_at(
        self,
        refusal: TimeRLError,
        options: Options,
        bounds: Mapping[str, int],
        observer: CompileObserver,
        *,
        least: bool,
    ) -> Front:
        """Return the stages with some bounds fixed: a few bounds first, and finally all.

        Raises:
            ScheduleError: no order exists under these bounds either.
        """
        for names in dims_to_fix(self.pdg, bounds):
            dims = self.pdg.dims.with_values(names, bounds)
            key = bounds_text({d.bound: d.value for d in dims if d.value is not None})
            graph = Pdg(dims, self.pdg.ops, self.pdg.orders)
            try:
                at = self._at.get(key, lambda graph=graph: Compiler(graph))
                return at.compile_front(options, bounds, observer, least=least)
            except ScheduleError as error:
                refusal = error
            except VerificationError:
                pass
        raise refusal

    def _compile_front(
        self, options: Options, bounds: Mapping[str, int], observer: CompileObserver, *, least: bool
    ) -> Front:
        """Return passes and schedule for the options, from the caches or by a search within the budget."""
        check_devices(options)
        shown: list[Stage] = []

        def show(stage: Stage) -> None:
            shown.append(stage)
            observer.stage(stage)

        watching = CompileObserver(show, observer.candidate)
        limit, ceiling = device_limit(options), options.isl_operations
        trials = self._trials_of(options)
        passes_of = partial(pipeline, options, bounds, dynamic=bool(self.pdg.ends))

        def compile_uncorrected() -> Front:
            found = self._search(options, bounds, observer).find_decision(least=least)
            passes = passes_of(found.decision)
            front = compile_front(self.pdg, passes, trials, ceiling, watching, found)
            if found.plan is not None and front.known:  # otherwise the plan belongs to another tree
                self._searched = (front.tree, options, bounds_text(bounds)), found.plan
            return front

        def compile_corrected() -> Front:
            front = self._cache.get_front(options, bounds, stated, trials, compile_uncorrected)
            return replace(front, beyond=stated_beyond(front.decision, stated)) if stated else front

        # decisions within a budget also depend on the budget and the bounds
        passes, stated = passes_of(None).passes, self._stated_of(options, bounds)
        within = None
        if limit is not None:
            within = limit, bounds_text(bounds), options, machine_of(options), stated
        front = self._fronts.get((passes, ceiling, within), compile_corrected)
        for stage in front.stages[len(shown) :]:  # cached stages
            observer.stage(stage)
        return self.with_forecast_source(front, options, bounds)

    def with_forecast_source(
        self, front: Front, options: Options, bounds: Mapping[str, int]
    ) -> Front:
        """Return the same front with candidates that are forecast under the given options and bounds."""
        key = front, planner(options), bounds_text(bounds), machine_of(options)
        return self._asking.get(
            key, lambda: front.with_forecast_source(self._search(options, bounds).ask)
        )

    def correct(
        self, decision: Decision | None, options: Options, bounds: Mapping[str, int], beyond: int
    ) -> None:
        """Record the excess of XLA's figure over an estimate, for later searches under these options.

        Args:
            decision: the decision of the measured program; None for a guess about all other decisions.
            options: the options.
            bounds: actual bounds, by name.
            beyond: the excess in bytes.
        """
        known = dict(self._stated_of(options, bounds)) | {decision: beyond}
        self._stated[options.with_(device_memory=None), bounds_text(bounds)] = tuple(known.items())

    def excess_bytes(self, front: Front, options: Options, bounds: Mapping[str, int]) -> int:
        """Return the recorded excess of XLA's figure for a front's decision, or 0."""
        return dict(self._stated_of(options, bounds)).get(front.decision, 0)

    def _stated_of(self, options: Options, bounds: Mapping[str, int]) -> Stated:
        key = options.with_(device_memory=None), bounds_text(bounds)
        return self._stated.get(key, ()) if self._stated else ()

    def _search(
        self, options: Options, bounds: Mapping[str, int], observer: CompileObserver = UNOBSERVED
    ) -> Search:
        limit = device_limit(options)
        known = self._unswapped, self._lifetimes, self._stated_of(options, bounds)
        given = self.pdg, options, bounds, self._trials_of(options), limit, *known
        return Search(*given, observer=observer)

    def _trials_of(self, options: Options) -> Trials:
        ceiling, recompute = options.isl_operations, is_remade(options)
        return self._trials.setdefault((ceiling, recompute), Trials(ceiling, recompute=recompute))

    def cache_entry(self, what: str, options: Options, bounds: Mapping[str, int]) -> CacheEntry:
        """Return the disk cache entry for a measurement of the program."""
        return self._cache.entry(what, options, bounds, self._stated_of(options, bounds))

    @disable_gc()
    def compile_back(
        self,
        front: Front,
        options: Options,
        bounds: Mapping[str, int],
        observer: CompileObserver = UNOBSERVED,
    ) -> tuple[Stage, ...]:
        """Return the stages after scheduling, which depend on the bounds.

        Args:
            front: the passes and the schedule.
            options: the options.
            bounds: actual bounds, by name.
            observer: receives every stage, in order.

        Raises:
            BudgetError: the program needs more memory than the device has.
        """
        constraints = front.constraints
        schedule = Schedule(constraints, front.tree, bounds)
        summary = f"{format_count(len(constraints.points), 'statement')}, {format_count(len(constraints.validity), 'dependence')}"
        if front.parts is not None:
            summary += ", by parts"
        if front.bounds:
            summary += f", for {bounds_text(front.bounds)} alone"
        order = Stage("schedule", schedule, front.seconds, summary, known=front.known)
        observer.stage(order)
        stated, how = self._stated_of(options, bounds), planner_of(front, options)
        calls = self._cache.compiled_calls(constraints.pdg, options, bounds, stated)

        def plan() -> PlannedProgram:
            if calls is not None and how.lowered:
                calls.preload()
            return PlannedProgram(front, self._memory(front, options, bounds))

        planned = self._plans.get((front, bounds_text(bounds), how), plan)
        observer.stage(planned.memory)
        observer.stage(planned.loops)
        tile = planned.tile(options)
        tiled = () if tile is None else (tile,)
        for stage in tiled:
            observer.stage(stage)
        executable = planned.executable(options, calls)
        observer.stage(executable)
        return order, planned.memory, planned.loops, *tiled, executable

    def _memory(self, front: Front, options: Options, bounds: Mapping[str, int]) -> Stage:
        def plan_memory() -> MemoryPlan:
            (of, plan), self._searched = self._searched, (None, None)
            if plan is None or of != (front.tree, options, bounds_text(bounds)):
                plan = self._plan_memory(front, options, bounds)
            return plan

        def suggest(needed: int, budget: int) -> str:
            given = front, options, bounds, needed, budget
            return suggest_fit(*given, self._lifetimes, self.pdg, self.compile_front)

        return make_memory_stage(front, options, plan_memory, suggest)

    def _plan_memory(self, front: Front, options: Options, bounds: Mapping[str, int]) -> MemoryPlan:
        """Return the memory plan. Without a budget, both executors share one plan."""
        how = planner_of(front, options)
        other = replace(how, lowered=not how.lowered)
        known = self._plans.lookup((front, bounds_text(bounds), other))
        if known is not None and how.budget is None:
            return how.choose_fitting([known.plan])
        pdg = front.constraints.pdg
        plans = self._unswapped.lookup(key_of_plans(pdg, bounds, options)) if front.known else None
        if plans is not None:  # a search has made them, for the same tree
            return how.choose_fitting(plans)
        return how(front.constraints, front.tree, bounds, self._lifetimes)
