"""Compiled programs: their stages, and ways to run them, or to compile them differently."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.errors import BoundsError, BudgetError, OptionError, Origin, one_of, warn
from timerl_nb.base.options import Blocks, Options, progress_by_default
from timerl_nb.base.runtime_events import Recorder
from timerl_nb.base.text_tables import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_digest import digest_by_names
from timerl_nb.compiler.ir.host.host_functions import UdfAttrs
from timerl_nb.compiler.ir.host.iteration_io import (
    NothingGiven,
    Supply,
    TurnByTurn,
    WholeRun,
    by_name,
    given_of,
    is_handed_out,
)
from timerl_nb.compiler.ir.operation_attributes import OutputAttrs
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op
from timerl_nb.compiler.language.argument_checks import seed_of
from timerl_nb.compiler.language.foreign_names import PROGRAM, all_asked, expect_type, missing
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.actual_bounds import (
    bound_value,
    check_mapping,
    fixed_bounds,
)
from timerl_nb.compiler.language.inputs.dynamic_bound_inputs import Until, until
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.loops.loop_nodes import Ast
from timerl_nb.compiler.memory.budget.budget_check import (
    machine_refusal,
    on_the_machine,
    stated_refusal,
    stated_text,
)
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.slice_reads import is_picked
from timerl_nb.compiler.passes.dynamic_bound_expansion import DynamicBounds
from timerl_nb.compiler.passes.pass_pipeline import Pipeline
from timerl_nb.compiler.passes.tiling.incrementalize_reductions import (
    Incrementalize,
    without_effect,
)
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.schedule_artifact import Schedule
from timerl_nb.compiler.symbolic.dimensions import Ceiling, Endless, bounds_text
from timerl_nb.compiler.symbolic.index_expressions import Slice
from timerl_nb.driver.compile_pipeline import (
    Front,
    holds_for_all_bounds,
    pipeline,
    without_memory_budget,
)
from timerl_nb.driver.compiler import Compiler, check_types
from timerl_nb.driver.program_hooks import listener_of, made_known, run_begins
from timerl_nb.driver.run_in_folder import HeldFolders, Keeper, KeptRun
from timerl_nb.driver.search.budget_suggestions import fit_suggestions
from timerl_nb.driver.search.measured_plan_tuning import Tuning, tune_plan
from timerl_nb.driver.stages import See, Stages, unseen
from timerl_nb.execution.control.background_run import Running
from timerl_nb.execution.control.pause_and_stop import RunControl
from timerl_nb.execution.control.periodic_saving import each
from timerl_nb.execution.control.program_thread import ProgramCourse
from timerl_nb.execution.control.unbounded_iterations import Turns
from timerl_nb.execution.logging.jsonl_csv_log import LogFolder
from timerl_nb.execution.logging.run_logger import Logger, RunLog, loggers_of
from timerl_nb.execution.results.result_dataframe import Rows
from timerl_nb.execution.results.run_result import Acting, Result
from timerl_nb.execution.telemetry.program_live_frames import Telemetry, Watched
from timerl_nb.execution.telemetry.progress_bar import compiling, saying, turns_bar
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.host_memory import main_memory_left
from timerl_nb.runtime.interpreter.interpreter import Instruction, Run
from timerl_nb.runtime.jax_backend.fork_guard import check_process
from timerl_nb.runtime.jax_backend.jax_engine import check_transfers, is_accelerated
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.resumable_state import RunState
from timerl_nb.runtime.xla.execution.lowered_run import LoweredRun

_BLOCKS: Final = Incrementalize.name
_GUARDED: Final = (
    "splitting the loops around {} takes more isl operations than a call may: what runs in some of "
    "their turns only is decided turn by turn. The results are the same; it takes longer. Keep "
    "fuse=True so that fewer statements are left, or simplify their index expressions."
)
_INTERPRETED: Final = (
    "the interpreter runs the program, several times slower than XLA: {}. Give it more memory, or "
    "executor='interpret' if that is what you want."
)


@all_asked
class Program:
    """A compiled program: every stage a value, and ways to run it."""

    def __init__(
        self,
        compiler: Compiler,
        bounds: Mapping[str, int],
        options: Options,
        owner: Context,
        front: Front | None = None,
        see: See = unseen,
        *,
        tell: bool = True,
        least: bool = True,
    ) -> None:
        """Compile, and warn at the user's line, or nobody; refusals look for the `least`, or do not."""
        self._compiler = compiler
        self._owner = owner  # the context whose symbols are ours
        self.options, self.bounds = options, dict(bounds)
        _check_dims(compiler.pdg, options)
        _check_effect(options, self.bounds)
        self._source = compiler.source(self.bounds)
        self.tuning = self._tune() if options.tune else None
        if self.tuning is not None:
            self.options = options = self.tuning.options
        try:
            self._compile(options, front, see, least=least)
        except BudgetError as error:
            if options.budget is None or not least or options.executor != "xla":
                raise
            raise self._confirm_budget(error, options.budget) from error.__cause__
        self._run: Run | None = None
        self._twice: Program | None = None  # under a greater ceiling, once a run has reached ours
        if tell:
            self._warn()

    def _warn(self) -> None:
        for text, origin in self._doubts:
            warn(text, origin=origin)

    def _compile(
        self,
        options: Options,
        front: Front | None = None,
        see: See = unseen,
        *,
        least: bool = True,
    ) -> None:
        """Make the stages; with less memory than there is where XLA takes more than was estimated."""
        if front is None:
            front = self._compiler.front(options, self.bounds, see, least=least)
        else:
            front = self._compiler.asking(front, options, self.bounds)
        back = self._compiler.back(front, options, self.bounds, see)
        self.stages = Stages((*self._source, *front.stages, *back))
        self._front, self._limited = front, options
        self.__dict__.pop("warnings", None)

    def _tune(self) -> Tuning:
        """The fastest of a few ways, measured on this machine."""
        given = "leave tune off; incrementalize and rematerialize can be given."
        self._check_effects("tune=True runs the program to measure it", given)
        alone = self.options.with_(tune=False)
        whole = without_memory_budget(alone.with_(incrementalize=False))
        last = self._compiler.front(whole, self.bounds).stages[-1].previous
        assert last is not None
        return tune_plan(
            last,
            self.bounds,
            alone,
            lambda options: Program(
                self._compiler,
                self.bounds,
                options,
                self._owner,
                tell=False,
                least=options == alone,  # what is told to the user
            ).turn_seconds(),
            self._compiler.place("tuned", alone, self.bounds),
        )

    def turn_seconds(self) -> float:
        """The least time that a turn of the outermost loop takes, of a few turns that are run.

        Raises:
            BudgetError: it needs more memory than the machine has.
            OptionError: it has effects on the host, which a run to measure it would have, too.
        """
        self._check_effects(
            "measuring a turn runs the program", "run it, and see `result.seconds`."
        )
        self._check_memory()
        least_found = math.inf
        for _ in range(2):  # the first run compiles
            marks = [time.perf_counter()]

            def turned(*_: object, marks: list[float] = marks) -> None:
                marks.append(time.perf_counter())
                if len(marks) > _MEASURED:
                    raise _Enough

            run = self._make_run(0, None, turned)
            try:
                run.complete()
            except _Enough:
                pass
            finally:
                run.release()
            if len(marks) == 1:  # no turns
                marks.append(time.perf_counter())
            least_found = min(least_found, *(b - a for a, b in itertools.pairwise(marks)))
        return least_found

    def _check_effects(self, why: str, hint: str) -> None:
        """Refuse to run what does more than to compute."""
        effect = _effect(self._compiler.pdg)
        if effect is not None:
            what = f"{why}, and {effect.name} has effects on the host."
            raise OptionError(what, origin=effect.origin, hint=hint)

    # --- the stages by name ----------------------------------------------------------------------

    def _artifact(self, name: str) -> Any:
        return self.stages[name].artifact

    @property
    def pdg(self) -> Pdg:
        """The graph as the user wrote it."""
        return self._artifact("pdg")

    @property
    def seeds(self) -> int | None:
        """With how many seeds a run is made at once, as rows of what it returns; None for one run."""
        dim = self.pdg.dims.seeds
        return dim.count(self.bounds) if dim else None

    @property
    def meaning(self) -> Pdg:
        """The graph as the user wrote it, with what a dynamic bound means for it."""
        dynamic = self.pdg.bound is not None
        return self._artifact(DynamicBounds.name) if dynamic else self.pdg

    @property
    def fused(self) -> Pdg:
        """The graph that runs: after all passes, with outputs of their own for blocks."""
        return self.memory.pdg

    @property
    def schedule(self) -> Schedule:
        return self._artifact("schedule")

    @property
    def memory(self) -> MemoryPlan:
        return self._artifact("memory")

    @property
    def ast(self) -> Ast:
        return self._artifact("ast")

    @property
    def executable(self) -> Executable:
        return self._artifact("executable")

    @property
    def pipeline(self) -> Pipeline:
        """The passes that ran, in order; prints as one line."""
        dynamic, decision = self.pdg.bound is not None, self._front.decision
        return pipeline(self._limited, self.bounds, decision, dynamic=dynamic)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What makes the program slower or larger than it need be, and what to do about it."""
        return tuple(f"{at.place}: {text}" if at else text for text, at in self._doubts)

    @cached_property
    def _doubts(self) -> list[tuple[str, Origin | None]]:
        """The warnings, with the line of each that is about one."""
        parts, blocks = self._front.parts, self.options.blocks
        found: list[str] = []
        if parts is not None and parts.text:
            found.append(parts.lost(self.memory.peak))
        cut = self.stages[_BLOCKS].previous if blocks else None
        if blocks and cut is not None:
            found += without_effect(cut, blocks)
        if self.ast.guarded:
            found.append(_GUARDED.format(", ".join(self.ast.guarded[:8])))
        if too_large := self.executable.too_large:
            found.append(_INTERPRETED.format(too_large))
        windows = _long_windows(self.memory, self._front.constraints, self.options)
        return [*windows, *((text, None) for text in found)]

    # --- again, differently ----------------------------------------------------------------------

    def with_options(self, **changes: Any) -> Program:
        """The same program compiled again from its `pdg` stage, with some options changed.

        Raises:
            OptionError: there is no such option, or it does not take that value.
        """
        return self.again(options=changes)

    def with_bounds(self, bounds: Mapping[Any, int]) -> Program:
        """The same program under other bounds.

        The passes and the schedule are kept, unless they were chosen by the bounds: for a budget,
        for what fits a cache (with XLA), or because no order of execution holds for all bounds.

        Args:
            bounds: the bounds to change, by symbol or name. The ceiling of a dynamic bound changes
                with `trl.until` of the same condition.

        Raises:
            BoundsError: a bound is unknown, or not of the kind that it was.
        """
        return self.again(bounds=bounds)

    def again(
        self,
        *,
        bounds: Mapping[Any, int] | None = None,
        options: Mapping[str, Any] | None = None,
        see: See = unseen,
        tell: bool = True,
    ) -> Program:
        """The same program under other bounds and options, as `with_bounds` and `with_options` say.

        Args:
            see: is called with every stage that is not kept, in order, as soon as it is there.
            tell: issue the program's `warnings`.
        """
        changed = self.options.with_(**options) if options else self.options
        under = self._change_bounds({} if bounds is None else bounds)
        # what is chosen within a budget depends on the bounds
        keeps = not options and holds_for_all_bounds(changed) and not self._front.bounds
        front = self._front if keeps else None
        made = Program(self._compiler, under, changed, self._owner, front, see, tell=tell)
        return made_known(made)

    def _change_bounds(self, bounds: Mapping[Any, int]) -> dict[str, int]:
        """The program's bounds with some changed."""
        changed = dict(self.bounds)
        check_mapping(bounds)
        for key, value in bounds.items():
            name = key.lin.as_symbol if isinstance(key, Index) else key
            if isinstance(key, Index) and key.owner is not self._owner:
                raise BoundsError(f"{key} is a symbol of another context.")
            if name not in changed:
                raise BoundsError(
                    f"{key} is not a bound of this program.",
                    hint=f"the bounds are {', '.join(changed)}.",
                )
            if name in self._owner.fixed:
                raise BoundsError(f"the program says itself what the bound {name} is.")
            self._check_kind(name, value)
            changed[name] = bound_value(name, value)
        return fixed_bounds(self._owner, changed)

    def _check_kind(self, name: str, value: Any) -> None:
        """A dynamic bound stays what it is, but for its ceiling."""
        before = self.bounds[name]
        if isinstance(before, Endless) or isinstance(value, Endless):
            if isinstance(before, Endless) and isinstance(value, Endless):
                return
            was = "has no end" if isinstance(before, Endless) else f"is {before}"
            raise BoundsError(
                f"{name} {was}: that cannot change without compiling again.", hint="compile anew."
            )
        value = until(value) if isinstance(value, RecurrentTensor) else value
        given = value.done.name if isinstance(value, Until) else None
        had = before.until if isinstance(before, Ceiling) else None
        if given == had and (given is None or value.done.ctx is self._owner):
            return
        was = f"{name} ends where {had} holds" if had else f"{name} is a number"
        raise BoundsError(
            f"{was}: that cannot change without compiling again.",
            hint=f"give trl.until({had}, at_most=…), or compile anew." if had else "compile anew.",
        )

    # --- running -----------------------------------------------------------------------------

    def execute(
        self,
        seed: int = 0,
        *,
        progress: bool | None = None,
        on_event: Recorder | None = None,
        outputs: Sequence[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | str | None = None,
        resume: str | os.PathLike[str] | None = None,
        log: Any = None,
        given: Mapping[str, Any] | None = None,
    ) -> Result:
        """Run the program to its end.

        Args:
            seed: of all random streams; the same seed gives the same result. Of a program for several
                seeds it is the first.
            progress: show a progress bar over the outermost loop.
            on_event: is called with every read, write, free and launch (slower).
            outputs: the outputs to return; all by default.
            checkpoint: a folder in which the run saves its state, from which it can be resumed.
            every: how often: after so many turns of the outermost loop, or "5min", the default.
            resume: a folder in which a run of this program was saved: go on with it, and save it
                there as often as before.
            log: a folder for `log.csv` and `log.jsonl`, to which the outputs that are one number per turn
                of the outermost loop are written as they are made; or a function of a row, or what
                `trl.logs` makes; or a list of these.
            given: the values of `trl.given`, by name: arrays whose first axis counts the turns.

        Raises:
            BoundsError: a bound has no ceiling, and the program cannot be run again under a greater
                one, or ends nowhere.
            BudgetError: it needs more memory than the machine has.
            OptionError: an output of that name does not exist, an argument is of another kind, or
                the run cannot be saved.
            ExecutionError: a folder is in use, or cannot be written to; what was saved there is
                damaged, or of another program; or there is another run's log.
        """
        run_begins(self)
        self._check_run(on_event, outputs)
        supply = self._supply(given, copied=False)
        loggers = () if log is None else loggers_of(log, LogFolder)
        ends = self._open
        if ends is not None:
            self._check_repeatable(ends, on_event)
            if loggers:
                raise _asks_for_ceiling(ends, self.bounds[ends], "what is logged is one run alone")
        is_saved = checkpoint is not None or resume is not None
        self._check_memory(
            recorded=on_event is not None, saved=is_saved, shown=_shows_progress(progress)
        )
        held = HeldFolders()
        try:
            try:
                kept = self._prepare_run(
                    self._seed(seed), on_event, checkpoint, every, resume, held
                )
                result = self._run_whole(kept, progress, on_event, outputs, loggers, supply)
            finally:
                held.leave()
        finally:  # an interrupt may have come at the first
            held.leave()
        self._warn_of_stated()
        if ends is None or result.lengths[ends].max() < self.bounds[ends]:
            return result
        return self._longer(ends).execute(seed, progress=progress, outputs=outputs, given=given)

    def turns(
        self,
        seed: int = 0,
        *,
        given: Iterable[Mapping[str, Any]] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | str | None = None,
        resume: str | os.PathLike[str] | None = None,
        taken: Callable[[Any], Any] = np.asarray,
        repeatable: bool = False,
    ) -> Turns:
        """Run a program without an end (`trl.endless`), turn by turn of its outermost loop.

        Args:
            seed: of all random streams. So many turns are those of one run of so many turns, to the same bits.
            given: for each turn the values of `trl.given`, by name; where they end, so does the run.
            checkpoint, every, resume: as for `execute`.
            taken: what is made of an array before it is handed out: by default NumPy's.
            repeatable: an interrupt leaves the run open: after `hold()`, which copies what turns carry on,
                `back()` has the next turn made anew. `given` is then asked again.

        Returns an iterator of what turns hand out, by name; `close()` frees all that the run holds.

        Raises:
            OptionError: the program has an end, or an argument is of another kind.
            BudgetError: it needs more memory than the machine has.
            ExecutionError: as for `execute`; later, what is given has another shape or type.
        """
        run_begins(self)
        if self.pdg.dims.endless is None:
            raise OptionError(
                "the program has an end.",
                hint="execute() runs it; bind its outermost dimension to trl.endless for turns().",
            )
        inlets = given_of(self.pdg.dims, self.pdg)
        if given is None and inlets:
            by_name(inlets, None)  # refuses
        if given is not None and (isinstance(given, Mapping) or not isinstance(given, Iterable)):
            raise OptionError(
                f"given is a {type(given).__name__}, which is no sequence of turns.",
                hint="pass an iterable of mappings, one a turn; itertools.repeat({…}) gives the same to all.",
            )
        is_saved = checkpoint is not None or resume is not None
        why_not = "they are saved" if is_saved else self.why_not_repeatable
        if repeatable and why_not is not None:
            raise OptionError(f"no turn can be made anew: {why_not}.", hint="leave out repeatable.")
        self._check_begin(recorded=False, saved=is_saved)
        held = HeldFolders()

        def made(turn: int) -> tuple[RunProtocol, TurnByTurn | None]:
            supply = None if given is None else TurnByTurn(inlets, self.bounds, given, turn)
            told = each(kept.saving.turned if kept.saving else None)
            return self._make_run(kept.seed, None, told, supply=supply), supply

        def again(turn: int, state: RunState | None) -> tuple[RunProtocol, TurnByTurn | None]:
            run, supply = made(turn)
            if state is not None:
                run.resume(state)
            return run, supply

        try:
            kept = self._prepare_run(self._seed(seed), None, checkpoint, every, resume, held)
            run, supply = made(kept.turn)
            kept.of(run, self.fused)
            return Turns(run, supply, held.leave, kept.turn, taken, again if repeatable else None)
        except BaseException:
            held.leave()
            raise

    @property
    def why_not_repeatable(self) -> str | None:
        """Why no turn can be made anew; None where each can."""
        effect = _effect([op for op in self.pdg if not is_handed_out(op)])
        return None if effect is None else f"{effect.name} has effects on the host"

    def resume(self, folder: str | os.PathLike[str], **options: Any) -> Result:
        """Go on with the run that was saved in a folder: `execute(resume=folder)`.

        Args:
            options: those of `execute`.
        """
        return self.execute(resume=folder, **options)

    def _prepare_run(
        self,
        seed: int,
        on_event: Recorder | None,
        checkpoint: Any,
        every: Any,
        resume: Any,
        held: HeldFolders,
    ) -> KeptRun:
        """How a run is begun, or gone on with, and saved; `held` receives the folders that it enters."""
        if checkpoint is None and resume is None:
            if every is not None:
                raise OptionError(
                    "every says how often a checkpoint is made, and none is asked for."
                )
            return KeptRun(seed)
        if resume is not None and on_event is not None:
            raise OptionError(
                "events are those of a whole run, which resume goes on with.",
                hint="leave out on_event, or resume.",
            )
        if self._open is not None:
            why = "what is saved is one run alone"
            raise _asks_for_ceiling(self._open, self.bounds[self._open], why)
        recorded = on_event is not None
        keeper = Keeper(self.pdg, self.bounds, self.executable, held, recorded=recorded)
        if resume is None:
            return keeper.begun(seed, checkpoint, every)
        return keeper.resumed(seed, checkpoint, every, resume)

    def _supply(self, given: Any, *, copied: bool) -> Supply:
        """Return the source of the values of `trl.given`, for a run with an end.

        Args:
            copied: whether the run goes on after the caller has control again.

        Raises:
            OptionError: the program has no end; or something is not given, or not known.
            ExecutionError: an array has another shape or type.
        """
        dim = self.pdg.dims.endless
        if dim is not None:
            raise OptionError(
                f"the program has no end along {dim.name}.",
                hint="for out in program.turns(): runs it turn by turn.",
            )
        inlets = given_of(self.pdg.dims, self.pdg)
        if not inlets and not given:
            return NothingGiven()
        return WholeRun(inlets, self.bounds, given, copied=copied)

    def _check_run(self, on_event: Recorder | None, outputs: Sequence[str] | None) -> None:
        """Refuse what no run can be made with."""
        if on_event is not None and not callable(on_event):
            raise OptionError(
                f"on_event={on_event!r} cannot be called.", hint="pass a function of an event."
            )
        if isinstance(outputs, str):
            raise OptionError("outputs are a list of names.", hint=f"write outputs=[{outputs!r}].")
        given = [op.attrs for op in self.pdg.sinks if isinstance(op.attrs, OutputAttrs)]
        known = [attrs.name for attrs in given if attrs.role == "output"]
        for name in outputs or ():
            if name not in known:
                raise OptionError(f"there is no output {name!r}.", hint=one_of(name, known))

    @property
    def _open(self) -> str | None:
        """The dynamic bound whose ceiling is raised where a run reaches it."""
        found = (n for n, b in self.bounds.items() if isinstance(b, Ceiling) and b.raised)
        return next(found, None)

    def _check_repeatable(self, name: str, on_event: Recorder | None) -> None:
        """A run that may be made again shows no events, and does nothing on the host."""
        bound = self.bounds[name]
        if on_event is not None:
            raise _asks_for_ceiling(name, bound, "events are of one run alone")
        op = _effect(self.pdg)
        if op is not None:
            again = f"{op.name} has effects on the host, which it would have again"
            raise _asks_for_ceiling(name, bound, again, op.origin)

    def _longer(self, name: str) -> Program:
        """This program under twice the ceiling that was assumed."""
        bound = self.bounds[name]
        assert isinstance(bound, Ceiling)
        if bound >= _LONGEST:
            raise BoundsError(
                f"{bound.until} holds at none of the first {format_count(int(bound), 'point')}: {name} does not end.",
                hint=f"give a ceiling: {{{name}: trl.until({bound.until}, at_most=…)}}.",
            )
        if self._twice is None:
            longer = {**self.bounds, name: Ceiling(2 * bound, bound.until, raised=True)}
            front = self._front if holds_for_all_bounds(self.options) else None
            self._twice = Program(
                self._compiler, longer, self.options, self._owner, front, tell=False
            )
        return self._twice

    def _seed(self, seed: Any) -> int:
        """The seed of a run, the first of several."""
        first = seed_of(seed)
        last = first + (self.seeds or 1) - 1
        if last >= 2**64:
            raise OptionError(
                f"the seeds must have 64 bits, which the last, {last}, has not.",
                hint=f"with seeds={self.seeds} the first is at most {2**64 - (self.seeds or 1)}.",
            )
        return first

    def _run_whole(
        self,
        kept: KeptRun,
        progress: bool | None,
        on_event: Recorder | None,
        outputs: Sequence[str] | None,
        loggers: Sequence[Logger],
        supply: Supply,
    ) -> Result:
        shown = _shows_progress(progress)
        watched = self._make_watched(kept, recorded=on_event is not None)
        turns = watched.progress.turns
        start = time.perf_counter()
        log = self._log(loggers, watched, outputs, kept)
        run: RunProtocol | None = None
        with turns_bar(turns, kept.turn, shown=shown) as bar:
            try:
                if log is not None:
                    log.begin(kept.turn, over=kept.is_over)
                counted = bar.update if shown and turns is not None else None
                told = [one.turned for one in (kept.saving, log) if one]
                run = self._make_run(kept.seed, on_event, each(*told, counted), supply=supply)
                kept.of(run, self.fused)
                if log is not None:
                    log.of(run)
                with saying(bar, run):
                    run.complete()
                kept.finish()
                values = run.outputs(outputs)
                if log is not None:
                    log.finish(values, "finished")
            except BaseException as error:
                if log is not None:
                    log.fail(error)
                if run is not None:
                    run.release(error)
                raise
        seconds = time.perf_counter() - start
        return Result.of(run, values, seconds, self._acting, along=watched.along)

    @property
    def _acting(self) -> Acting:
        """The program's context and its bounds."""
        return self._owner, self.bounds

    def _make_watched(self, kept: KeptRun, *, recorded: bool) -> Watched:
        """What is watched of a run."""
        progress, dim = self.executable.progress(recorded=recorded), self.pdg.dims.seeds
        rows = Rows(dim.name, range(kept.seed, kept.seed + (self.seeds or 1))) if dim else None
        return Watched(self.meaning, self.memory, progress, rows)

    def _log(
        self,
        loggers: Sequence[Logger],
        watched: Watched,
        outputs: Sequence[str] | None,
        kept: KeptRun,
    ) -> RunLog | None:
        """What will tell loggers of a run; None without any."""
        if not loggers:
            return None
        plain = asdict(Options(executor=self.options.executor))
        options = {k: v for k, v in asdict(self.options).items() if plain[k] != v}
        about = {
            "run": kept.name,
            "program": digest_by_names(self.pdg),
            "bounds": {name: int(bound) for name, bound in self.bounds.items()},
            "how": self.executable.how,
            "options": {"executor": self.options.executor, **options},
            "seed": kept.seed,
        }
        return RunLog(loggers, watched, outputs, about)

    def _make_run(
        self,
        seed: int,
        on_event: Recorder | None,
        progress: Callable[..., object] | None,
        on_call: Recorder | None = None,
        *,
        waits: bool = True,
        supply: Supply | None = None,
    ) -> RunProtocol:
        """A run that has not begun; whoever listens to events is shown the interpreter's."""
        check_transfers()
        if on_event is None and on_call is None and (listener := listener_of(self)) is not None:
            on_call, progress, waits = listener, each(listener.turned, progress), False
        lowered = self.executable.lowered if on_event is None else None
        if lowered is None:
            run = Run(self.executable, seed, on_event or on_call, progress, waits=waits)
        else:
            run = LoweredRun(lowered, seed, progress, on_call, waits=waits)
        if supply is not None:
            run.host.supply = supply
        return run

    def begin(
        self,
        seed: int = 0,
        *,
        on_event: Recorder | None = None,
        on_call: Recorder | None = None,
        progress: Callable[..., object] | None = None,
        waits: bool = True,
        given: Mapping[str, Any] | None = None,
    ) -> RunProtocol:
        """A run that has not begun, for who completes it, and looks at it, himself.

        Args:
            seed: of all random streams.
            on_event: is called with every read, write, free and launch, by the interpreter.
            on_call: is called with every call to XLA, and what runs on the host; where the
                interpreter runs the program, with every event.
            progress: is called at the end of every turn of the outermost loop, with the number of
                turns made if they are several.
            waits: whether what is reported, and turns, are waited for. Where not, calls and kernels are
                reported as launches, and the wait at the end as one.

        Raises:
            BoundsError: a bound has no ceiling: a run that reaches the one assumed would be made
                again.
            BudgetError: it needs more memory than the machine has.
        """
        run_begins(self)
        supply = self._supply(given, copied=True)
        self._check_begin(recorded=on_event is not None)
        return self._make_run(
            self._seed(seed), on_event, progress, on_call, waits=waits, supply=supply
        )

    def _check_begin(self, *, recorded: bool, saved: bool = False) -> None:
        """Refuse to begin what is looked at on the way, as `_check_memory` does and for other reasons."""
        self._check_memory(recorded=recorded, saved=saved, shown=_shows_progress(None))
        if self._open is not None:
            why = "what is started and watched is one run alone"
            raise _asks_for_ceiling(self._open, self.bounds[self._open], why)

    def start(
        self,
        seed: int = 0,
        *,
        on_event: Recorder | None = None,
        outputs: Sequence[str] | None = None,
        paused: bool = False,
        speed: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | str | None = None,
        resume: str | os.PathLike[str] | None = None,
        log: Any = None,
        given: Mapping[str, Any] | None = None,
    ) -> Running:
        """Run the program on a thread of its own; returns at once.

        Args:
            seed: of all random streams; the same seed gives the same result as `execute`.
            on_event: is called with every read, write, free and launch, on that thread (slower).
            outputs: the outputs to return; all by default.
            paused: wait before the first turn.
            speed: turns of the outermost loop a second at most.
            checkpoint, every, resume, log, given: as for `execute`.

        Raises:
            BoundsError: a bound has no ceiling: a run that reaches the one assumed would be made
                again, and what is watched is one run alone.
            BudgetError: it needs more memory than the machine has.
            OptionError: an output of that name does not exist, an argument is of another kind, or
                the run cannot be saved.
            ExecutionError: as for `execute`.
        """
        run_begins(self)
        self._check_run(on_event, outputs)
        supply = self._supply(given, copied=True)
        loggers = () if log is None else loggers_of(log, LogFolder)
        is_saved = checkpoint is not None or resume is not None
        self._check_begin(recorded=on_event is not None, saved=is_saved)
        held = HeldFolders()
        telling: RunLog | None = None
        run: RunProtocol | None = None
        course: ProgramCourse | None = None
        try:
            kept = self._prepare_run(self._seed(seed), on_event, checkpoint, every, resume, held)
            watched = self._make_watched(kept, recorded=on_event is not None)
            control = RunControl(held=bool(paused), turn=kept.turn)
            control.speed = speed
            telling = self._log(loggers, watched, outputs, kept)
            if telling is not None:
                telling.begin(kept.turn, over=kept.is_over)
            told = [one.turned for one in (kept.saving, telling) if one]
            progress = each(*told, kept.at_stop(control.turned))
            run = self._make_run(kept.seed, on_event, progress, supply=supply)
            kept.of(run, self.fused)
            telemetry = Telemetry(control, run, watched, outputs)
            acting = self._acting
            course = ProgramCourse(
                control, run, watched, outputs, telemetry, acting, kept.finish, held.leave, telling
            )
            return Running(control, telemetry, course, watched.progress.turns)
        except BaseException as error:
            if course is not None and course.give_up():
                raise  # the run's thread has closed all
            try:
                if telling is not None:
                    telling.fail(error)
                if run is not None:
                    run.release()
            finally:
                held.leave()
            raise

    def _check_memory(
        self, *, recorded: bool = False, saved: bool = False, shown: bool = False
    ) -> None:
        """Refuse to begin what ends for want of memory, before its first turn.

        Args:
            recorded: the interpreter runs it, whose kernels are compiled as they are met.
            saved: a copy of its state is made now and then.
            shown: say so where it waits for XLA, which then states what it takes.
        """
        self._check_machine(self._copy if saved else 0)
        if self.options.budget is not None and not recorded:
            with compiling(shown=shown):
                self._keep_within(self.options.budget)

    def _keep_within(self, limit: int) -> None:
        """Search again, a few times at most, if XLA's figure exceeds the estimate and the budget.

        Raises:
            BudgetError: no decision keeps to the limit; it names a figure confirmed by XLA.
        """
        for _ in range(_ROUNDS):
            if (told := self._correct(limit)) is None:
                return
            try:
                self._search_on()
            except BudgetError as error:
                raise self._confirm_budget(error, limit, told) from error
            warn(f"{told}: the program is compiled again to keep to {limit:,} bytes.")
            self._warn()
        lowered = self.executable.lowered
        if lowered is not None and (told := self._correct(limit)) is not None:
            raise stated_refusal(lowered.needed, limit, told)

    def _search_on(self) -> None:
        """Compile with the next decision: one that fits with the same excess, if there is any."""
        under = self.options, self.bounds
        self._compiler.correct(None, *under, self._compiler.beyond(self._front, *under))
        try:
            self._compile(self.options)
        except BudgetError:
            self._compiler.correct(None, *under, 0)
            self._compile(self.options)

    def _warn_of_stated(self) -> None:
        """Warn if XLA takes much more memory than `program.memory.needed` has promised."""
        lowered, promised = self.executable.lowered, self.memory.needed
        if lowered is None or lowered.stated is None:
            return
        if lowered.needed > _PROMISED * promised + _UNTOLD:
            warn(
                f"the program took {lowered.needed:,} bytes on the device, where {promised:,} were "
                f"expected: {stated_text(self.memory, lowered.temporaries)}.",
                hint="give device_memory=, by which programs keep to what XLA states.",
            )

    def _correct(self, limit: int) -> str | None:
        """Note by how much XLA's figures exceed the estimate, if they exceed a limit; say so."""
        lowered, memory = self.executable.lowered, self.memory
        if lowered is None or lowered.needed <= limit:
            return None
        beyond = max(1, lowered.needed - memory.needed)
        self._compiler.correct(self._front.decision, self.options, self.bounds, beyond)
        return stated_text(memory, lowered.temporaries)

    def _confirm_budget(self, error: BudgetError, limit: int, told: str = "") -> BudgetError:
        """Return a refusal with a larger figure, within which XLA compiles the program."""
        needed = error.needed
        self._compiler.correct(None, self.options, self.bounds, 0)
        for _ in range(_ROUNDS):
            try:
                self._compile(self.options.with_(device_memory=needed))
            except BudgetError as other:
                needed = other.needed
                continue
            found = self._correct(needed)
            if found is None:
                break
            told = found
        return stated_refusal(needed, limit, told) if told else error

    def _check_machine(self, copy: int = 0) -> None:
        """Refuse to begin what ends with the machine's memory; it may be planned all the same.

        So with 64-bit types, which JAX may have been told to have no more, and in a forked process.

        Args:
            copy: bytes of a state that is saved.
        """
        check_process()
        check_types(self.pdg)
        left = main_memory_left()
        if left is None or self._main_memory + copy <= left.nbytes:
            return
        shared = not is_accelerated()
        needed, less = self._main_memory + copy, self._less_memory(left.nbytes - copy)
        hint = less or "give smaller bounds, or let the process have more memory."
        raise machine_refusal(self.memory, needed, left.nbytes, left.why, hint, shared=shared)

    @property
    def _copy(self) -> int:
        """The bytes of the largest of the states that are saved: of the first turn, the last, or the end."""
        cuts, sizes = self.executable.cuts(), self.memory
        turns = self.executable.progress().turns or 0
        ends = [*(cut for k in (1, turns) if k and (cut := cuts.after(k)) is not None), None]
        values = ({t: len(points) for t, points in cuts.live(cut).items()} for cut in ends)
        return max(sum(sizes.stores[t].nbytes * n for t, n in one.items()) for one in values)

    @property
    def _main_memory(self) -> int:
        """The bytes that a run takes of main memory, the device's where that is the CPU."""
        shared = not is_accelerated()
        planned, lowered = on_the_machine(self.memory, shared=shared), self.executable.lowered
        if not shared:
            return planned
        if lowered is not None:
            planned = max(planned, lowered.nbytes + self.memory.timeline().host_peak)
        return max(planned + self.memory.beside, sum(self.memory.shares))

    def _less_memory(self, left: int) -> str:
        """What makes the program fit into so many bytes of main memory, found by trying."""
        options = self.options.with_(tune=False)

        def need(changes: Mapping[str, Any], other: Mapping[str, int]) -> int:
            under = {n: _resize_bound(self.bounds[n], value) for n, value in other.items()}
            bounds = fixed_bounds(self._owner, {**self.bounds, **under})
            changed = options.with_(**changes)
            return Program(self._compiler, bounds, changed, self._owner, tell=False)._main_memory

        changes: dict[str, Mapping[str, Any]] = {}
        if options.budget is not None:
            changes["device_memory=None"] = {"device_memory": None}
        if not is_accelerated():
            smaller = {"device_memory": max(1, left), "swap": False}
            changes[f"device_memory={max(1, left)}, swap=False"] = smaller
            if self.executable.lowered is not None:
                changes['executor="interpret"'] = {"executor": "interpret"}
        given = {
            d.name: (d.bound, self.bounds[d.bound])
            for d in self.pdg.dims
            if d.bound not in self._owner.fixed
        }
        return fit_suggestions((), changes, left, options, given, need)

    def step(self, seed: int = 0) -> Instruction | None:
        """Run one instruction; None at the end of the program, after which it starts over.

        It does so after an instruction that failed, too; until then `stores` has what that left.

        Args:
            seed: of all random streams; counts at the first instruction.
        """
        if self._run is None:
            run_begins(self)
        if self._open is not None:
            raise _asks_for_ceiling(
                self._open, self.bounds[self._open], "steps are of one run alone"
            )
        if self._run is not None and self._run.failed:
            self._run.release()
            self._run = None
        if self._run is None:
            self._check_machine()
            self._run = Run(self.executable, self._seed(seed), follow=True)
        done = self._run.step()
        if done is None:
            self._run.release()
            self._run = None
        return done

    @property
    def stores(self) -> dict[str, dict[Any, Any]]:
        """What a stepped run holds now: by tensor, values by point."""
        return {} if self._run is None else self._run.stores

    # --- looking -----------------------------------------------------------------------------

    def scope(
        self,
        seed: int = 0,
        turns: int | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        devices: int = 0,
    ) -> Any:
        """Run the program, and record what its time is spent on, as `trl.scope` does for any program.

        Phases are turns of the outermost loop, operations are launches: kernels, or calls to XLA, and what
        runs on the host. Nothing is waited for that `execute` does not wait for; what XLA does meanwhile is
        seen as the wait at the end. `trl.profile` measures single kernels.

        Args:
            seed: of all random streams.
            turns: stop after so many turns of the outermost loop; all by default.
            folder: where it is recorded; None for a temporary one, which goes with what is returned.
            devices: in so many turns, from the second one on, GPUs are traced, where there are any.

        Returns:
            the `trl.scope.record`: `.table()`, `.read()`, whose `op_ids` say what each launch runs.

        Raises:
            OptionError: `turns` is no positive number, or `devices` no number.
            ExecutionError: nothing can be recorded there, or a recording goes on.
            BoundsError, BudgetError: as `start`.
        """
        scope = entry_point("program.scope")
        return scope(self, seed, turns, folder=folder, devices=devices)

    def collector(
        self,
        params: Any = None,
        *,
        envs: int | None = None,
        steps: int | None = None,
        env: Any = None,
        **options: Any,
    ) -> Any:
        """The half of this program that acts, for a learner outside: its policy in its environment.

        Args:
            params: the weights: a result, `result.policy()`, or arrays by name; by default those that the
                program begins with.
            envs, steps: how many environments, and steps of each in a batch; those of the program by
                default.
            env: another environment than that which the program resets first.
            options: those of `trl.collect`, such as `seed` and `how`.

        Returns:
            a `Collector`, as `trl.collect` does.

        Raises:
            OptionError: the program does not say by what it acts, or has no environment.
            ShapeError: the weights are not those of its policy.
        """
        collector = entry_point("program.collector")
        return collector(self, self._owner, params, env, envs, steps, **options)

    def explore(self, other: Program | None = None, **options: Any) -> Any:
        """The explorer of this program: a widget for a notebook.

        Args:
            other: a program to compare it with.
            options: those of the explorer, such as the `stage` to begin with.

        Raises:
            MissingPartError: the widgets are not installed.
        """
        return entry_point("program.explore")(self, other, **options)

    def export_html(self, path: str | os.PathLike[str], title: str | None = None) -> Path:
        """Write the whole compilation as one HTML file, which needs nothing but a browser.

        Args:
            path: the file; it is written whole or not at all.
            title: the page's title; the bounds by default.

        Raises:
            OptionError: the path is a folder, or names no HTML file.
        """
        return entry_point("program.export_html")(self, path, title)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing("a program", name, dir(type(self)), PROGRAM)

    def __repr__(self) -> str:
        return f"Program({bounds_text(self.bounds)})\n{self.stages!r}"


def a_program(program: Any) -> Program:
    """The program itself.

    Raises:
        CallError: it is something else.
    """
    return expect_type(program, Program, "a compiled program", "ctx.compile({T: 100}) makes one.")


_ROUNDS: Final = 4  # of searching again with XLA's figure
# A warning is due if memory exceeds the estimate by both this factor and this number of bytes.
_PROMISED, _UNTOLD = 1.2, 1 << 20
_MEASURED: Final = 4  # turns that tuning looks at, in each of two runs


def _resize_bound(bound: int, value: int) -> int:
    """Another value of a bound; a ceiling stays one."""
    if not isinstance(bound, Ceiling):
        return value
    return Ceiling(value, bound.until, raised=bound.raised)


class _Enough(Exception):
    """A run that is measured has gone far enough."""


def _effect(ops: Iterable[Op]) -> Op | None:
    """An operation that has effects on the host."""
    for op in ops:
        resource = isinstance(op.attrs, UdfAttrs) and op.attrs.resource is not None
        if resource or op.kind in ("call", "checkpoint"):
            return op
    return None


# Where no ceiling is given, a dimension that has not ended at so many points is taken to have no end.
_LONGEST: Final = 1 << 17


def _asks_for_ceiling(name: str, bound: int, why: str, origin: Origin | None = None) -> BoundsError:
    assert isinstance(bound, Ceiling)
    return BoundsError(
        f"the bound {name} has no ceiling, and a run that reaches the one assumed is made again: {why}.",
        origin=origin,
        hint=f"give one: {{{name}: trl.until({bound.until}, at_most=500)}}.",
    )


def _shows_progress(progress: bool | None) -> bool:
    """Whether progress is shown, if it was not said."""
    return progress_by_default() if progress is None else progress


def _check_dims(pdg: Pdg, options: Options) -> None:
    tile = () if options.tile_size is None else options.tile_size[:1]
    named = {
        "vectorize": options.vectorize,
        "incrementalize": _block_dims(options.blocks),
        "tile": tile,
    }
    for option, names in named.items():
        for name in () if isinstance(names, bool) else names:
            if name not in pdg.dims:
                known = ", ".join(pdg.dims.names)
                raise OptionError(
                    f"{option} names {name!r}, which is no dimension of the program.",
                    hint=f"the dimensions are {known}.",
                )


def _check_effect(options: Options, bounds: Mapping[str, int]) -> None:
    """Refuse options without effect alongside other options, or under the bounds."""
    given = {
        "tile": options.tile is not False,
        "tile_kernel": options.tile_kernel is not False,
        "fuse_iterations": options.fuse_iterations > 1,
    }
    why = hint = ""
    for name in (name for name in given if given[name]):
        if (
            options.asks_for_interpreter and not options.check_nan
        ):  # a search for a NaN changes one option
            why = 'the interpreter runs the program, as executor="interpret" says'
            hint = f'leave out {name}, or let executor="xla" run the program.'
        elif name == "tile_kernel" and options.tile is False:
            why, hint = "no loop runs in blocks without tile", 'give a tile, such as tile="auto".'
        elif name == "fuse_iterations" and any(isinstance(n, Endless) for n in bounds.values()):
            why = "a program without an end hands out values after each iteration"
            hint = "leave out fuse_iterations."
        if why:
            value: Any = getattr(options, name)
            value = dict(value) if isinstance(value, tuple) else value
            raise OptionError(f"{name}={value!r} does nothing: {why}.", hint=hint)
    if options.tune and options.incrementalize != "auto" and options.rematerialize != "auto":
        raise OptionError(
            "tune=True does nothing: incrementalize and rematerialize are given.",
            hint='leave one of them at "auto", or leave out tune.',
        )


def _block_dims(blocks: int | Blocks | None) -> tuple[str, ...]:
    """The dimensions that block sizes are given for."""
    return tuple(name for name, _ in blocks) if isinstance(blocks, tuple) else ()


def _long_windows(
    plan: MemoryPlan, constraints: Constraints, options: Options
) -> list[tuple[str, Origin | None]]:
    """Where every point of a loop gathers a slice that grows with a bound."""
    dims, found = constraints.pdg.dims, list[tuple[str, Origin | None]]()
    off = [name for name in ("lift", "vectorize") if getattr(options, name) is not True]
    advice = (
        f"Switch {' and '.join(off)} on, or shorten the slice." if off else "Shorten the slice."
    )
    for op in constraints.statements.ops.values():
        own = {d for d in op.domain if dims[d].step == 1}  # blocks are long on purpose
        for slot, read in enumerate(op.inputs):
            moving = [e for e in read.index if isinstance(e, Slice) and e.length.symbols & own]
            span = plan.sizes.span(op, read)
            if moving and span > 64 and not is_picked(op, slot):
                source = constraints.pdg[read.source]
                text = (
                    f"{source.name} is read in slices [{moving[0]}] of up to {span} points at every "
                    f"point of ({', '.join(op.domain)}): padded to {span} each time. {advice}"
                )
                found.append((text, _reader(op, slot).origin))
    return found


def _reader(op: Op, slot: int) -> Op:
    """The operation that reads an operand, of those in a kernel."""
    if not isinstance(op.attrs, DataflowAttrs):
        return op
    inside = (one for one in op.attrs.body for r in one.inputs if r.tensor == (OPERAND, slot))
    return next(inside, op)
