"""Objective functions for Optuna: each trial runs a program and reports a metric."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import CallError, ExecutionError, OptionError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.driver.program import Program
from timerl_nb.execution.results.final_means import final_means
from timerl_nb.execution.results.run_result import Result
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


@explain_call_errors
def objective(
    program: Callable[[Any], Program],
    metric: str,
    *,
    seed: Seed = 0,
    every: int = 1,
    value: Callable[[Result], Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    stop_at_nan: bool = True,
) -> Callable[[Any], Any]:
    """Return an objective for `study.optimize`. Each trial runs a program, and reports a metric of its iterations.

    If the pruner rejects a trial, the run ends after the last reported iteration.

    Args:
        program: a function from an `optuna.Trial` to a compiled program.
        metric: the reported output, with one number per iteration. With several seeds, their mean is reported.
        seed: the seed of every run, or a function of the trial.
        every: the minimal number of iterations between two reports.
        value: the value of a finished trial, a function of the result. By default it is the mean of the metric
            over the last tenth of the iterations. In a study with several objectives, the function returns one number
            per objective, and nothing is reported to the pruner.
        folder: the folder for the saved states and logs of all trials, also of pruned ones. Each trial has a subfolder,
            for example `trial-00003`. The trial's user attribute `folder` is the path of this subfolder.
        stop_at_nan: end a trial after a report of NaN. Optuna marks it as failed, and the study continues.

    Returns:
        A function from a trial to its value, or to its values in a study with several objectives.

    Raises:
        MissingPartError: Optuna is not installed.
        CallError: `program` is not a function, or does not return a program, or `value` does not return numbers (in a
            trial).
        ExecutionError: the folder has a trial of another study (in a trial).
        OptionError: the metric does not exist (in a trial), or an argument is invalid.

    Example:
        >>> def program(trial):
        ...     lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        ...     return trl.algorithms.reinforce(lr=lr).compile({"B": 8, "I": 100, "T": 50})
        >>> study.optimize(trl.tune.objective(program, "return"), n_trials=20)  # doctest: +SKIP
    """
    check_function(program, "a trial")
    check_every(every)
    within = None if folder is None else user_path(folder)
    optuna = part("optuna", "optuna", "trl.tune.objective")

    def run_trial(trial: Any) -> Any:
        count = _objectives_of(trial)
        if count > 1 and value is None:
            raise OptionError(
                f"a study with {count} objectives needs {count} values per trial.",
                hint="pass value=, a function from the result to as many numbers.",
            )
        compiled = program_of(program, trial)
        options: dict[str, Any] = {"seed": seed_of_trial(seed, trial)}
        if within is not None:
            path = within / f"trial-{trial.number:05}"
            if not RunFolder(path).is_empty:
                raise ExecutionError(
                    f"{path} has a trial of another study.",
                    hint="choose another folder= for this study, or continue the other one with storage=.",
                )
            options.update(checkpoint=path, log=path)
            trial.set_user_attr("folder", os.fspath(path))
        with RowStream(compiled, metric, every, **options) as rows:
            for row in rows:
                if count == 1:  # Optuna accepts no reports with several objectives
                    trial.report(row.value, row.point)
                    if trial.should_prune():
                        raise optuna.TrialPruned(
                            f"{metric} = {row.value:g} at iteration {row.point}"
                        )
                if stop_at_nan and math.isnan(row.value):
                    warn_of_nan(f"trial {trial.number}", metric, row.point)
                    return _numbers([math.nan] * count, count)
            result = rows.result()
        if value is None:
            return float(final_means(result)[metric])
        found = value(result)
        return _numbers(found if count > 1 else [found], count)

    return run_trial


def _objectives_of(trial: Any) -> int:
    """Return the number of objectives of a trial's study; 1 for a trial without a study."""
    study = getattr(trial, "study", None)
    return 1 if study is None else len(study.directions)


def _numbers(found: Any, count: int) -> float | tuple[float, ...]:
    """Return the values of a trial as numbers of Python.

    Raises:
        CallError: they are not as many numbers as the study has objectives.
    """
    try:
        numbers = tuple(float(x) for x in found)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != count:
        what = type(found if count > 1 else found[0]).__name__
        raise CallError(
            f"value= returned {what}, not {format_count(count, 'number')}.",
            hint="reduce the result, for example lambda result: result['loss'][-1].",
        )
    return numbers if count > 1 else numbers[0]
