"""Runs with an end, in the calling thread or in the background."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from timerl_nb.base.options import Options
from timerl_nb.base.runtime_events import Recorder
from timerl_nb.compiler.ir.graph_digest import digest_by_names
from timerl_nb.compiler.ir.host.host_functions import Host
from timerl_nb.compiler.ir.host.iteration_io import Supply, Turn, discard_outputs
from timerl_nb.driver.budget_confirmation import warn_of_excess
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program_hooks import listener_of
from timerl_nb.driver.program_runs.run_in_folder import FolderLocks, SavedRun
from timerl_nb.driver.program_runs.run_preparation import PreparedRun, open_run
from timerl_nb.execution.control.background_run import Running
from timerl_nb.execution.control.pause_and_stop import RunControl
from timerl_nb.execution.control.periodic_saving import each
from timerl_nb.execution.control.program_thread import ProgramThread
from timerl_nb.execution.logging.run_logger import RunLog
from timerl_nb.execution.results.result_dataframe import Rows
from timerl_nb.execution.results.run_result import Result
from timerl_nb.execution.telemetry.program_live_frames import Telemetry, Watched
from timerl_nb.execution.telemetry.progress_bar import saying, turns_bar
from timerl_nb.runtime.interpreter.interpreter import Run
from timerl_nb.runtime.jax_backend.arrays_and_devices import check_transfers
from timerl_nb.runtime.jax_backend.process_connection import joint_run
from timerl_nb.runtime.jax_backend.process_group import all_together, is_leader
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.xla.execution.lowered_run import LoweredRun


def make_run(
    compiled: Compilation,
    seed: int,
    progress: Callable[..., object] | None,
    on_event: Recorder | None = None,
    on_call: Recorder | None = None,
    *,
    waits: bool = True,
    supply: Supply | None = None,
    receive: Callable[[int, Turn], object] = discard_outputs,
) -> RunProtocol:
    """Return a run that has not started. With `on_event`, the interpreter runs it.

    Args:
        compiled: the compilation.
        seed: the seed.
        progress: as for `Program.begin`.
        on_event: as for `Program.begin`.
        on_call: as for `Program.begin`.
        waits: as for `Program.begin`.
        supply: the source of the values of `trl.given`.
        receive: takes the number of an iteration and its output values.
    """
    check_transfers()
    if on_event is None and on_call is None and (listener := listener_of(compiled)) is not None:
        on_call, progress, waits = listener, each(listener.on_turn, progress), False
    host = Host(compiled.fused.dims, compiled.memory.bounds, seed, supply, receive)
    lowered = compiled.executable.xla_program if on_event is None else None
    if lowered is None:
        recorder = on_event or on_call
        return Run(compiled.executable, seed, recorder, progress, waits=waits, host=host)
    return LoweredRun(lowered, seed, progress, on_call, waits=waits, host=host)


def run_to_end(prepared: PreparedRun) -> Result:
    """Run a program in this thread, and return its result."""
    held = FolderLocks()
    try:
        try:
            several = prepared.compiled.executable.processes > 1
            with joint_run(several=several):
                with all_together(prepared.common_facts, several=several):
                    kept = open_run(prepared, held)
                result = _run_to_end(prepared, kept)
        finally:
            held.release()
    finally:  # an interrupt may have stopped the first release
        held.release()
    warn_of_excess(prepared.compiled)
    return result


def _run_to_end(prepared: PreparedRun, kept: SavedRun) -> Result:
    compiled, request = prepared.compiled, prepared.request
    several = compiled.executable.processes > 1
    watched = _watch(prepared, kept)
    turns, shown = watched.progress.turns, request.shows_progress and is_leader()
    start = time.perf_counter()
    log = _make_log(prepared, watched, kept)
    run: RunProtocol | None = None
    with turns_bar(turns, kept.turn, shown=shown) as bar:
        try:
            with all_together({}, several=several):
                if log is not None:
                    log.begin(kept.turn, over=kept.is_over)
            counted = bar.update if shown and turns is not None else None
            told = [one.on_turn for one in (kept.saving, log) if one]
            progress = each(*told, counted)
            run = make_run(compiled, kept.seed, progress, request.on_event, supply=prepared.supply)
            kept.attach(run, compiled.fused)
            if log is not None:
                log.attach(run)
            with saying(bar, run):
                run.complete()
            with all_together({}, several=several):  # then any process can read the final state
                kept.finish()
            values = run.outputs(request.outputs, gather=request.gather)
            if log is not None:
                log.finish(values, "finished")
        except BaseException as error:
            if log is not None:
                log.fail(error)
            if run is not None:
                run.release(error)
            raise
    seconds = time.perf_counter() - start
    return Result.from_run(
        run, values, seconds, (compiled.owner, compiled.bounds), along=watched.stacked_over
    )


def start_run(
    prepared: PreparedRun, *, paused: bool, speed: float | None, pause_when: str | None = None
) -> Running:
    """Start a program in the background; its thread closes the run's folder at the end.

    Args:
        prepared: the run.
        paused: whether to wait before the first iteration.
        speed: the largest number of iterations per second.
        pause_when: a condition on which the run pauses; None for none.
    """
    compiled, request = prepared.compiled, prepared.request
    held = FolderLocks()
    log: RunLog | None = None
    run: RunProtocol | None = None
    run_thread: ProgramThread | None = None
    try:
        kept = open_run(prepared, held)
        watched = _watch(prepared, kept)
        control = RunControl(held=paused, turn=kept.turn)
        control.speed = speed
        log = _make_log(prepared, watched, kept)
        if log is not None:
            log.begin(kept.turn, over=kept.is_over)
        told = [one.on_turn for one in (kept.saving, log) if one]
        progress = each(*told, kept.at_stop(control.on_turn))
        run = make_run(compiled, kept.seed, progress, request.on_event, supply=prepared.supply)
        kept.attach(run, compiled.fused)
        outputs, acting = request.outputs, (compiled.owner, compiled.bounds)
        telemetry = Telemetry(control, run, watched, outputs)
        if pause_when is not None:
            control.break_when(telemetry.breakpoint(pause_when))
        ends = kept.finish, held.release
        run_thread = ProgramThread(control, run, watched, outputs, telemetry, acting, *ends, log)
        return Running(control, telemetry, run_thread, watched.progress.turns)
    except BaseException as error:
        if run_thread is not None and run_thread.abort_start():
            raise  # the run's thread has released everything
        try:
            if log is not None:
                log.fail(error)
            if run is not None:
                run.release()
        finally:
            held.release()
        raise


def _watch(prepared: PreparedRun, kept: SavedRun) -> Watched:
    """Return the parts of a run that live frames and logs show."""
    compiled, recorded = prepared.compiled, prepared.request.is_recorded
    progress, dim = compiled.executable.progress(recorded=recorded), compiled.pdg.dims.seeds
    seeds = range(kept.seed, kept.seed + (compiled.seeds or 1))
    rows = Rows(dim.name, seeds) if dim else None
    return Watched(compiled.source_graph, compiled.memory, progress, rows)


def _make_log(prepared: PreparedRun, watched: Watched, kept: SavedRun) -> RunLog | None:
    """Return the log of a run before its start; None without loggers."""
    compiled = prepared.compiled
    if not prepared.loggers:
        return None
    executor = compiled.options.executor
    plain = asdict(Options(executor=executor))
    options = {k: v for k, v in asdict(compiled.options).items() if plain[k] != v}
    about = {
        "run": kept.name,
        "program": digest_by_names(compiled.pdg),
        "bounds": {name: int(bound) for name, bound in compiled.bounds.items()},
        "how": compiled.executable.how,
        "options": {"executor": executor, **options},
        "seed": kept.seed,
    }
    return RunLog(prepared.loggers, watched, prepared.request.outputs, about)
