"""Objective functions for Optuna: each trial runs a program and reports a metric."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from timerl_nb.base.atomic_files import user_path
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.driver.program import Program
from timerl_nb.execution.results.final_means import final_means
from timerl_nb.execution.results.run_result import Result
from timerl_nb.logs.optional_packages import part
from timerl_nb.tune.row_stream import RowStream
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
    value: Callable[[Result], float] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Callable[[Any], float]:
    """Return an objective for `study.optimize`. Each trial runs a program, and reports a metric of its iterations.

    If the pruner rejects a trial, the run ends after the last reported iteration.

    Args:
        program: a function from an `optuna.Trial` to a compiled program.
        metric: the reported output, with one number per iteration. With several seeds, their mean is reported.
        seed: the seed of every run, or a function of the trial.
        every: the minimal number of iterations between two reports.
        value: the value of a finished trial, a function of the result. By default it is the mean of the metric
            over the last tenth of the iterations.
        folder: the folder for the saved states and logs of all trials, also of pruned ones. Each trial has a subfolder,
            for example `trial-00003`. The trial's user attribute `folder` is the path of this subfolder.

    Returns:
        A function from a trial to its value.

    Raises:
        MissingPartError: Optuna is not installed.
        CallError: `program` is not a function, or does not return a program (in a trial).
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

    def run_trial(trial: Any) -> float:
        compiled = program_of(program, trial)
        options: dict[str, Any] = {"seed": seed_of_trial(seed, trial)}
        if within is not None:
            path = within / f"trial-{trial.number:05}"
            options.update(checkpoint=path, log=path)
            trial.set_user_attr("folder", os.fspath(path))
        with RowStream(compiled, metric, every, **options) as rows:
            for row in rows:
                trial.report(row.value, row.point)
                if trial.should_prune():
                    raise optuna.TrialPruned(f"{metric} = {row.value:g} at iteration {row.point}")
            result = rows.result()
        return float(final_means(result)[metric] if value is None else value(result))

    return run_trial
