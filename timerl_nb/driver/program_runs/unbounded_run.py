"""Runs over an unbounded dimension, one iteration of the outermost loop at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.ir.host.iteration_io import (
    TurnByTurn,
    by_name,
    given_of,
    is_iteration_output,
)
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program_runs.host_effects import find_host_effect
from timerl_nb.driver.program_runs.program_run import make_run
from timerl_nb.driver.program_runs.run_in_folder import FolderLocks
from timerl_nb.driver.program_runs.run_preparation import PreparedRun, open_run
from timerl_nb.execution.control.periodic_saving import each
from timerl_nb.execution.control.unbounded_iterations import Turns
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.resumable_state import RunState

Given = Iterable[Mapping[str, Any]] | None


def check_unbounded(compiled: Compilation, given: Given, *, saved: bool, repeatable: bool) -> None:
    """Refuse a program without an unbounded dimension, and invalid input.

    Args:
        compiled: the compilation.
        given: values for each iteration.
        saved: whether the run is saved or resumed.
        repeatable: whether an interrupted iteration may be executed again.

    Raises:
        OptionError: the program has no unbounded dimension, or an argument is invalid.
    """
    if compiled.pdg.dims.endless is None:
        raise OptionError(
            "the program has an end, so turns() does not apply.",
            hint="call execute(), or bind the outermost dimension to trl.endless.",
        )
    inlets = given_of(compiled.pdg.dims, compiled.pdg)
    if given is None and inlets:
        by_name(inlets, None)  # raises the error about missing values
    if given is not None and (isinstance(given, Mapping) or not isinstance(given, Iterable)):
        raise OptionError(
            f"given is a {type(given).__name__}, not an iterable of mappings.",
            hint="pass one mapping per iteration; itertools.repeat({…}) repeats one mapping.",
        )
    why_not = "the run is saved" if saved else why_not_repeatable(compiled)
    if repeatable and why_not is not None:
        raise OptionError(f"no iteration can be repeated: {why_not}.", hint="leave out repeatable.")


def why_not_repeatable(compiled: Compilation) -> str | None:
    """Return the reason why no iteration can be repeated; None if all can."""
    effect = find_host_effect(op for op in compiled.pdg if not is_iteration_output(op))
    return None if effect is None else f"{effect.name} has effects on the host"


def iterate(
    prepared: PreparedRun, given: Given, taken: Callable[[Any], Any], *, repeatable: bool
) -> Turns:
    """Return an iterator over the iterations of a run; it closes the run's folder at the end.

    Args:
        prepared: the run.
        given: as for `Program.turns`.
        taken: as for `Program.turns`.
        repeatable: as for `Program.turns`.
    """
    compiled, held = prepared.compiled, FolderLocks()
    inlets = given_of(compiled.pdg.dims, compiled.pdg)

    def make(turn: int) -> tuple[RunProtocol, TurnByTurn | None, dict[str, Any]]:
        supply = None if given is None else TurnByTurn(inlets, compiled.bounds, given, turn)
        told = each(kept.saving.on_turn if kept.saving else None)
        made = dict[str, Any]()
        run = make_run(
            compiled, kept.seed, told, supply=supply, receive=lambda _, values: made.update(values)
        )
        return run, supply, made

    def continue_run(
        turn: int, state: RunState | None
    ) -> tuple[RunProtocol, TurnByTurn | None, dict[str, Any]]:
        run, supply, made = make(turn)
        if state is not None:
            run.resume(state)
        return run, supply, made

    try:
        kept = open_run(prepared, held)
        run, supply, made = make(kept.turn)
        kept.attach(run, compiled.fused)
        repeat = continue_run if repeatable else None
        return Turns(run, supply, made, held.release, kept.turn, taken, repeat)
    except BaseException:
        held.release()
        raise
