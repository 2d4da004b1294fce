"""Selection of the passes by options, bounds and decisions."""

from __future__ import annotations

from collections.abc import Mapping

from timerl_nb.base.options import Options
from timerl_nb.compiler.passes.dynamic_bound_expansion import DynamicBounds
from timerl_nb.compiler.passes.fusion.fuse import Fuse, Separate
from timerl_nb.compiler.passes.lifting.accumulate_sums import Accumulate
from timerl_nb.compiler.passes.lifting.lift_recurrences import Lift
from timerl_nb.compiler.passes.lifting.sliding_windows import Windows
from timerl_nb.compiler.passes.pass_pipeline import Pass, Pipeline
from timerl_nb.compiler.passes.rematerialization.rematerialize import Rematerialize
from timerl_nb.compiler.passes.simplification.contraction_recognition import Contract
from timerl_nb.compiler.passes.simplification.simplify import Simplify
from timerl_nb.compiler.passes.tiling.incrementalize_reductions import (
    Incrementalize,
    IncrementalizeForSpeed,
)
from timerl_nb.compiler.passes.vectorization.operations_kept_in_loops import Acting
from timerl_nb.compiler.passes.vectorization.vectorize import Vectorize
from timerl_nb.driver.compiling.compile_decision import Decision
from timerl_nb.driver.compiling.machine_dependent_options import cached_machine, is_remade


def pipeline(
    options: Options,
    bounds: Mapping[str, int],
    decision: Decision | None = None,
    *,
    dynamic: bool = False,
) -> Pipeline:
    """Return the passes for the given options, in order.

    Args:
        options: the options.
        bounds: actual bounds, by name.
        decision: choices made outside the passes.
        dynamic: whether a bound is dynamic.
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
    if is_remade(options) if decision.recompute is None else decision.recompute:
        always = decision.recompute or options.rematerialize is True
        passes = (Rematerialize(under, always, machine, options.blocks), *passes)
    if options.contract:
        passes = (Contract(), *passes)
    if options.accumulate:
        passes = (Accumulate(), *passes)
    if options.lift:
        passes = (Windows(acting), *passes)
    dims = options.vectorize if isinstance(options.vectorize, tuple) else None
    if options.vectorize:
        passes = (Vectorize(dims, acting, decision.strategies), *passes)
    if options.lift:
        passes = (Lift(dims if options.vectorize else (), acting), *passes)
    if options.simplify:
        passes = (Simplify(), *passes)
    if dynamic:
        passes = (DynamicBounds(), *passes)
    return Pipeline(passes)
