"""Values within an iteration: the interpreter repeats a part of it from the state of a paused run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.ir.host.iteration_io import given_of
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program_runs.host_effects import find_host_effect
from timerl_nb.execution.control.background_run import Running
from timerl_nb.execution.results.live_values import LiveValues, name_values
from timerl_nb.runtime.interpreter.interpreter import Run
from timerl_nb.runtime.run_protocol import RunProtocol, find_cut
from timerl_nb.runtime.state.resumable_state import RunState


def replay_iteration(
    compiled: Compilation, running: Running, launches: int
) -> dict[str, LiveValues]:
    """Return the values in memory after some launches of the iteration that a paused run begins next.

    The run does not change: another run repeats the launches with the same seed.

    Args:
        compiled: the program of the run.
        running: a paused run.
        launches: the number of executed points since the beginning of the iteration.

    Raises:
        ExecutionError: the run has ended, or a repetition is not possible.
    """
    pdg, executable = compiled.pdg, compiled.executable
    effect = find_host_effect(pdg)
    if effect is not None or given_of(pdg.dims, pdg):
        what = "it reads inputs" if effect is None else f"{effect.name} has effects on the host"
        raise ExecutionError(
            f"an iteration of this program cannot be repeated: {what}.",
            hint="program.step() and program.stores show the values after every instruction.",
        )

    def take(run: RunProtocol, turn: int) -> RunState:
        cuts = executable.cuts(recorded=isinstance(run, Run))
        cut = find_cut(cuts, turn)
        return run.state(turn, cut, cuts.live(cut))

    state = running.call_on_run(take)
    own = find_cut(executable.cuts(recorded=True), state.turn)
    run = Run(executable, state.seed, follow=True)
    run.resume(replace(state, cut=own))
    try:
        while launches:
            done = run.step()
            if done is None:
                break
            launches -= done.kind == "execute"
        return _collect(compiled, run)
    finally:
        run.release()


def _collect(compiled: Compilation, run: Run) -> dict[str, LiveValues]:
    """Copy the values in the stores of a run."""
    plan, found = compiled.memory, dict[tuple[int, int], tuple[Array, Array]]()
    stores = run.stores
    for tensor, store in plan.stores.items():
        values = {
            (point if isinstance(point, tuple) else (point,)): np.array(value)
            for point, value in stores.get(store.name, {}).items()
        }
        if values:
            points = np.array([*values], np.int64).reshape(len(values), -1)
            found[tensor] = points, np.array([*values.values()])
    return name_values(plan, found)
