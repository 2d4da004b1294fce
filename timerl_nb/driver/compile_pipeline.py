"""The passes and the schedule of a compilation, which hold for any bounds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

from timerl_nb.base.machine_model import Machine
from timerl_nb.base.options import Options
from timerl_nb.base.text_tables import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_verifier import verify
from timerl_nb.compiler.ir.recorded_pass_decisions import Ask, Choice
from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree
from timerl_nb.compiler.isl.operation_limit import limit_isl_work
from timerl_nb.compiler.memory.budget.budget_check import Planner
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.passes.dynamic_bound_expansion import DynamicBounds
from timerl_nb.compiler.passes.fusion.fuse import Fuse, Separate
from timerl_nb.compiler.passes.lifting.accumulate_sums import Accumulate
from timerl_nb.compiler.passes.lifting.lift_recurrences import Lift
from timerl_nb.compiler.passes.lifting.sliding_windows import Windows
from timerl_nb.compiler.passes.pass_pipeline import Pass, Pipeline
from timerl_nb.compiler.passes.simplification.contract import Contract
from timerl_nb.compiler.passes.simplification.simplify import Simplify
from timerl_nb.compiler.passes.tiling.incrementalize_reductions import (
    Incrementalize,
    IncrementalizeForSpeed,
)
from timerl_nb.compiler.passes.tiling.rematerialize import Rematerialize
from timerl_nb.compiler.passes.vectorization.operations_kept_in_loops import Acting
from timerl_nb.compiler.passes.vectorization.vectorize import Vectorize
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.fallback_schedule import Parts, schedule_by_parts_if_needed
from timerl_nb.compiler.scheduling.infeasible_schedule_error import explain_cycle
from timerl_nb.compiler.scheduling.vectorization_trials import Trials
from timerl_nb.driver.search.machine_constants import machine_here
from timerl_nb.driver.stages import See, Stage
from timerl_nb.runtime.jax_backend.jax_engine import device_memory, is_accelerated

# Values of options, by name.
Changed = tuple[tuple[str, bool | tuple[str, ...]], ...]


@dataclass(frozen=True)
class Decision:
    """What options leave open (`driver/search/memory_budget_search`); None where passes decide it, for speed.

    Attributes:
        ways: by dimension along which something runs one by one, how it is vectorised (`WAYS`).
        again: what acting made is computed again wherever it can be, or nothing of it.
        blocks: sizes of blocks by dimension.
        swap: values may wait on the host.
        changed: options that differ from the program's, since no other decision fits the budget.
    """

    ways: tuple[tuple[str, str], ...] = ()
    again: bool | None = None
    blocks: tuple[tuple[str, int], ...] | None = None
    swap: bool = True
    changed: Changed = ()

    @property
    def blocks_doc(self) -> str:
        """How large its blocks are."""
        if self.blocks is None:
            return "what is fastest"
        sizes = (f"blocks of {size} along {name}" for name, size in self.blocks)
        return ", ".join(sizes) or "no blocks"

    @property
    def changed_text(self) -> str:
        """The changed options as a user writes them."""
        return ", ".join(f"{name}={value!r}" for name, value in self.changed)

    def __str__(self) -> str:
        text = [f"{way} over {name}" for name, way in self.ways]
        text += ["computed again"] if self.again else []
        text += [self.blocks_doc] if self.blocks != () else []
        text += ["waiting on the host"] if self.swap else []
        text += [self.changed_text] if self.changed else []
        return ", ".join(text) or "as it is"


# By decision, the excess of XLA's figure over the estimate; the entry of None is a guess
# for all decisions without a figure of XLA.
Stated = tuple[tuple[Decision | None, int], ...]


def stated_beyond(decision: Decision, stated: Stated) -> int:
    """The excess of a decision's memory over the estimate, by XLA's figures.

    Of a decision with blocks of another size, the bytes are taken to grow with the size.
    """
    found, guess = 0, 0
    for one, nbytes in stated:
        if one == decision:
            return nbytes
        if one is None:
            guess = nbytes
            continue
        sizes, others = dict(decision.blocks or ()), dict(one.blocks or ())
        alike = sizes and sizes.keys() == others.keys()
        if alike and replace(one, blocks=decision.blocks, swap=decision.swap) == decision:
            found = max(found, nbytes * prod(sizes.values()) // prod(others.values()))
    return found or guess


@dataclass(frozen=True)
class Found:
    """What was decided, by pass what was to be decided there, and how long that took.

    `plan` is the decision's memory plan, where it is still there.
    """

    decision: Decision
    choices: Mapping[str, tuple[Choice, ...]]
    seconds: float = 0.0
    plan: MemoryPlan | None = None


@dataclass(frozen=True, eq=False)
class Front:
    """The stages valid for any bounds, or for some values of a few of them."""

    stages: tuple[Stage, ...]
    constraints: Constraints
    tree: ScheduleTree
    parts: Parts | None  # where isl reached its ceiling
    seconds: float
    known: bool = False  # whether a trial had found the schedule
    decision: Decision = field(default_factory=Decision)
    apart: tuple[Choice, ...] = ()  # of a search, whose passes have no stage
    beyond: int = 0  # the excess of XLA's figure over the estimate, in bytes

    @property
    def bounds(self) -> Mapping[str, int]:
        """Values of bounds, if the schedule holds for these alone; empty if it holds for any bounds."""
        return self.tree.dims.values

    def asking(self, ask: Ask) -> Front:
        """The same stages, whose candidates nobody has compared ask for their forecasts."""
        return replace(self, stages=tuple(stage.asking(ask) for stage in self.stages))

    @property
    def saved_by(self) -> dict[str, str]:
        """What the passes do to keep less memory at once, and why; asked for or not."""
        found: dict[str, str] = {}
        for stage in self.stages:
            taken = [one for one in stage.choices if one.taken is not one.candidates[0]]
            why = next((one.why for one in (*taken, *stage.choices)), "the options say so")
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


def pipeline(
    options: Options,
    bounds: Mapping[str, int],
    decision: Decision | None = None,
    *,
    dynamic: bool = False,
) -> Pipeline:
    """The passes that the options ask for, in order.

    Args:
        decision: what is not left to the passes.
        dynamic: a bound is.
    """
    decision = decision or Decision()
    options = options.with_(**dict(decision.changed))
    acting = Acting() if options.trial else None
    machine, under = cached_machine(options), tuple(bounds.items())
    passes: tuple[Pass, ...] = (Fuse() if options.fuse else Separate(),)
    if options.blocks:
        passes = (Incrementalize(options.blocks, under), *passes)
    elif options.incrementalize == "auto" and decision.blocks is not None:
        passes = (Incrementalize(decision.blocks, under), *passes)
    elif options.incrementalize == "auto" and machine is not None:
        passes = (IncrementalizeForSpeed(under, machine), *passes)
    if is_remade(options) if decision.again is None else decision.again:
        always = decision.again or options.rematerialize is True
        passes = (Rematerialize(under, always, machine, options.blocks), *passes)
    if options.contract:
        passes = (Contract(), *passes)
    if options.accumulate:
        passes = (Accumulate(), *passes)
    if options.lift:
        passes = (Windows(acting), *passes)
    dims = options.vectorize if isinstance(options.vectorize, tuple) else None
    if options.vectorize:
        passes = (Vectorize(dims, acting, decision.ways), *passes)
    if options.lift:
        passes = (Lift(dims if options.vectorize else (), acting), *passes)
    if options.simplify:
        passes = (Simplify(), *passes)
    if dynamic:
        passes = (DynamicBounds(), *passes)
    return Pipeline(passes)


def compile_front(
    pdg: Pdg, passes: Pipeline, trials: Trials, ceiling: int, see: See, decided: Found
) -> Front:
    """Run the passes and find the schedule; `see` gets every stage as soon as it is made."""
    with explain_cycle(pdg):
        return _front(pdg, passes, trials, ceiling, see, decided)


def _front(
    pdg: Pdg, passes: Pipeline, trials: Trials, ceiling: int, see: See, decided: Found
) -> Front:
    source = pdg
    stages: list[Stage] = []
    searching = next((one.name for one in passes if decided.choices.get(one.name)), "")
    for one in passes:
        start, known = time.perf_counter(), trials.has_run(one, pdg)
        if one.name == searching:  # what was found out for it, and for what follows, is its cost
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
        see(stages[-1])
        pdg = made.pdg
        if one.name == DynamicBounds.name:
            source = pdg
    start = time.perf_counter()
    found = trials.known(pdg)
    is_known, parts = found is not None, None
    if found is None:
        constraints = Constraints(pdg)
        with limit_isl_work("checking the schedule"):
            tree, parts = schedule_by_parts_if_needed(constraints, ceiling, source)
        found = constraints, tree
    seconds, decision = time.perf_counter() - start, decided.decision
    names = {stage.name for stage in stages}
    beside = (made for name, made in decided.choices.items() if name not in names)
    apart = tuple(one for made in beside for one in made if len(one.candidates) > 1)
    return Front(tuple(stages), *found, parts, seconds, is_known, decision, apart)


def cached_machine(options: Options) -> Machine | None:
    """What memory costs beside the cache, where blocks can make a difference to that."""
    return machine_here() if options.executor == "xla" and not is_accelerated() else None


def is_remade(options: Options) -> bool:
    """Whether values may be computed again."""
    if options.rematerialize != "auto":
        return options.rematerialize is True
    known = device_limit(options) is not None or cached_machine(options) is not None
    return known and options.incrementalize is not False


def holds_for_all_bounds(options: Options) -> bool:
    """Whether the passes choose nothing by the bounds."""
    by_size = options.incrementalize == "auto" and cached_machine(options) is not None
    return device_limit(options) is None and not by_size and not is_remade(options)


def without_memory_budget(options: Options) -> Options:
    """The options with passes that do not look for what fits."""
    return options.with_(
        incrementalize=options.blocks or False, rematerialize=False, device_memory=None
    )


def device_limit(options: Options) -> int | None:
    """The bytes that may be live on the device at once."""
    return options.budget or device_memory()


def planner(options: Options, *, swap: bool = True, beyond: int = 0) -> Planner:
    """How memory is planned under the options.

    Args:
        beyond: bytes to leave free, by which XLA's figure exceeds the estimate.
    """
    limit = device_limit(options)
    return Planner(
        smallest=options.stores == "auto",
        donation=options.donate,
        budget=None if limit is None else max(1, limit - beyond),
        swap=swap and options.swap == "auto",
        lowered=options.executor == "xla",
        devices=options.devices,
    )


def _kernels(pdg: Pdg) -> int:
    return sum(op.kind == "dataflow" for op in pdg)
