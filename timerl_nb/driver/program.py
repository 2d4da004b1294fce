"""Compiled programs: their stages, and ways to run them, or to compile them differently."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.options import Options
from timerl_nb.base.runtime_events import Recorder
from timerl_nb.compiler.language.foreign_names import PROGRAM, all_asked, expect_type, missing
from timerl_nb.compiler.passes.pass_pipeline import Pipeline
from timerl_nb.compiler.symbolic.dimensions import bounds_text
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program_compilation import compile_program
from timerl_nb.driver.program_hooks import made_known, run_begins
from timerl_nb.driver.program_runs.iteration_timing import measure_iteration
from timerl_nb.driver.program_runs.program_run import make_run, run_to_end, start_run
from timerl_nb.driver.program_runs.run_preparation import (
    PreparedRun,
    RunRequest,
    prepare_unbounded_run,
    prepare_watched_run,
    prepare_whole_run,
)
from timerl_nb.driver.program_runs.stepped_run import SteppedRun
from timerl_nb.driver.program_runs.unbounded_run import (
    check_unbounded,
    iterate,
    why_not_repeatable,
)
from timerl_nb.driver.program_variation import raise_reached_ceiling, vary
from timerl_nb.driver.search.measured_plan_tuning import Tuning
from timerl_nb.driver.stage_artifacts import StageArtifacts
from timerl_nb.driver.stages import UNOBSERVED, CompileObserver, Stages
from timerl_nb.execution.control.background_run import Running
from timerl_nb.execution.control.unbounded_iterations import Turns
from timerl_nb.execution.results.run_result import Result
from timerl_nb.runtime.interpreter.interpreter import Instruction
from timerl_nb.runtime.run_protocol import RunProtocol


@all_asked
class Program(StageArtifacts):
    """A compiled program: every stage a value, and ways to run it."""

    def __init__(self, compiled: Compilation) -> None:
        self._compiled = compiled
        self._stepped = SteppedRun()
        self._longer: Program | None = None  # under a greater ceiling, once a run has reached ours

    @property
    def options(self) -> Options:
        """The decisions of the compilation; with `tune`, the fastest ones."""
        return self._compiled.options

    @property
    def bounds(self) -> dict[str, int]:
        """The actual bounds, by name."""
        return self._compiled.bounds

    @property
    def stages(self) -> Stages:
        """Every stage of the compilation in order, by name."""
        return self._compiled.stages

    @property
    def tuning(self) -> Tuning | None:
        """The measurements of `tune`; None without it."""
        return self._compiled.tuning

    def turn_seconds(self) -> float:
        """The least time that a turn of the outermost loop takes, of a few turns that are run.

        Raises:
            BudgetError: it needs more memory than the machine has.
            OptionError: it has effects on the host, which a run to measure it would have, too.
        """
        self._compiled, seconds = measure_iteration(self._compiled)
        return seconds

    # --- the stages by name ----------------------------------------------------------------------

    @property
    def pipeline(self) -> Pipeline:
        """The passes that ran, in order; prints as one line."""
        return self._compiled.pipeline

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the program slower or larger than it need be, and what to do about it."""
        found = self._compiled.warnings
        return tuple(f"{at.place}: {text}" if at else text for text, at in found)

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
        observer: CompileObserver = UNOBSERVED,
        tell: bool = True,
    ) -> Program:
        """The same program under other bounds and options, as `with_bounds` and `with_options` say.

        Args:
            observer: gets every stage that is not kept, in order, as soon as it is there.
            tell: issue the program's `warnings`.
        """
        request, front = vary(self._compiled, bounds, options)
        compiled = compile_program(request, front, observer)
        if tell:
            compiled.issue_warnings()
        return made_known(Program(compiled))

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
        request = RunRequest(
            seed, on_event, outputs, checkpoint, every, resume, log, given, progress=progress
        )
        prepared = self._adopt_compilation(prepare_whole_run(self._compiled, request))
        result = run_to_end(prepared)
        varied = raise_reached_ceiling(prepared.compiled, result.lengths)
        if varied is None:
            return result
        if self._longer is None:
            self._longer = Program(compile_program(*varied))
        return self._longer.execute(seed, progress=progress, outputs=outputs, given=given)

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
        request = RunRequest(seed, checkpoint=checkpoint, every=every, resume=resume)
        check_unbounded(self._compiled, given, saved=request.is_saved, repeatable=repeatable)
        prepared = self._adopt_compilation(prepare_unbounded_run(self._compiled, request))
        return iterate(prepared, given, taken, repeatable=repeatable)

    @property
    def why_not_repeatable(self) -> str | None:
        """Why no turn can be made anew; None where each can."""
        return why_not_repeatable(self._compiled)

    def resume(self, folder: str | os.PathLike[str], **options: Any) -> Result:
        """Go on with the run that was saved in a folder: `execute(resume=folder)`.

        Args:
            options: those of `execute`.
        """
        return self.execute(resume=folder, **options)

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
        request = RunRequest(seed, on_event, given=given)
        prepared = self._adopt_compilation(prepare_watched_run(self._compiled, request))
        compiled, first, supply = prepared.compiled, prepared.seed, prepared.supply
        return make_run(compiled, first, progress, on_event, on_call, waits=waits, supply=supply)

    def _adopt_compilation(self, prepared: PreparedRun) -> PreparedRun:
        """The same run; its compilation replaces ours if XLA's figure made another plan necessary."""
        self._compiled = prepared.compiled
        return prepared

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
        request = RunRequest(seed, on_event, outputs, checkpoint, every, resume, log, given)
        prepared = self._adopt_compilation(prepare_watched_run(self._compiled, request))
        return start_run(prepared, paused=bool(paused), speed=speed)

    def step(self, seed: int = 0) -> Instruction | None:
        """Run one instruction; None at the end of the program, after which it starts over.

        It does so after an instruction that failed, too; until then `stores` has what that left.

        Args:
            seed: of all random streams; counts at the first instruction.
        """
        if not self._stepped.has_begun:
            run_begins(self)
        return self._stepped.step(self._compiled, seed)

    @property
    def stores(self) -> dict[str, dict[Any, Any]]:
        """What a stepped run holds now: by tensor, values by point."""
        return self._stepped.stores

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
        return collector(self, self._compiled.owner, params, env, envs, steps, **options)

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
