"""The compiler of one program: what it has found under some options it knows under others.

Graphs, schedules and plans are frozen values, so that what depends on the same of them is the same.
An option that is switched and switched back costs nothing, and one that changes a pass costs that
pass and what comes behind it (docs/decisions/019-what-is-cached.md).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, Literal

from timerl_nb.base.errors import (
    BoundsError,
    CeilingError,
    ScheduleError,
    ShapeError,
    TimeRLError,
    VerificationError,
)
from timerl_nb.base.garbage_collection import disable_gc
from timerl_nb.base.lru_cache import Lru
from timerl_nb.base.options import Options
from timerl_nb.base.text_tables import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_digest import Digest, digest
from timerl_nb.compiler.ir.graph_rewriting import identity_rewrite
from timerl_nb.compiler.ir.graph_verifier import prove_reads, verify
from timerl_nb.compiler.ir.operation_attributes import ConstAttrs
from timerl_nb.compiler.ir.shapes import NUMPY, WIDE
from timerl_nb.compiler.isl.operation_limit import limit_isl_work
from timerl_nb.compiler.loops.loop_builder import build_ast
from timerl_nb.compiler.loops.loop_nodes import Execute, Loop
from timerl_nb.compiler.loops.tileable_loops import Tile, find_tiles
from timerl_nb.compiler.memory.budget.budget_check import Planner, refusal
from timerl_nb.compiler.memory.budget.memory_lower_bound import inevitable, lower_bound
from timerl_nb.compiler.memory.liveness.last_uses import KnownLifetimes
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.per_device_memory import least_share
from timerl_nb.compiler.passes.dynamic_bound_expansion import DynamicBounds
from timerl_nb.compiler.passes.pass_pipeline import Pipeline
from timerl_nb.compiler.scheduling.infeasible_schedule_error import (
    dims_to_fix,
    persists,
    refuse_circles,
)
from timerl_nb.compiler.scheduling.schedule_artifact import Schedule
from timerl_nb.compiler.scheduling.vectorization_trials import SEARCHED, Trials
from timerl_nb.compiler.symbolic.dimensions import bounds_text
from timerl_nb.driver.compile_pipeline import (
    Decision,
    Front,
    Stated,
    compile_front,
    device_limit,
    is_remade,
    pipeline,
    planner,
    stated_beyond,
    without_memory_budget,
)
from timerl_nb.driver.pass_and_schedule_serialization import deserialize_front, serialize_front
from timerl_nb.driver.search.budget_suggestions import fit_suggestions
from timerl_nb.driver.search.machine_constants import machine_here
from timerl_nb.driver.search.memory_budget_search import Known, Search
from timerl_nb.driver.stages import Listing, See, Stage, unseen
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.jax_backend.jax_engine import device_name, has_wide_types
from timerl_nb.runtime.state.disk_cache import DiskCache, disk_cache, key_of
from timerl_nb.runtime.xla.execution.precompiled_call_cache import CompiledCalls
from timerl_nb.runtime.xla.lowering.device_sharding import devices

MOST: Final = 16  # compilations of which passes and schedules are remembered
POINTS: Final = 4_000_000  # and plans, whose arrays take some 150 bytes for each executed point


class _Planned:
    """A memory plan, and what is made of it."""

    def __init__(self, front: Front, memory: Stage) -> None:
        self.memory, self._front = memory, front
        self.plan: Any = memory.artifact
        self._executables: Lru[tuple[object, ...], Stage] = Lru(4)
        self._tiles: Lru[tuple[object, ...], Stage] = Lru(4)

    @property
    def weight(self) -> int:
        return max(len(self.plan.clock), POINTS // MOST)

    @cached_property
    def loops(self) -> Stage:
        start, plan = time.perf_counter(), self.plan
        with limit_isl_work("generating the loops"):
            lives = plan.lifetimes.values()
            tree = self._front.tree
            ast = build_ast(plan.constraints, tree, lives, plan.bounds, plan.names, plan.swaps)
        count = sum(isinstance(node, Execute) for node in ast)
        loops = sum(isinstance(node, Loop) for node in ast)
        seconds = time.perf_counter() - start
        return Stage(
            "ast",
            ast,
            seconds,
            f"{format_count(loops, 'loop')}, {format_count(count, 'launch', 'launches')}",
        )

    def tile(self, options: Options) -> Stage | None:
        """Which loops run block by block; None where that is not asked for."""
        if options.tile is False:
            return None
        key = options.tile, options.devices, options.fuse_iterations, machine_here()
        return self._tiles.get(key, lambda: self._tile(options))

    def _tile(self, options: Options) -> Stage:
        ast: Any = self.loops.artifact
        start = time.perf_counter()
        tiles = find_tiles(
            ast, self.plan, options.tile_size, machine_here(), options.fuse_iterations
        )
        made = replace(identity_rewrite(self.plan.pdg), refused=tiles.refused)
        return Stage("tile", tiles, time.perf_counter() - start, tiles.summary, made)

    def executable(self, options: Options, compiled: CompiledCalls | None) -> Stage:
        how = options.executor, options.fuse_iterations, options.devices, device_limit(options)
        tile: Any = self.tile(options)
        tiles = () if tile is None else tile.artifact.all
        tiled = options.tile, options.tile_kernel, options.tile and machine_here()
        return self._executables.get(
            (*how, *tiled, options.check_nan),
            lambda: self._executable(
                *how, compiled, tiles, options.tile_kernel, check_nan=options.check_nan
            ),
        )

    def _executable(
        self,
        executor: str | None,
        fuse: int,
        devices: int,
        budget: int | None,
        compiled: CompiledCalls | None,
        tiles: tuple[Tile, ...],
        tile_kernel: Literal[False, True, "interpret"],
        *,
        check_nan: bool,
    ) -> Stage:
        ast: Any = self.loops.artifact
        start, plan = time.perf_counter(), self.plan
        how = executor, fuse, devices, budget, compiled, tiles, tile_kernel
        executable = Executable(plan.pdg, ast, plan, *how, check_nan=check_nan)
        summary = f"{format_count(len(executable.kernels), 'kernel')}, {executable.how}"
        return Stage("executable", executable, time.perf_counter() - start, summary)


class Compiler:
    """One source graph, and what has been made of it.

    Args:
        pdg: the graph as the user wrote it.

    Raises:
        VerificationError: it is not well-formed.
    """

    def __init__(self, pdg: Pdg) -> None:
        start = time.perf_counter()
        self.pdg = pdg
        verify(pdg)
        self._refused: ScheduleError | None = None  # for any bounds
        try:
            refuse_circles(pdg)
        except ScheduleError as error:
            self._refused = error
        self._verified = time.perf_counter() - start
        self._at: Lru[str, Compiler] = Lru(MOST)
        self._trials: dict[tuple[int, bool], Trials] = {}
        self._proved: Lru[str, float] = Lru(MOST)
        self._fronts: Lru[tuple[object, ...], Front] = Lru(MOST)
        self._asking: Lru[tuple[object, ...], Front] = Lru(MOST)
        self._disk = disk_cache()
        # of all searches: what another budget asks of the same graphs is known
        self._unswapped: Known = Lru(
            POINTS // 8, lambda plans: max(plans.points, POINTS // 8 // SEARCHED)
        )
        self._lifetimes = KnownLifetimes(SEARCHED)
        self._stated: dict[tuple[Options, str], Stated] = {}
        # the last search's plan, until it is asked for: plans are large
        self._searched: tuple[object, MemoryPlan | None] = None, None
        # a ceiling is another bound than the number that it is: its text tells them apart
        self._plans: Lru[tuple[Front, str, Planner], _Planned] = Lru(
            POINTS, lambda planned: planned.weight
        )

    def source(self, bounds: Mapping[str, int]) -> tuple[Stage, Stage]:
        """The stages before the passes.

        Raises:
            BoundsError: given arrays are too short.
            ReadError, BranchError: reads of what is not defined, branches that do not fit.
            ShapeError: it computes in types that JAX has not been told to have.
        """
        check_types(self.pdg)
        listing, text = Listing(self.pdg), bounds_text(bounds)
        seconds = self._verified + self._proved.get(text, lambda: self._prove(bounds))
        return (
            Stage("source", listing, 0.0, format_count(len(listing.lines), "line")),
            Stage("pdg", self.pdg, seconds, f"{format_count(len(self.pdg), 'operation')}, {text}"),
        )

    def _prove(self, bounds: Mapping[str, int]) -> float:
        start = time.perf_counter()
        _check_data(self.pdg, bounds)
        with limit_isl_work("proving the program's reads"):
            prove_reads(DynamicBounds().run(self.pdg).pdg, bounds)
        return time.perf_counter() - start

    @disable_gc()
    def front(
        self,
        options: Options,
        bounds: Mapping[str, int],
        see: See = unseen,
        *,
        least: bool = True,
    ) -> Front:
        """Return the passes and the schedule; as a rule they hold for any bounds.

        The bounds matter if something is chosen within a budget.

        If no order of execution holds for all bounds, an order for these bounds alone is looked for.

        Args:
            see: gets each of its stages, in order, as soon as it is there.
            least: where nothing fits, the stages of what needs least.

        Raises:
            BudgetError: nothing fits, and not that is asked for.
            OptionError: there are not so many devices.
            ScheduleError: there is no order of execution, or isl reached its ceiling.
        """
        try:
            if self._refused is not None:
                raise self._refused
            return self._front(options, bounds, see, least=least)
        except (ScheduleError, VerificationError) as error:
            is_final = isinstance(error, CeilingError) or self.pdg.dims.values
            if is_final or persists(self.pdg, error, bounds):
                raise
            return self._front_at(error, options, bounds, see, least=least)

    def _front_at(
        self,
        refusal: TimeRLError,
        options: Options,
        bounds: Mapping[str, int],
        see: See,
        *,
        least: bool,
    ) -> Front:
        """Return the stages where some bounds have these values alone: few bounds, or else all.

        Raises:
            ScheduleError: there is no order under the bounds either.
        """
        for names in dims_to_fix(self.pdg, bounds):
            dims = self.pdg.dims.with_values(names, bounds)
            key = bounds_text({d.bound: d.value for d in dims if d.value is not None})
            graph = Pdg(dims, self.pdg.ops, self.pdg.orders)
            try:
                at = self._at.get(key, lambda graph=graph: Compiler(graph))
                return at.front(options, bounds, see, least=least)
            except ScheduleError as error:
                refusal = error
            except VerificationError:
                pass
        raise refusal

    def _front(
        self, options: Options, bounds: Mapping[str, int], see: See, *, least: bool
    ) -> Front:
        devices(options.devices)
        shown: list[Stage] = []

        def show(stage: Stage) -> None:
            shown.append(stage)
            see(stage)

        limit, ceiling = device_limit(options), options.isl_operations
        trials = self._trials_of(options)

        def compiled() -> Front:
            found = self._search(options, bounds).found(least=least)
            passes = self._passes(options, bounds, found.decision)
            front = compile_front(self.pdg, passes, trials, ceiling, show, found)
            if found.plan is not None and front.known:  # else it is of another tree
                self._searched = (front.tree, options, bounds_text(bounds)), found.plan
            return front

        def made() -> Front:
            written = self._digest
            key = self._key(written, options, bounds)
            if key is None or written is None or self._disk is None:
                return compiled()
            payload = self._disk.read(key)
            if payload is not None:
                known = deserialize_front(payload, self.pdg, written.lines)
                if known is not None:
                    return known
            front = compiled()
            payload = serialize_front(front, self.pdg, written.lines, complete=trials.complete)
            if payload is not None:
                self._disk.write(key, payload)
            return front

        def corrected() -> Front:
            front = made()
            return replace(front, beyond=stated_beyond(front.decision, stated)) if stated else front

        # what was decided within a budget depends on it and on the bounds, all else on the passes alone
        passes, stated = self._passes(options, bounds).passes, self._stated_of(options, bounds)
        within = None
        if limit is not None:
            within = limit, bounds_text(bounds), options, machine_here(), stated
        front = self._fronts.get((passes, ceiling, within), corrected)
        for stage in front.stages[len(shown) :]:  # known from before
            see(stage)
        return self.asking(front, options, bounds)

    def asking(self, front: Front, options: Options, bounds: Mapping[str, int]) -> Front:
        """The same front, whose candidates are forecast under some options and bounds."""
        key = front, planner(options), bounds_text(bounds), machine_here()
        return self._asking.get(key, lambda: front.asking(self._search(options, bounds).ask))

    def correct(
        self, decision: Decision | None, options: Options, bounds: Mapping[str, int], beyond: int
    ) -> None:
        """Let later searches under these options know how many bytes XLA states beyond an estimate.

        Args:
            decision: of whose program; None to guess so many of all other decisions.
        """
        known = dict(self._stated_of(options, bounds)) | {decision: beyond}
        self._stated[options.with_(device_memory=None), bounds_text(bounds)] = tuple(known.items())

    def beyond(self, front: Front, options: Options, bounds: Mapping[str, int]) -> int:
        """The excess of XLA's figure over the estimate for a front's decision, if known."""
        return dict(self._stated_of(options, bounds)).get(front.decision, 0)

    def _stated_of(self, options: Options, bounds: Mapping[str, int]) -> Stated:
        key = options.with_(device_memory=None), bounds_text(bounds)
        return self._stated.get(key, ()) if self._stated else ()

    def _search(self, options: Options, bounds: Mapping[str, int]) -> Search:
        limit = device_limit(options)
        known = self._unswapped, self._lifetimes, self._stated_of(options, bounds)
        return Search(self.pdg, options, bounds, self._trials_of(options), limit, *known)

    def _trials_of(self, options: Options) -> Trials:
        ceiling, again = options.isl_operations, is_remade(options)
        return self._trials.setdefault((ceiling, again), Trials(ceiling, again=again))

    def _passes(
        self,
        options: Options,
        bounds: Mapping[str, int],
        decision: Decision | None = None,
    ) -> Pipeline:
        dynamic = self.pdg.bound is not None
        return pipeline(options, bounds, decision, dynamic=dynamic)

    @cached_property
    def _digest(self) -> Digest | None:
        return None if self._disk is None else digest(self.pdg)

    def _key(self, of: Digest | None, options: Options, bounds: Mapping[str, int]) -> str | None:
        """The key of what follows from a graph; None where nothing is kept."""
        if of is None:
            return None
        device = device_limit(options), machine_here()
        return key_of(
            of.text, options, bounds_text(bounds), *device, *self._stated_of(options, bounds)
        )

    def place(
        self, what: str, options: Options, bounds: Mapping[str, int]
    ) -> tuple[DiskCache, str] | None:
        """Where something that was found out about the program is kept; None where nothing is."""
        key = self._key(self._digest, options, bounds)
        if key is None or self._disk is None:
            return None
        return self._disk, key_of(what, key, device_name())

    def _compiled_calls(
        self, front: Front, options: Options, bounds: Mapping[str, int]
    ) -> CompiledCalls | None:
        if self._disk is None:
            return None
        key = self._key(digest(front.constraints.pdg), options, bounds)
        return None if key is None else CompiledCalls(self._disk, key)

    @disable_gc()
    def back(
        self, front: Front, options: Options, bounds: Mapping[str, int], see: See = unseen
    ) -> tuple[Stage, ...]:
        """The stages that depend on the bounds.

        Args:
            see: gets each of them, in order, as soon as it is there.

        Raises:
            BudgetError: the program needs more device memory than there is.
        """
        constraints = front.constraints
        schedule = Schedule(constraints, front.tree, bounds)
        summary = f"{format_count(len(constraints.points), 'statement')}, {format_count(len(constraints.validity), 'dependence')}"
        if front.parts is not None:
            summary += ", by parts"
        if front.bounds:
            summary += f", for {bounds_text(front.bounds)} alone"
        order = Stage("schedule", schedule, front.seconds, summary, known=front.known)
        see(order)
        planned = self._plans.get(
            (front, bounds_text(bounds), _planner(front, options)),
            lambda: _Planned(front, self._memory(front, options, bounds)),
        )
        see(planned.memory)
        see(planned.loops)
        tile = planned.tile(options)
        tiled = () if tile is None else (tile,)
        for stage in tiled:
            see(stage)
        executable = planned.executable(options, self._compiled_calls(front, options, bounds))
        see(executable)
        return order, planned.memory, planned.loops, *tiled, executable

    def _memory(self, front: Front, options: Options, bounds: Mapping[str, int]) -> Stage:
        start = time.perf_counter()
        budget = device_limit(options)
        with limit_isl_work("finding who reads each value last"):
            (of, plan), self._searched = self._searched, (None, None)
            if plan is None or of != (front.tree, options, bounds_text(bounds)):
                plan = self._plan_memory(front, options, bounds)
            plan = plan.said(front.saved_by)
            peak = ", ".join((f"planned peak {plan.peak:,} bytes", *plan.saved_by))
            summary = f"{format_count(len(plan.names), 'store')}, {peak}"
        if budget is not None and plan.needed + front.beyond > budget:
            if front.parts is not None:
                raise front.parts.beyond(plan.needed + front.beyond, budget)
            needed = plan.needed + front.beyond
            hint = self._suggestions(front, needed, budget, options, bounds)
            raise refusal(plan, budget, hint, front.beyond)
        if plan.swaps.all:
            summary += f", {plan.timeline().host_peak:,} bytes there"
        seconds = time.perf_counter() - start
        return Stage("memory", plan, seconds, summary, apart=front.apart)

    def _plan_memory(self, front: Front, options: Options, bounds: Mapping[str, int]) -> MemoryPlan:
        """The memory plan; without a budget the same as for the other executor."""
        how = _planner(front, options)
        other = replace(how, lowered=not how.lowered)
        known = self._plans.known((front, bounds_text(bounds), other))
        if known is not None and how.budget is None:
            return how.fitted([known.plan])
        return how(front.constraints, front.tree, bounds, self._lifetimes)

    def _suggestions(
        self, front: Front, needed: int, budget: int, options: Options, bounds: Mapping[str, int]
    ) -> str:
        def each(nbytes: int) -> int:
            return least_share(nbytes, options.devices)

        def need(changes: Mapping[str, Any], other: Mapping[str, int]) -> int:
            changed, actual = options.with_(**changes), {**bounds, **other}
            if (floor := each(inevitable(self.pdg, actual))) > budget:
                return floor
            prove_reads(self.pdg, actual)
            # what fits without blocks is among what is then chosen from
            again = changes or (other and front.bounds)
            of = self.front(without_memory_budget(changed), actual) if again else front
            if (floor := each(lower_bound(of.constraints.statements, actual))) > budget:
                return floor
            how = replace(planner(changed), lowered=False)
            plans = how.plans(of.constraints, of.tree, actual, self._lifetimes)
            least = each(plans.least(swap=how.swap))
            return least if least > budget else how.fitted(plans).needed

        given = {d.name: (d.bound, bounds[d.bound]) for d in self.pdg.dims}
        known = [f"device_memory={needed} would do"]
        changes = {} if options.swap else {'swap="auto"': {"swap": "auto"}}
        return fit_suggestions(known, changes, budget, options, given, need, decided=tuple(given))


def _planner(front: Front, options: Options) -> Planner:
    """How memory is planned: what does without swaps is left without."""
    return planner(options, swap=front.decision.swap, beyond=front.beyond)


def check_types(pdg: Pdg) -> None:
    """Refuse 64-bit types where JAX would narrow them."""
    if has_wide_types():
        return
    for op in pdg:
        wide = next((o.type.dtype for o in op.outputs if o.type.dtype in WIDE), None)
        if wide is not None:
            raise ShapeError(
                f"{op.name} is of {NUMPY[wide].name}, which JAX computes in only where it is told to.",
                origin=op.origin,
                hint='call jax.config.update("jax_enable_x64", True) first, or use 32-bit types.',
            )


def _check_data(pdg: Pdg, bounds: Mapping[str, int]) -> None:
    """Given arrays must have a value for every point."""
    for op in pdg:
        if not isinstance(op.attrs, ConstAttrs):
            continue
        for axis, name in enumerate(op.attrs.dims):
            have, want = op.attrs.value.array.shape[axis], bounds[pdg.dims[name].bound]
            if have < want:
                raise BoundsError(
                    f"the data has {have} values along {name}, but {pdg.dims[name].bound} = {want}.",
                    origin=op.origin,
                    hint="give more data, or a smaller bound.",
                )
