"""The public `Program`: a compiled program with its stages, and methods to run or recompile it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from timerl_nb.base.display_registry import list_public
from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.options import Options
from timerl_nb.base.runtime_events import Recorder
from timerl_nb.compiler.language.foreign_names import (
    PROGRAM,
    expect_type,
    explain_method_errors,
    missing,
)
from timerl_nb.compiler.passes.pass_pipeline import Pipeline
from timerl_nb.compiler.symbolic.dimensions import bounds_text
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program_compilation import compile_program
from timerl_nb.driver.program_hooks import announce_program, run_begins
from timerl_nb.driver.program_runs.iteration_replay import LiveValues, replay_iteration
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


@list_public(
    "ast bounds collector executable execute explore export_html fused memory options pdg "
    "pipeline resume schedule scope seeds stages start step stores tuning turns warnings "
    "with_bounds with_options"
)
@explain_method_errors
class Program(StageArtifacts):
    """A compiled program, made by `ctx.compile`.

    Every stage is a value with a text and a picture: `pdg`, `schedule`, `memory`, `ast` and `executable`.
    `stages` contains all of them, with the passes.

    Example:
        >>> x = trl.data(np.arange(3.0), domain=t)
        >>> ctx.output("y", x + 1.0)
        >>> program = ctx.compile({B: 1, I: 1, T: 3})
        >>> program.execute(progress=False)["y"].tolist()
        [1.0, 2.0, 3.0]
        >>> list(program.stages)[:3]
        ['source', 'pdg', 'simplify']
    """

    def __init__(self, compiled: Compilation) -> None:
        self._compiled = compiled
        self._stepped = SteppedRun()
        # compiled with a larger ceiling, after a run has reached this one
        self._longer: Program | None = None

    @property
    def options(self) -> Options:
        """The options; with `tune`, the fastest ones."""
        return self._compiled.options

    @property
    def bounds(self) -> dict[str, int]:
        """The actual bounds, by name."""
        return self._compiled.bounds

    @property
    def stages(self) -> Stages:
        """All stages in order, by name."""
        return self._compiled.stages

    @property
    def tuning(self) -> Tuning | None:
        """The measurements of `tune`; None without it."""
        return self._compiled.tuning

    def turn_seconds(self) -> float:
        """Run a few iterations of the outermost loop, and return the shortest duration in seconds.

        Raises:
            BudgetError: the program needs more memory than the machine has.
            OptionError: the program has effects on the host, which the measurement would repeat.

        Example:
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> ctx.output("y", x + 1.0)
            >>> ctx.compile({B: 1, I: 1, T: 3}).turn_seconds() > 0.0
            True
        """
        self._compiled, seconds = measure_iteration(self._compiled)
        return seconds

    # --- the stages by name ----------------------------------------------------------------------

    @property
    def pipeline(self) -> Pipeline:
        """The executed passes, in order; prints as one line."""
        return self._compiled.pipeline

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about avoidable costs of time or memory, each with a remedy."""
        found = self._compiled.warnings
        return tuple(f"{at.place}: {text}" if at else text for text, at in found)

    # --- recompilation ---------------------------------------------------------------------------

    def with_options(self, **changes: Any) -> Program:
        """Compile the same program with some options changed.

        Args:
            changes: the changed options, by name; see `trl.Options`.

        Raises:
            OptionError: an option does not exist, or does not take the value.

        Example:
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> ctx.output("y", x + 1.0)
            >>> program = ctx.compile({B: 1, I: 1, T: 3})
            >>> program.with_options(vectorize=False).options.vectorize
            False
        """
        return self.again(options=changes)

    def with_bounds(self, bounds: Mapping[Any, int]) -> Program:
        """Compile the same program under other bounds.

        Passes and schedule are reused, unless they depend on the bounds: for a memory budget, for block
        sizes that fit a CPU cache, or if no order of execution holds for all bounds.

        Args:
            bounds: the changed bounds, by symbol or name. Change the ceiling of a dynamic bound by
                `trl.until` with the same condition.

        Raises:
            BoundsError: a bound is unknown, or of another kind than before.

        Example:
            >>> x = trl.data(np.arange(8.0), domain=t)
            >>> ctx.output("y", x + 1.0)
            >>> program = ctx.compile({B: 1, I: 1, T: 3})
            >>> program.with_bounds({T: 5}).bounds["T"]
            5
        """
        return self.again(bounds=bounds)

    def again(
        self,
        *,
        bounds: Mapping[Any, int] | None = None,
        options: Mapping[str, Any] | None = None,
        observer: CompileObserver | None = None,
        tell: bool = True,
    ) -> Program:
        """Compile the same program under other bounds and options, like `with_bounds` and `with_options`.

        Args:
            bounds: the changed bounds, by symbol or name.
            options: the changed options, by name.
            observer: receives every new stage, in order.
            tell: whether warnings are issued.

        Example:
            >>> x = trl.data(np.arange(8.0), domain=t)
            >>> ctx.output("y", x + 1.0)
            >>> program = ctx.compile({B: 1, I: 1, T: 3})
            >>> program.again(bounds={T: 5}, options={"fuse": False}).bounds["T"]
            5
        """
        request, front = vary(self._compiled, bounds, options)
        compiled = compile_program(request, front, observer or UNOBSERVED)
        if tell:
            compiled.issue_warnings()
        return announce_program(Program(compiled))

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
        gather: bool = True,
    ) -> Result:
        """Run the program to its end, and return its outputs.

        Args:
            seed: the seed of all random streams. Equal seeds give equal results. For a program with several
                seeds, it is the first one.
            progress: whether to show a progress bar over the outermost loop; None for the default.
            on_event: called with every read, write, deallocation and launch. Events require the
                interpreter, which is slower.
            outputs: names of the outputs to return; all by default.
            checkpoint: a folder in which the run saves its state, for a later `resume`.
            every: the interval of saving: a number of iterations, or a time; the default is "5min".
            resume: a folder with a saved run of this program, to continue and to save as before.
            log: the destination of outputs with one number per iteration: a folder for `log.csv` and
                `log.jsonl`, a function of a row, a logger from `trl.logs`, or a list of these.
            given: arrays for `trl.given`, by name, with iterations as the first axis.
            gather: whether the processes of a distributed program exchange their parts of the outputs. With False,
                `result.local` has the part of this process.

        Returns:
            the outputs and final parameters.

        Raises:
            BoundsError: a dynamic bound without a ceiling never ends, or its run cannot be repeated.
            BudgetError: the program needs more memory than the machine has.
            OptionError: an output does not exist, an argument is invalid, or the run cannot be saved.
            ExecutionError: a folder is in use or not writable, or its content is damaged or belongs to
                another program.

        Example:
            >>> x = trl.random.normal((), domain=t)
            >>> ctx.output("x", x)
            >>> program = ctx.compile({B: 1, I: 1, T: 3})
            >>> one, two = (program.execute(seed=7, progress=False) for _ in range(2))
            >>> bool((one["x"] == two["x"]).all())
            True
        """
        run_begins(self)
        request = RunRequest(
            seed, on_event, outputs, checkpoint, every, resume, log, given, progress, bool(gather)
        )
        prepared = self._adopt_compilation(prepare_whole_run(self._compiled, request))
        result = run_to_end(prepared)
        varied = raise_reached_ceiling(prepared.compiled, result.lengths)
        if varied is None:
            return result
        if self._longer is None:
            self._longer = Program(compile_program(*varied))
        return self._longer.execute(
            seed, progress=progress, outputs=outputs, given=given, gather=gather
        )

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
        """Run a program over an unbounded dimension (`trl.endless`), one iteration of the outermost loop at a
        time.

        Args:
            seed: the seed of all random streams. The first n iterations equal a run of n iterations, bit
                for bit.
            given: values of `trl.given` for each iteration, by name; the run ends with this iterable.
            checkpoint: as for `execute`.
            every: as for `execute`.
            resume: as for `execute`.
            taken: converts each output array; by default to NumPy.
            repeatable: whether an interrupted iteration can be repeated: `hold()` copies the carried
                values, and `back()` repeats the next iteration and reads `given` again.

        Returns:
            an iterator over the outputs of each iteration, by name. Its method `close()` frees the run.

        Raises:
            OptionError: the program has no unbounded dimension, or an argument is invalid.
            BudgetError: the program needs more memory than the machine has.
            ExecutionError: as for `execute`; later, a value of `given` has another shape or type.

        Example:
            >>> with trl.Context("t") as ctx:
            ...     ((t, T),) = ctx.dims
            ...     x = trl.tensor((), domain=t)
            ...     x[0] = 1.0
            ...     x[t + 1] = 2.0 * x[t]
            ...     ctx.output("x", x)
            >>> turns = ctx.compile({T: trl.endless}).turns()
            >>> [float(next(turns)["x"]) for _ in range(3)]
            [1.0, 2.0, 4.0]
            >>> turns.close()
        """
        run_begins(self)
        request = RunRequest(seed, checkpoint=checkpoint, every=every, resume=resume)
        check_unbounded(self._compiled, given, saved=request.is_saved, repeatable=repeatable)
        prepared = self._adopt_compilation(prepare_unbounded_run(self._compiled, request))
        return iterate(prepared, given, taken, repeatable=repeatable)

    @property
    def why_not_repeatable(self) -> str | None:
        """The reason why no iteration can be repeated; None if all can."""
        return why_not_repeatable(self._compiled)

    def resume(
        self,
        folder: str | os.PathLike[str],
        *,
        bounds: Mapping[Any, int] | None = None,
        **options: Any,
    ) -> Result:
        """Continue a saved run, like `execute(resume=folder)`.

        With a greater bound of the outermost dimension, also a finished run continues. Its result equals
        that of a run with this bound from the beginning.

        Args:
            folder: the folder of the saved run.
            bounds: changed bounds, as for `with_bounds`; the program is compiled again.
            options: further arguments of `execute`.

        Raises:
            ExecutionError: the run belongs to another program, or the program reads the changed bound.

        Example:
            >>> i_total = trl.tensor((), domain=i)
            >>> i_total[0] = 0.0
            >>> i_total[i + 1] = i_total[i] + 1.0
            >>> ctx.output("total", i_total)
            >>> program = ctx.compile({B: 1, I: 4, T: 1}, trl.Options(executor="interpret", lift=False))
            >>> saved = program.execute(checkpoint="run", every=2, progress=False)
            >>> program.resume("run", progress=False)["total"].tolist()
            [0.0, 1.0, 2.0, 3.0]
            >>> program.resume("run", bounds={I: 6}, progress=False)["total"].tolist()
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        """
        if bounds is not None:
            return self.with_bounds(bounds).resume(folder, **options)
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
        """Return a run that has not started, for callers that control and observe it.

        Args:
            seed: the seed of all random streams.
            on_event: called by the interpreter with every read, write, deallocation and launch.
            on_call: called with every XLA call and host function; under the interpreter, with every event.
            progress: called after every iteration of the outermost loop; for several iterations at once,
                with their number.
            waits: whether to wait for the end of every reported call. If False, calls and kernels are
                reported as launches, and the final wait as one event.
            given: as for `execute`.

        Raises:
            BoundsError: a dynamic bound has no ceiling, so the run might have to be repeated.
            BudgetError: the program needs more memory than the machine has.

        Example:
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> ctx.output("y", x + 1.0)
            >>> run = ctx.compile({B: 1, I: 1, T: 3}).begin()
            >>> run.complete()
            >>> freed = run.release()
        """
        run_begins(self)
        request = RunRequest(seed, on_event, given=given)
        prepared = self._adopt_compilation(prepare_watched_run(self._compiled, request))
        compiled, first, supply = prepared.compiled, prepared.seed, prepared.supply
        return make_run(compiled, first, progress, on_event, on_call, waits=waits, supply=supply)

    def _adopt_compilation(self, prepared: PreparedRun) -> PreparedRun:
        """Return the run, and adopt its compilation, which may have another plan because of XLA's figure."""
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
        pause_when: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | str | None = None,
        resume: str | os.PathLike[str] | None = None,
        log: Any = None,
        given: Mapping[str, Any] | None = None,
    ) -> Running:
        """Run the program on a background thread, and return a handle without waiting.

        Args:
            seed: the seed of all random streams; results equal those of `execute`.
            on_event: called on the background thread with every read, write, deallocation and launch
                (slower).
            outputs: names of the outputs to return; all by default.
            paused: whether to wait before the first iteration.
            speed: the largest number of iterations per second.
            pause_when: a condition on which the run pauses, as for `Running.pause_when`.
            checkpoint: as for `execute`.
            every: as for `execute`.
            resume: as for `execute`.
            log: as for `execute`.
            given: as for `execute`.

        Returns:
            a handle with `pause()`, `stop()`, `wait()`, `frame` and `result()`.

        Raises:
            BoundsError: a dynamic bound has no ceiling, so the run might have to be repeated.
            BudgetError: the program needs more memory than the machine has.
            OptionError: an output does not exist, an argument is invalid, or the run cannot be saved.
            ExecutionError: as for `execute`.

        Example:
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> ctx.output("y", x + 1.0)
            >>> running = ctx.compile({B: 1, I: 1, T: 3}).start()
            >>> running.result()["y"].tolist()
            [1.0, 2.0, 3.0]
        """
        run_begins(self)
        request = RunRequest(seed, on_event, outputs, checkpoint, every, resume, log, given)
        prepared = self._adopt_compilation(prepare_watched_run(self._compiled, request))
        return start_run(prepared, paused=bool(paused), speed=speed, pause_when=pause_when)

    def step(self, seed: int = 0) -> Instruction | None:
        """Run one instruction and return it; return None at the end of the program.

        After the end, and after a failed instruction, the next step starts a new run. Until then, `stores`
        shows the values.

        Args:
            seed: the seed of all random streams; read at the first instruction.

        Example:
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> ctx.output("y", x + 1.0)
            >>> program = ctx.compile({B: 1, I: 1, T: 3})
            >>> program.step() is None
            False
        """
        if not self._stepped.has_begun:
            run_begins(self)
        return self._stepped.step(self._compiled, seed)

    @property
    def stores(self) -> dict[str, dict[Any, Any]]:
        """The stored values of a stepped run, by tensor and point."""
        return self._stepped.stores

    def values_after(
        self, run: Running, launches: int | Callable[[Instruction], bool]
    ) -> dict[str, LiveValues]:
        """Return the values in memory after some launches of the iteration that a paused run begins next.

        The interpreter repeats these launches with the same seed; the run itself does not change.

        Args:
            run: a paused run of this program.
            launches: the number of launches since the beginning of the iteration, or a function of an executed
                instruction that is true for the last launch. A larger number means the end of the iteration.

        Raises:
            CallError: `run` is not a run.
            OptionError: `launches` is neither a non-negative integer nor a function.
            ExecutionError: the run has ended or not begun, belongs to another program, its program has effects
                on the host, or the iteration has no such launch.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 40, "T": 4})
            >>> with program.start(paused=True) as run:
            ...     run.step(3)
            ...     ok = run.wait()
            ...     values = program.values_after(run, 2)
            >>> values["return"].points.ravel().tolist()
            [0, 1, 2]
        """
        return replay_iteration(self._compiled, run, launches)

    # --- inspection ------------------------------------------------------------------------------

    def scope(
        self,
        seed: int = 0,
        turns: int | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        devices: int = 0,
    ) -> Any:
        """Run the program, and record its time by launch and by iteration.

        Phases are iterations of the outermost loop. Operations are launches of kernels, calls to XLA, and
        host functions. The recording adds no waits, so XLA's asynchronous work appears as the wait at the
        end. `trl.profile` measures single kernels.

        Args:
            seed: the seed of all random streams.
            turns: the number of iterations; None for all.
            folder: the folder of the recording; None for a temporary one, removed with the returned object.
            devices: the number of iterations with GPU traces, from the second one on.

        Returns:
            a `trl.scope.record` with `.table()` and `.read()`; `op_ids` of the latter maps launches to
            operations.

        Raises:
            OptionError: `turns` or `devices` is not a number of iterations.
            ExecutionError: the folder is not writable, or another recording is active.
            BoundsError, BudgetError: as for `start`.

        Example:
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> ctx.output("y", x + 1.0)
            >>> recording = ctx.compile({B: 1, I: 1, T: 3}).scope(turns=1)
            >>> table = recording.table()
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
        """Return a collector that runs the program's policy in its environment, for an external learner.

        Args:
            params: weights: a result, `result.policy()`, or arrays by name; by default the initial weights.
            envs: the number of environments; by default the program's.
            steps: the number of steps of each environment in a batch; by default the program's.
            env: another environment than the first one of the program.
            options: further arguments of `trl.collect`, such as `seed` and `how`.

        Returns:
            a `Collector`, like `trl.collect`.

        Raises:
            OptionError: the program has no declared policy or no environment.
            ShapeError: the weights do not fit the policy.

        Example:
            >>> program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 1, "T": 5})
            >>> with program.collector(how="scan") as collector:
            ...     collector.next().reward.shape
            (5, 2)
        """
        collector = entry_point("program.collector")
        return collector(self, self._compiled.owner, params, env, envs, steps, **options)

    def explore(self, other: Program | None = None, **options: Any) -> Any:
        """Return the explorer of this program, a notebook widget.

        Args:
            other: a program to compare with.
            options: arguments of the explorer, such as the first `stage`.

        Raises:
            MissingPartError: the widgets are not installed.

        Example:
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> ctx.output("y", x + 1.0)
            >>> explorer = ctx.compile({B: 1, I: 1, T: 3}).explore(stage="memory")  # doctest: +SKIP
        """
        return entry_point("program.explore")(self, other, **options)

    def export_html(self, path: str | os.PathLike[str], title: str | None = None) -> Path:
        """Write the whole compilation as one HTML file, readable in any browser.

        Args:
            path: the file, written atomically.
            title: the title of the page; by default the bounds.

        Returns:
            the path.

        Raises:
            OptionError: the path is a folder, or does not end in .html.

        Example:
            >>> x = trl.data(np.arange(3.0), domain=t)
            >>> ctx.output("y", x + 1.0)
            >>> ctx.compile({B: 1, I: 1, T: 3}).export_html("program.html").name
            'program.html'
        """
        return entry_point("program.export_html")(self, path, title)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing("a program", name, dir(type(self)), PROGRAM)

    def __repr__(self) -> str:
        return f"Program({bounds_text(self.bounds)})\n{self.stages!r}"


def a_program(program: Any) -> Program:
    """Return the argument if it is a program.

    Raises:
        CallError: it is something else.
    """
    return expect_type(program, Program, "a compiled program", "ctx.compile({T: 100}) makes one.")
