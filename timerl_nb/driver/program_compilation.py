"""Compilation of a request; with `tune`, the options come from measurements."""

from __future__ import annotations

from dataclasses import replace

from timerl_nb.base.errors import OptionError
from timerl_nb.base.options import Options
from timerl_nb.driver.budget_confirmation import compile_within_budget
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.compile_request import CompileRequest
from timerl_nb.driver.compiling.compile_pipeline import Front
from timerl_nb.driver.compiling.machine_dependent_options import without_memory_budget
from timerl_nb.driver.program_runs.host_effects import refuse_host_effects
from timerl_nb.driver.program_runs.iteration_timing import measure_iteration
from timerl_nb.driver.search.measured_plan_tuning import Tuning, tune_plan
from timerl_nb.driver.stages import UNOBSERVED, CompileObserver
from timerl_nb.runtime.jax_backend.arrays_and_devices import own_device_count
from timerl_nb.runtime.jax_backend.process_group import process_count


def compile_program(
    request: CompileRequest, front: Front | None = None, observer: CompileObserver = UNOBSERVED
) -> Compilation:
    """Compile a program; with `tune`, measure a few plans and compile the fastest.

    Args:
        request: the input.
        front: passes and a schedule that also hold for the request; None to run the passes.
        observer: receives every new stage, in order.

    Raises:
        BudgetError: nothing fits the budget.
        OptionError: an operation has effects on the host, or the program has several processes, so no plan can be
            measured.
    """
    if not request.options.tune:
        return compile_within_budget(request, front, observer)
    request.compiler.source(request.bounds)  # refuses a wrong program before any plan is measured
    tuning = _tune(request, observer.of_candidates)
    tuned = request.with_options(tuning.options)
    return replace(compile_within_budget(tuned, front, observer), tuning=tuning)


def _tune(request: CompileRequest, observer: CompileObserver) -> Tuning:
    """Measure a few plans on this machine."""
    compiler, bounds = request.compiler, request.bounds
    given = "leave out tune, and set incrementalize and rematerialize yourself."
    if request.options.device_count > own_device_count() and process_count() > 1:
        raise OptionError(
            f"tune=True is not possible in {process_count()} processes: their measurements differ, and so would "
            "their programs.",
            hint=given,
        )
    refuse_host_effects(compiler.pdg, "tune=True runs the program to measure plans", given)
    alone = request.options.with_(tune=False)
    whole = without_memory_budget(alone.with_(incrementalize=False))
    last = compiler.compile_front(whole, bounds).stages[-1].previous
    assert last is not None

    def measure(options: Options) -> float:
        # only the error about the user's own options is shown
        tried, least = request.with_options(options), options == alone
        plan = compile_within_budget(tried, observer=observer, least=least)
        return measure_iteration(plan)[1]

    return tune_plan(last, bounds, alone, measure, compiler.cache_entry("tuned", alone, bounds))
