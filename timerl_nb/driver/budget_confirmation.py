"""Confirmation of memory budgets by XLA's figures, which are exact after compilation."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from timerl_nb.base.errors import BudgetError, warn
from timerl_nb.compiler.memory.budget.budget_check import (
    compare_with_reported,
    reported_budget_error,
)
from timerl_nb.driver.compilation import Compilation, compile_stages
from timerl_nb.driver.compile_request import CompileRequest
from timerl_nb.driver.compiling.compile_pipeline import Front
from timerl_nb.driver.stages import UNOBSERVED, CompileObserver, Stage

_ROUNDS: Final = 4  # repeated searches with XLA's figure
# A warning is due if memory exceeds the estimate by both this factor and this number of bytes.
_PROMISED, _UNTOLD = 1.2, 1 << 20


def compile_within_budget(
    request: CompileRequest,
    front: Front | None = None,
    observer: CompileObserver = UNOBSERVED,
    *,
    least: bool = True,
) -> Compilation:
    """Compile a program with the given options, without tuning.

    Args:
        request: the input of the compilation.
        front: as for `compile_stages`.
        observer: as for `compile_stages`.
        least: as for `compile_stages`.

    Raises:
        BudgetError: nothing fits the budget. With `least`, the error has a figure confirmed by XLA.
    """
    options = request.options
    source = request.compiler.source(request.bounds)
    try:
        return compile_stages(request, source, front, observer, least=least)
    except BudgetError as error:
        if options.budget is None or not least or options.executor != "xla":
            raise
        found = _confirm_budget(
            request, source, error, options.budget, observer=observer.of_candidates
        )
        raise found from error.__cause__


def keep_within_budget(compiled: Compilation, limit: int) -> Compilation:
    """Repeat the search, up to a few times, while XLA's figure exceeds the budget.

    Returns:
        the same compilation, or another one of the same request.

    Raises:
        BudgetError: no decision fits the limit. The error has a figure confirmed by XLA.
    """
    for _ in range(_ROUNDS):
        if (stated := _note_excess(compiled, limit)) is None:
            return compiled
        try:
            compiled = _compile_next_decision(compiled)
        except BudgetError as error:
            request, source = compiled.request, compiled.source
            raise _confirm_budget(request, source, error, limit, stated) from error
        warn(f"{stated}: the program is compiled again, to fit into {limit:,} bytes.")
        compiled.issue_warnings()
    lowered = compiled.executable.xla_program
    if lowered is not None and (stated := _note_excess(compiled, limit)) is not None:
        raise reported_budget_error(lowered.total_bytes, limit, stated)
    return compiled


def warn_of_excess(compiled: Compilation) -> None:
    """Warn if XLA uses much more memory than predicted by `program.memory.needed`."""
    lowered, promised = compiled.executable.xla_program, compiled.memory.needed
    if lowered is None or lowered.reported_temporaries is None:
        return
    if lowered.total_bytes > _PROMISED * promised + _UNTOLD:
        warn(
            f"the program needed {lowered.total_bytes:,} bytes on the device; the plan predicted "
            f"{promised:,}: {compare_with_reported(compiled.memory, lowered.temporaries)}.",
            hint="set device_memory=, an upper limit that includes the figures of XLA.",
        )


def _compile_next_decision(compiled: Compilation) -> Compilation:
    """Compile with the next decision: one that fits with the same excess, if there is any."""
    request, source = compiled.request, compiled.source
    compiler, under = request.compiler, (request.options, request.bounds)
    compiler.correct(None, *under, compiler.excess_bytes(compiled.front, *under))
    try:
        found = compile_stages(request, source)
    except BudgetError:
        compiler.correct(None, *under, 0)
        found = compile_stages(request, source)
    return replace(found, tuning=compiled.tuning)


def _note_excess(compiled: Compilation, limit: int) -> str | None:
    """If XLA's figure exceeds the limit, record its excess over the estimate and return a message."""
    lowered, memory, request = compiled.executable.xla_program, compiled.memory, compiled.request
    if lowered is None or lowered.total_bytes <= limit:
        return None
    beyond = max(1, lowered.total_bytes - memory.needed)
    request.compiler.correct(compiled.front.decision, request.options, request.bounds, beyond)
    return compare_with_reported(memory, lowered.temporaries)


def _confirm_budget(
    request: CompileRequest,
    source: tuple[Stage, ...],
    error: BudgetError,
    limit: int,
    stated: str = "",
    observer: CompileObserver = UNOBSERVED,
) -> BudgetError:
    """Return an error with a larger figure, within which XLA compiles the program."""
    needed = error.needed
    if not stated and _is_confirmed(request, source, needed):
        return error
    request.compiler.correct(None, request.options, request.bounds, 0)
    for _ in range(_ROUNDS):
        larger = request.with_options(request.options.with_(device_memory=needed))
        try:
            trial = compile_stages(larger, source, observer=observer)
        except BudgetError as other:
            needed = other.needed
            continue
        found = _note_excess(trial, needed)
        if found is None:
            break
        stated = found
    return reported_budget_error(needed, limit, stated) if stated else error


def _is_confirmed(request: CompileRequest, source: tuple[Stage, ...], needed: int) -> bool:
    """Whether the refused decision fits the bytes named by the refusal, also by XLA's figure."""
    compiler, options, bounds = request.compiler, request.options, request.bounds
    larger = request.with_options(options.with_(device_memory=needed))
    with suppress(BudgetError):
        trial = compile_stages(larger, source, compiler.compile_front(options, bounds))
        return _note_excess(trial, needed) is None
    return False
