"""Check of the machine before a run: process, element types, main memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timerl_nb.compiler.language.inputs.actual_bounds import fixed_bounds
from timerl_nb.compiler.memory.budget.budget_check import machine_refusal, on_the_machine
from timerl_nb.compiler.symbolic.dimensions import Ceiling
from timerl_nb.driver.budget_confirmation import compile_within_budget, keep_within_budget
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.compile_request import CompileRequest
from timerl_nb.driver.compiling.source_checks import check_types
from timerl_nb.driver.search.budget_suggestions import fit_suggestions
from timerl_nb.execution.telemetry.progress_bar import compiling
from timerl_nb.runtime.host_memory import available_main_memory
from timerl_nb.runtime.jax_backend.arrays_and_devices import is_accelerated
from timerl_nb.runtime.jax_backend.fork_guard import check_process


def check_memory(
    compiled: Compilation, *, recorded: bool = False, saved: bool = False, shown: bool = False
) -> Compilation:
    """Refuse to begin a run that would run out of memory.

    Args:
        compiled: the compilation.
        recorded: whether the interpreter runs it, and compiles kernels at first use.
        saved: whether the run saves copies of its state.
        shown: whether to print a line while XLA compiles.

    Returns:
        the compilation to run: another one if XLA's figure exceeds the budget.

    Raises:
        BudgetError: the program needs more memory than the machine has, or than the budget allows.
    """
    check_machine(compiled, _saved_bytes(compiled) if saved else 0)
    if compiled.options.budget is None or recorded:
        return compiled
    with compiling(shown=shown):
        return keep_within_budget(compiled, compiled.options.budget)


def check_machine(compiled: Compilation, copy: int = 0) -> None:
    """Refuse a forked process, disabled 64-bit types, and too little main memory.

    Args:
        compiled: the compilation.
        copy: bytes of a saved state.
    """
    check_process()
    check_types(compiled.pdg)
    left = available_main_memory()
    if left is None or (needed := main_memory(compiled) + copy) <= left.nbytes:
        return
    less = _suggest_less_memory(compiled, left.nbytes - copy)
    hint = less or "reduce bounds, or give the process more memory."
    shared = not is_accelerated()
    raise machine_refusal(compiled.memory, needed, left.nbytes, left.why, hint, shared=shared)


def main_memory(compiled: Compilation) -> int:
    """Return the bytes of main memory for a run, including device memory if the device is the CPU."""
    memory, lowered = compiled.memory, compiled.executable.xla_program
    shared = not is_accelerated()
    planned = on_the_machine(memory, shared=shared)
    if not shared:
        return planned
    if lowered is not None:
        planned = max(planned, lowered.nbytes + memory.timeline().host_peak)
    return max(planned + memory.overhead_bytes, sum(memory.shares))


def _saved_bytes(compiled: Compilation) -> int:
    """Return the bytes of the largest saved state: of the first iteration, the last, or the end."""
    cuts, stores = compiled.executable.cuts(), compiled.memory.stores
    turns = compiled.executable.progress().turns or 0
    ends = [*(cut for k in (1, turns) if k and (cut := cuts.cut_after(k)) is not None), None]
    values = ({t: len(points) for t, points in cuts.live(cut).items()} for cut in ends)
    return max(sum(stores[t].nbytes * n for t, n in one.items()) for one in values)


def _suggest_less_memory(compiled: Compilation, left: int) -> str:
    """Return changes that fit the program into `left` bytes of main memory."""
    request = compiled.request
    owner, bounds, options = request.owner, request.bounds, request.options.with_(tune=False)

    def bytes_needed(changes: Mapping[str, Any], other: Mapping[str, int]) -> int:
        under = {n: _resize_bound(bounds[n], value) for n, value in other.items()}
        actual = fixed_bounds(owner, {**bounds, **under})
        tried = CompileRequest(request.compiler, owner, actual, options.with_(**changes))
        return main_memory(compile_within_budget(tried))

    changes: dict[str, Mapping[str, Any]] = {}
    if options.budget is not None:
        changes["device_memory=None"] = {"device_memory": None}
    if not is_accelerated():
        smaller = {"device_memory": max(1, left), "swap": False}
        changes[f"device_memory={max(1, left)}, swap=False"] = smaller
        if compiled.executable.xla_program is not None:
            changes['executor="interpret"'] = {"executor": "interpret"}
    dims = [dim for dim in compiled.pdg.dims if dim.bound not in owner.fixed]
    given = {dim.name: (dim.bound, bounds[dim.bound]) for dim in dims}
    return fit_suggestions((), changes, left, options, given, bytes_needed)


def _resize_bound(bound: int, value: int) -> int:
    """Return a bound with another value; a ceiling stays a ceiling."""
    if not isinstance(bound, Ceiling):
        return value
    return Ceiling(value, bound.until, raised=bound.raised)
