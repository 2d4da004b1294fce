"""Values within an iteration: the interpreter repeats a part of it from the state of a paused run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.compiler.ir.host.iteration_io import given_of
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program_runs.host_effects import find_host_effect
from timerl_nb.execution.control.background_run import Running
from timerl_nb.execution.results.live_values import LiveValues, name_values
from timerl_nb.runtime.interpreter.interpreter import Instruction, Run
from timerl_nb.runtime.run_protocol import RunProtocol, find_cut
from timerl_nb.runtime.state.resumable_state import RunState
from timerl_nb.runtime.xla.execution.lowered_run import LoweredRun


def replay_iteration(
    compiled: Compilation, running: Running, launches: int | Callable[[Instruction], bool]
) -> dict[str, LiveValues]:
    """Return the values in memory after some launches of the iteration that a paused run begins next.

    The run does not change: another run repeats the launches with the same seed.

    Args:
        compiled: the program of the run.
        running: a paused run.
        launches: the number of executed points since the beginning of the iteration, or a function that is true for
            the last one.

    Raises:
        CallError: `running` is not a run.
        OptionError: `launches` is neither a non-negative integer nor a function.
        ExecutionError: the run has ended or not begun, a repetition is not possible, or the function is never true.
    """
    expect_type(running, Running, "a run", "program.start() returns one.")
    if not callable(launches) and (
        isinstance(launches, bool) or not isinstance(launches, int | np.integer) or launches < 0
    ):
        raise OptionError(
            f"launches={launches!r} is not possible: the number of launches is a non-negative integer.",
            hint="pass 0 for the beginning of the iteration.",
        )
    pdg, executable = compiled.pdg, compiled.executable
    effect = find_host_effect(pdg)
    if effect is not None or given_of(pdg.dims, pdg):
        what = "it reads inputs" if effect is None else f"{effect.name} has effects on the host"
        raise ExecutionError(
            f"an iteration of this program cannot be repeated: {what}.",
            hint="program.step() and program.stores show the values after every instruction.",
        )

    def take(run: RunProtocol, turn: int) -> RunState:
        by_xla = run.lowered.plan if isinstance(run, LoweredRun) else None
        plan = run.executable.plan if isinstance(run, Run) else by_xla
        if plan is not compiled.memory:
            raise ExecutionError(
                "the run belongs to another program.",
                hint="call values_after() of the program that started the run.",
            )
        if not turn:
            raise ExecutionError(
                "the run has not begun, so there is no state to repeat its first iteration from.",
                hint="call run.step() first.",
            )
        cuts = executable.cuts(recorded=isinstance(run, Run))
        cut = find_cut(cuts, turn)
        return run.state(turn, cut, cuts.live(cut))

    state = running.call_on_run(take)
    run = Run(executable, state.seed, follow=True)
    run.resume(state)
    try:
        _advance(run, launches)
        return _collect(compiled, run)
    finally:
        run.release()


def _advance(run: Run, launches: int | Callable[[Instruction], bool]) -> None:
    """Run launches of an iteration, at most all."""
    left = None if callable(launches) else launches
    while left != 0:
        done = run.step_in_iteration()
        if done is None:
            if callable(launches):
                raise ExecutionError(
                    "the next iteration of the run has no such launch.",
                    hint="choose a launch of this iteration, or step to an iteration that has it.",
                )
            return
        if done.kind == "execute":
            if callable(launches) and launches(done):
                return
            left = None if left is None else left - 1


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
