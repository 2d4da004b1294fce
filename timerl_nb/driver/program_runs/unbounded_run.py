"""Runs without an end, one iteration of the outermost loop at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.ir.host.iteration_io import (
    TurnByTurn,
    by_name,
    given_of,
    is_handed_out,
)
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program_runs.host_effects import find_host_effect
from timerl_nb.driver.program_runs.program_run import make_run
from timerl_nb.driver.program_runs.run_in_folder import HeldFolders
from timerl_nb.driver.program_runs.run_preparation import PreparedRun, open_run
from timerl_nb.execution.control.periodic_saving import each
from timerl_nb.execution.control.unbounded_iterations import Turns
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.resumable_state import RunState

Given = Iterable[Mapping[str, Any]] | None


def check_unbounded(compiled: Compilation, given: Given, *, saved: bool, repeatable: bool) -> None:
    """Refuse a program with an end, and unfit input.

    Args:
        saved: whether the run is saved, or resumed.
        repeatable: whether an interrupted iteration is to be executed again.

    Raises:
        OptionError: the program has an end, or an argument is of another kind.
    """
    if compiled.pdg.dims.endless is None:
        raise OptionError(
            "the program has an end.",
            hint="execute() runs it; bind its outermost dimension to trl.endless for turns().",
        )
    inlets = given_of(compiled.pdg.dims, compiled.pdg)
    if given is None and inlets:
        by_name(inlets, None)  # refuses
    if given is not None and (isinstance(given, Mapping) or not isinstance(given, Iterable)):
        raise OptionError(
            f"given is a {type(given).__name__}, which is no sequence of turns.",
            hint="pass an iterable of mappings, one a turn; itertools.repeat({…}) gives the same to all.",
        )
    why_not = "they are saved" if saved else why_not_repeatable(compiled)
    if repeatable and why_not is not None:
        raise OptionError(f"no turn can be made anew: {why_not}.", hint="leave out repeatable.")


def why_not_repeatable(compiled: Compilation) -> str | None:
    """Return the reason why no iteration can be executed again; None if each can."""
    effect = find_host_effect(op for op in compiled.pdg if not is_handed_out(op))
    return None if effect is None else f"{effect.name} has effects on the host"


def iterate(
    prepared: PreparedRun, given: Given, taken: Callable[[Any], Any], *, repeatable: bool
) -> Turns:
    """Return an iterator over the iterations of a run, which closes its folder at the end.

    Args:
        given, taken, repeatable: as for `Program.turns`.
    """
    compiled, held = prepared.compiled, HeldFolders()
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
