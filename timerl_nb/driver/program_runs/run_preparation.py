"""Preparation of a run: checks its arguments and memory, and opens its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.base.options import progress_by_default
from timerl_nb.base.runtime_events import Recorder
from timerl_nb.compiler.ir.host.iteration_io import NoInputs, Supply, WholeRun, given_of
from timerl_nb.compiler.ir.operation_attributes import OutputAttrs
from timerl_nb.compiler.language.argument_checks import seed_of
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program_runs.assumed_ceiling import (
    ceiling_error,
    find_assumed_ceilings,
    refuse_assumed_ceiling,
)
from timerl_nb.driver.program_runs.host_effects import find_host_effect
from timerl_nb.driver.program_runs.main_memory_check import check_memory
from timerl_nb.driver.program_runs.run_in_folder import FolderLocks, RunSaver, SavedRun
from timerl_nb.execution.logging.jsonl_csv_log import LogFolder
from timerl_nb.execution.logging.run_logger import Logger, loggers_of
from timerl_nb.runtime.jax_backend.process_group import is_leader


@dataclass(frozen=True)
class RunRequest:
    """Unchecked arguments of a run; see `Program.execute`."""

    seed: Any
    on_event: Recorder | None = None
    outputs: Sequence[str] | None = None
    checkpoint: Any = None
    every: Any = None
    resume: Any = None
    log: Any = None
    given: Mapping[str, Any] | None = None
    progress: bool | None = None
    gather: bool = True

    @property
    def is_saved(self) -> bool:
        return self.checkpoint is not None or self.resume is not None

    @property
    def is_recorded(self) -> bool:
        """Whether the interpreter runs the program, and reports its events."""
        return self.on_event is not None

    @property
    def shows_progress(self) -> bool:
        return progress_by_default() if self.progress is None else self.progress


@dataclass(frozen=True)
class PreparedRun:
    """A run with checked arguments and enough memory; its folder is not open.

    Attributes:
        compiled: the program's compilation, or another one that fits the budget by XLA's figure.
        request: the arguments.
        seed: the seed, or the first of several.
        supply: the source of the values of `trl.given`; None if the run supplies them otherwise, or needs
            none.
        loggers: receive a row for each iteration.
    """

    compiled: Compilation
    request: RunRequest
    seed: int
    supply: Supply | None = None
    loggers: Sequence[Logger] = ()

    @property
    def common_facts(self) -> dict[str, str]:
        """The facts that several processes must have in common, as each of them decides about communication."""
        request, compiled = self.request, self.compiled
        outputs = None if request.outputs is None else list(request.outputs)
        return {
            "a bound": str(dict(compiled.bounds)),
            "an option": str(compiled.options),
            "on_event=": "a recorder" if request.is_recorded else "None",
            "outputs=": repr(outputs),
            "gather=": repr(request.gather),
            "checkpoint=": "None" if request.checkpoint is None else "a folder",
            "every=": repr(request.every),
            "resume=": "None" if request.resume is None else "a folder",
        }


def prepare_whole_run(compiled: Compilation, request: RunRequest) -> PreparedRun:
    """Prepare a run in the calling thread, which may be repeated with a larger ceiling.

    Raises:
        BoundsError: a ceiling is assumed, and the run cannot be repeated.
        BudgetError: the program needs more memory than the machine has.
        OptionError, ExecutionError: an argument is invalid.
    """
    supply = _check_arguments(compiled, request, copied=False)
    loggers = () if request.log is None else loggers_of(request.log, LogFolder)
    if compiled.executable.processes > 1:
        _check_gathered(compiled, request)
        loggers = loggers if is_leader() else ()
    for ends in find_assumed_ceilings(compiled.bounds):
        _refuse_repetition(compiled, ends, request, loggers)
    compiled = _check_memory(compiled, request)
    return PreparedRun(compiled, request, first_seed(compiled, request.seed), supply, loggers)


def prepare_watched_run(compiled: Compilation, request: RunRequest) -> PreparedRun:
    """Prepare a run that the caller observes while it runs.

    Raises:
        BoundsError: a ceiling is assumed.
        BudgetError, OptionError, ExecutionError: as for `prepare_whole_run`.
    """
    _refuse_several_processes(compiled)
    supply = _check_arguments(compiled, request, copied=True)
    loggers = () if request.log is None else loggers_of(request.log, LogFolder)
    return _prepare_single_run(compiled, request, supply, loggers)


def prepare_unbounded_run(compiled: Compilation, request: RunRequest) -> PreparedRun:
    """Prepare a run over an unbounded dimension; `check_unbounded` has checked its arguments.

    Raises:
        BudgetError, OptionError: as for `prepare_whole_run`.
    """
    _refuse_several_processes(compiled)
    return _prepare_single_run(compiled, request)


def _prepare_single_run(
    compiled: Compilation,
    request: RunRequest,
    supply: Supply | None = None,
    loggers: Sequence[Logger] = (),
) -> PreparedRun:
    compiled = _check_memory(compiled, request)
    refuse_assumed_ceiling(compiled.bounds, "an observed run cannot be repeated")
    return PreparedRun(compiled, request, first_seed(compiled, request.seed), supply, loggers)


def _refuse_several_processes(compiled: Compilation) -> None:
    """Refuse runs that the caller controls, as one process cannot control the others."""
    if compiled.executable.processes > 1:
        raise OptionError(
            "a program of several processes cannot be controlled during its run.",
            hint="call program.execute(...) in all processes, with checkpoint= and log= if required. Or compile "
            "with devices=1.",
        )


def _check_gathered(compiled: Compilation, request: RunRequest) -> None:
    """Refuse a log of several seeds if the outputs of other processes are not exchanged."""
    if request.log is not None and not request.gather and compiled.seeds is not None:
        raise OptionError(
            "log= needs the outputs of all seeds, and gather=False leaves them in their processes.",
            hint="leave out log= or gather=False.",
        )


def _check_memory(compiled: Compilation, request: RunRequest) -> Compilation:
    return check_memory(
        compiled,
        recorded=request.is_recorded,
        saved=request.is_saved,
        shown=request.shows_progress,
    )


def _check_arguments(compiled: Compilation, request: RunRequest, *, copied: bool) -> Supply:
    """Check events, outputs and given values, and return the source of given values.

    Args:
        compiled: the compilation.
        request: the arguments.
        copied: whether the run continues after the call returns, so that arrays must be copied.
    """
    on_event, outputs = request.on_event, request.outputs
    if on_event is not None and not callable(on_event):
        raise OptionError(
            f"on_event={on_event!r} is not a function.", hint="pass a function of an event."
        )
    if isinstance(outputs, str):
        raise OptionError(
            f"outputs={outputs!r} is not a list of names.", hint=f"write outputs=[{outputs!r}]."
        )
    named = [op.attrs for op in compiled.pdg.sinks if isinstance(op.attrs, OutputAttrs)]
    known = [attrs.name for attrs in named if attrs.role == "output"]
    for name in outputs or ():
        if name not in known:
            raise OptionError(f"there is no output {name!r}.", hint=one_of(name, known))
    return _supply_of(compiled, request.given, copied=copied)


def _supply_of(compiled: Compilation, given: Any, *, copied: bool) -> Supply:
    """Return the source of the values of `trl.given`, for a run with an end."""
    pdg = compiled.pdg
    dim = pdg.dims.endless
    if dim is not None:
        raise OptionError(
            f"the dimension {dim.name} is unbounded, so the program does not end.",
            hint="run one iteration at a time by `for out in program.turns(): …`.",
        )
    inlets = given_of(pdg.dims, pdg)
    if not inlets and not given:
        return NoInputs()
    return WholeRun(inlets, compiled.bounds, given, copied=copied)


def _refuse_repetition(
    compiled: Compilation, name: str, request: RunRequest, loggers: Sequence[Logger]
) -> None:
    """Refuse events, effects on the host and logs in a run that may be repeated."""
    bounds = compiled.bounds
    if request.is_recorded:
        raise ceiling_error(bounds, name, "events cannot be repeated")
    op = find_host_effect(compiled.pdg)
    if op is not None:
        again = f"{op.name} has effects on the host, which would be repeated"
        raise ceiling_error(bounds, name, again, op.origin)
    if loggers:
        raise ceiling_error(bounds, name, "log entries cannot be repeated")


def first_seed(compiled: Compilation, seed: Any) -> int:
    """Return the seed of a run, or the first of several.

    Raises:
        OptionError: the seed is not an integer, or the last seed has more than 64 bits.
    """
    first, seeds = seed_of(seed), compiled.seeds or 1
    last = first + seeds - 1
    if last >= 2**64:
        raise OptionError(
            f"the last seed, {last}, has more than 64 bits.",
            hint=f"with seeds={compiled.seeds}, choose a first seed of at most {2**64 - seeds}.",
        )
    return first


def open_run(prepared: PreparedRun, held: FolderLocks) -> SavedRun:
    """Open the folder of a run, if it is saved or resumed.

    Args:
        prepared: the run.
        held: receives the locked folders.

    Raises:
        BoundsError: a ceiling is assumed.
        OptionError: an argument is invalid, or the run cannot be saved.
        ExecutionError: the folder is in use, damaged, or belongs to another program.
    """
    compiled, request, seed = prepared.compiled, prepared.request, prepared.seed
    if not request.is_saved:
        if request.every is not None:
            raise OptionError(
                "every= has no effect without a checkpoint folder.",
                hint="pass checkpoint= as well, or leave out every=.",
            )
        return SavedRun(seed)
    recorded = request.is_recorded
    if request.resume is not None and recorded:
        raise OptionError(
            "a resumed run cannot record events, which cover a whole run.",
            hint="leave out on_event, or resume.",
        )
    refuse_assumed_ceiling(compiled.bounds, "a saved run cannot be repeated")
    keeper = RunSaver(compiled.pdg, compiled.bounds, compiled.executable, held, recorded=recorded)
    if request.resume is None:
        return keeper.begin_run(seed, request.checkpoint, request.every)
    return keeper.resume_run(seed, request.checkpoint, request.every, request.resume)
