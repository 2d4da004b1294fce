"""Trainables for Ray Tune: each trial runs a program, reports its outputs, and resumes from Tune's checkpoints."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.driver.program import Program
from timerl_nb.logs.optional_packages import part
from timerl_nb.runtime.state.run_folder import RunFolder
from timerl_nb.tune.row_stream import RowStream, warn_of_nan
from timerl_nb.tune.trial_arguments import (
    Seed,
    check_every,
    check_function,
    program_of,
    seed_of_trial,
)

_RUN: Final = "run"  # the run's folder in a checkpoint of Tune
_LAST: Final = "last_row.json"
_NEVER: Final = "1000000h"  # a run is saved when it is stopped


@explain_call_errors
def trainable(
    program: Callable[[dict[str, Any]], Program],
    metric: str,
    *,
    seed: Seed = 0,
    every: int = 1,
    stop_at_nan: bool = True,
) -> type[Any]:
    """Return a trainable for `ray.tune.Tuner`. Each trial runs a program, and reports its outputs.

    If the scheduler stops a trial, the run ends after the last reported iteration. Tune writes the checkpoints: set
    their frequency with `CheckpointConfig(checkpoint_frequency=…)`. With `FailureConfig(max_failures=…)`, a trial
    continues from its last checkpoint after the death of its worker.

    Args:
        program: a function from a configuration (a dictionary) to a compiled program.
        metric: the output for comparisons by the scheduler, with one number per iteration. With several seeds, the mean over
            them is reported. The other outputs with one number per iteration are reported too.
        seed: the seed of every run, or a function of the configuration.
        every: the minimal number of iterations between two reports. Tune's `training_iteration` is the number of
            reports.
        stop_at_nan: end a trial after a report of NaN. `ResultGrid.get_best_result` ignores such trials.

    Returns:
        A subclass of `ray.tune.Trainable`.

    Raises:
        MissingPartError: Ray Tune is not installed.
        CallError: `program` is not a function, or does not return a program (in a trial).
        OptionError: the metric does not exist (in a trial), or an argument is invalid.

    Example:
        >>> def program(config):
        ...     return trl.algorithms.reinforce(lr=config["lr"]).compile({"B": 8, "I": 100, "T": 50})
        >>> tuner = tune.Tuner(trl.tune.trainable(program, "return"))  # doctest: +SKIP
    """
    check_function(program, "a configuration")
    check_every(every)
    tune = part("ray.tune", "tune", "trl.tune.trainable")
    duplicate, named_by_tune = tune.result.RESULT_DUPLICATE, {*tune.result.AUTO_RESULT_KEYS, "done"}

    class ProgramTrainable(tune.Trainable):  # pickled by value, so that workers need not import it
        def setup(self, config: dict[str, Any]) -> None:
            self._trial = TrialRun(program, metric, seed, every, config)

        def step(self) -> dict[str, Any]:
            found = self._trial.next_row()
            if found is None:  # Tune repeats the last result, marked as the end
                return {duplicate: True}
            row = {name: x for name, x in found.items() if name not in named_by_tune}
            if stop_at_nan and math.isnan(found[metric]):
                warn_of_nan("the trial", metric, self._trial.last)
                return {**row, "done": True}
            return row

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self._trial.save(Path(checkpoint_dir))

        def load_checkpoint(self, checkpoint: str) -> None:
            self._trial.load(Path(checkpoint))

        def cleanup(self) -> None:
            self._trial.close()

    return ProgramTrainable


class TrialRun:
    """Run of one trial, in steps from one report to the next.

    A run is saved by stopping it. The next step resumes it. A program that cannot be saved continues, and its checkpoint
    has the last reported iteration only: another process runs it again from the beginning, with the same values.
    """

    def __init__(
        self,
        program: Callable[[dict[str, Any]], Program],
        metric: str,
        seed: Seed,
        every: int,
        config: dict[str, Any],
    ) -> None:
        self._function, self._config = program, config
        self._metric, self._seed, self._report_every = metric, seed, every
        self._program: Program | None = None
        self._rows: RowStream | None = None
        self.last = -1  # the point of the last reported row
        self._scratch = TemporaryDirectory(prefix="timerl-tune-")
        self._folder = Path(self._scratch.name) / _RUN
        self._is_saved = True  # whether the program can be saved

    def next_row(self) -> Mapping[str, Any] | None:
        """Return the next reported row, with the mean over the seeds; None after the last one.

        Raises:
            TimeRLError: the program does not compile, or the run fails.
            ExecutionError: the run ended without a row that has the metric.
        """
        if self._rows is None:
            self._rows = self._start()
        found = next(self._rows, None)
        if found is not None:
            self.last = found.point
            return {**found.row, self._metric: found.value}
        self._rows.result()
        if self.last < 0:
            raise ExecutionError(
                f"the run ended without a value of {self._metric!r}.",
                hint="run more iterations, or compute the output in more of them.",
            )
        return None

    def _start(self) -> RowStream:
        if self._program is None:
            self._program = program_of(self._function, self._config)
        program, following = self._program, (self._metric, self._report_every, self.last)
        if not RunFolder(self._folder).is_empty:
            return RowStream(program, *following, resume=self._folder, every=_NEVER)
        seed = seed_of_trial(self._seed, self._config)
        try:
            return RowStream(program, *following, seed=seed, checkpoint=self._folder, every=_NEVER)
        except OptionError:  # some programs cannot be saved, but they can run
            rows = RowStream(program, *following, seed=seed)
            self._is_saved = False
            return rows

    def save(self, folder: Path) -> None:
        """Save the run after its last reported row."""
        if self._is_saved:
            self._stop()
            if self._folder.exists():
                shutil.copytree(self._folder, folder / _RUN)
        about = {"last": self.last, "config": repr(self._config)}
        (folder / _LAST).write_text(json.dumps(about))

    def load(self, folder: Path) -> None:
        """Continue from a saved run at the next step.

        Raises:
            ExecutionError: the checkpoint has no state, and is of a trial with another configuration.
        """
        about = json.loads((folder / _LAST).read_text())
        own = repr(self._config)
        if about["last"] >= 0 and not (folder / _RUN).exists() and about.get("config", own) != own:
            raise ExecutionError(
                "the checkpoint is of a trial with another configuration, and has no state.",
                evidence=[f"config: {about['config']} in the checkpoint, {own} here"],
                hint="choose a scheduler that does not copy checkpoints between trials.",
            )
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        if (folder / _RUN).exists():
            shutil.copytree(folder / _RUN, self._folder)
        self.last = about["last"]

    def close(self) -> None:
        """Stop the run, and delete its folder."""
        self._stop()
        self._scratch.cleanup()

    def _stop(self) -> None:
        if self._rows is not None:
            with self._rows:
                self._rows = None
