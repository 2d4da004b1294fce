"""The passes and the schedule of a compilation, which hold for any bounds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from timerl_nb.config import Options
from timerl_nb.driver.stages import See, Stage
from timerl_nb.ir.pdg import Pdg
from timerl_nb.ir.verify import verify
from timerl_nb.memory.budget import Planner
from timerl_nb.memory.forecast import Forecasts
from timerl_nb.passes.accumulate import Accumulate
from timerl_nb.passes.bandwidth_model import Machine
from timerl_nb.passes.contract import Contract
from timerl_nb.passes.core import Pass, Pipeline
from timerl_nb.passes.dynamic_bounds import DynamicBounds
from timerl_nb.passes.fuse import Fuse, Separate
from timerl_nb.passes.incrementalize import (
    Incrementalize,
    IncrementalizeForSpeed,
    IncrementalizeToFit,
)
from timerl_nb.passes.lift import Lift
from timerl_nb.passes.rematerialize import Rematerialize
from timerl_nb.passes.simplify import Simplify
from timerl_nb.passes.vectorize import Vectorize, keep_nothing
from timerl_nb.passes.windows import Windows
from timerl_nb.runtime.backends.jax import device_memory, is_accelerated
from timerl_nb.schedule.constraints import Constraints
from timerl_nb.schedule.explain import explained
from timerl_nb.schedule.fallback import Parts, schedule_by_parts_if_needed
from timerl_nb.schedule.trial import Trials
from timerl_nb.symbolic.ceiling import bounded
from timerl_nb.symbolic.scheduling import ScheduleTree


@dataclass(frozen=True, eq=False)
class Front:
    """All stages that hold for any bounds."""

    stages: tuple[Stage, ...]
    constraints: Constraints
    tree: ScheduleTree
    parts: Parts | None  # where isl reached its ceiling
    seconds: float
    known: bool = False  # whether a trial had found the schedule

    @property
    def saved_by(self) -> dict[str, str]:
        """What the passes do to keep less memory at once, and why; asked for or not."""
        found: dict[str, str] = {}
        for stage in self.stages:
            taken = [one for one in stage.choices if one.taken is not one.candidates[0]]
            why = taken[0].why if taken else "the options say so"
            if stage.name == Vectorize.name:
                found |= {f"{one.what}: {one.taken.name}": one.why for one in taken}
            if stage.name == Rematerialize.name and stage.steps:
                found["recomputed"] = why
            if stage.name == Incrementalize.name and stage.rewritten is not None:
                dims = stage.rewritten.pdg.dims
                for cut in (dim for dim in dims if dim.step != 1):
                    along = next(dim.name for dim in dims if dim.bound == cut.bound)
                    found[f"in blocks of {cut.step} along {along}"] = why
        return found


def pipeline(
    options: Options,
    bounds: Mapping[str, int],
    trials: Trials | None = None,
    *,
    dynamic: bool = False,
) -> Pipeline:
    """The passes that the options ask for, in order; `dynamic` if a bound is."""
    trials = trials or Trials(options.isl_operations)
    keep = trials.keep if options.trial else keep_nothing
    limit, plan = device_limit(options), planner(options)
    machine = cached_machine(options)
    # from the end, since trials take a graph through the passes that follow
    passes: tuple[Pass, ...] = (Fuse() if options.fuse else Separate(),)
    if options.blocks:
        passes = (Incrementalize(options.blocks, bounds), *passes)
    elif options.incrementalize == "auto":
        forecasts = Forecasts(passes, bounds, trials, plan, limit)
        if limit is not None:
            passes = (IncrementalizeToFit(limit, bounds, forecasts), *passes)
        elif machine is not None:
            passes = (IncrementalizeForSpeed(bounds, machine, forecasts), *passes)
    if is_remade(options):
        forecasts = Forecasts(passes, bounds, trials, plan, limit)
        always = options.rematerialize is True
        passes = (
            Rematerialize(bounds, forecasts, always, machine, options.blocks, limit),
            *passes,
        )
    if options.contract:
        passes = (Contract(), *passes)
    if options.accumulate:
        passes = (Accumulate(), *passes)
    if options.lift:
        passes = (Windows(keep), *passes)
    dims = options.vectorize if isinstance(options.vectorize, tuple) else None
    if options.vectorize:
        forecasts = Forecasts(passes, bounds, trials, plan, limit)
        passes = (Vectorize(dims, keep, forecasts, options.budget), *passes)
    if options.lift:
        passes = (Lift(dims if options.vectorize else (), keep), *passes)
    if options.simplify:
        passes = (Simplify(), *passes)
    if dynamic:
        passes = (DynamicBounds(), *passes)
    return Pipeline(passes)


def compile_front(pdg: Pdg, passes: Pipeline, trials: Trials, ceiling: int, see: See) -> Front:
    """Run the passes and find the schedule; `see` gets every stage as soon as it is made."""
    with explained(pdg):
        return _front(pdg, passes, trials, ceiling, see)


def _front(pdg: Pdg, passes: Pipeline, trials: Trials, ceiling: int, see: See) -> Front:
    source = pdg
    stages: list[Stage] = []
    for one in passes:
        start, known = time.perf_counter(), trials.has_run(one, pdg)
        with bounded(f"the pass {one.name}"):
            made = trials.run(one, pdg)
        seconds = time.perf_counter() - start
        verify(made.pdg)
        summary = f"{len(pdg)} -> {len(made.pdg)} operations, {len(made.steps)} steps"
        if one.name in ("fuse", "separate"):
            summary = f"{len(pdg)} operations -> {_kernels(made.pdg)} kernels"
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
        with bounded("checking the schedule"):
            tree, parts = schedule_by_parts_if_needed(constraints, ceiling, source)
        found = constraints, tree
    return Front(tuple(stages), *found, parts, time.perf_counter() - start, is_known)


def cached_machine(options: Options) -> Machine | None:
    """What memory costs beside the cache, where blocks can make a difference to that."""
    return Machine() if options.executor == "xla" and not is_accelerated() else None


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


def unlimited(options: Options) -> Options:
    """The options with passes that do not look for what fits."""
    return options.with_(
        incrementalize=options.blocks or False, rematerialize=False, device_memory=None
    )


def device_limit(options: Options) -> int | None:
    """The bytes that may be live on the device at once."""
    return options.budget or device_memory()


def planner(options: Options) -> Planner:
    """How memory is planned under the options."""
    return Planner(
        smallest=options.stores == "auto",
        donation=options.donate,
        budget=device_limit(options),
        swap=options.swap == "auto",
        lowered=options.executor == "xla" and device_limit(options) is not None,
    )


def _kernels(pdg: Pdg) -> int:
    return sum(op.kind == "dataflow" for op in pdg)
