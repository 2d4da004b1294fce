"""Studies of Optuna. Needs Optuna (`requirements.peers.txt`)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.tuned import TURNS, descent
from timerl_nb.base.errors import (
    CallError,
    ExecutionError,
    OptionError,
    TimeRLError,
    TimeRLWarning,
)

optuna = pytest.importorskip(
    "optuna", reason="Optuna is not installed: pip install -r requirements.peers.txt"
)
optuna.logging.set_verbosity(optuna.logging.ERROR)


def program(trial: Any) -> trl.Program:
    return descent(trial.suggest_float("lr", 0.001, 2.0))


def study(rates: list[float], **options: Any) -> Any:
    made = optuna.create_study(**{"direction": "minimize", **options})
    for rate in rates:
        made.enqueue_trial({"lr": rate})
    return made


def states(made: Any) -> list[str]:
    return [trial.state.name for trial in made.trials]


def assert_curve(trial: Any, want: np.ndarray) -> None:
    """Check that a trial has one value per iteration."""
    assert [*trial.intermediate_values] == [*range(len(want))]
    np.testing.assert_array_equal(np.float32([*trial.intermediate_values.values()]), want)


def test_a_trial_has_every_row_and_the_mean_over_the_last_tenth() -> None:
    made = study([0.1])
    made.optimize(trl.tune.objective(program, "loss"), n_trials=1)
    whole = descent(0.1).execute(progress=False)["loss"]
    (trial,) = made.trials
    assert_curve(trial, whole)
    assert trial.value == float(whole[-1])


@pytest.mark.parametrize(("direction", "metric"), [("minimize", "loss"), ("maximize", "gain")])
def test_the_worse_trial_is_pruned_in_either_direction(
    direction: str, metric: str, tmp_path: Path
) -> None:
    pruner = optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=3)
    made = study([0.3, 0.01], direction=direction, pruner=pruner)
    objective = trl.tune.objective(program, metric, folder=tmp_path)
    made.optimize(objective, n_trials=2)
    assert states(made) == ["COMPLETE", "PRUNED"]
    ended = made.trials[1]
    assert [*ended.intermediate_values] == [0, 1, 2, 3]
    folder = Path(ended.user_attrs["folder"])
    assert folder == tmp_path / "trial-00001"
    *_, last = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    assert last["ended"] == "stopped" and last["turn"] == 4
    rest = descent(0.01).resume(folder, progress=False)  # the partial result is kept
    np.testing.assert_array_equal(rest["loss"], descent(0.01).execute(progress=False)["loss"])


def test_seeds_and_values_are_chosen_by_the_user() -> None:
    seen: list[Any] = []

    def value(result: trl.Result) -> float:
        seen.append(result["noisy"])
        return float(result["noisy"].min())

    made = study([0.1, 0.1])
    made.optimize(
        trl.tune.objective(
            program, "noisy", seed=lambda trial: 7 + trial.number, value=value, every=4
        ),
        n_trials=2,
    )
    for k, found in enumerate(seen):
        np.testing.assert_array_equal(
            found, descent(0.1).execute(seed=7 + k, progress=False)["noisy"]
        )
        assert made.trials[k].value == float(found.min())
        assert [*made.trials[k].intermediate_values] == [3, 7, 11]


def test_a_nan_fails_the_trial_and_the_study_continues() -> None:
    def diverging(trial: Any) -> trl.Program:
        return descent(trial.suggest_float("lr", 0.001, 1e30))

    whole = descent(1e30).execute(progress=False)["loss"]
    first = int(np.flatnonzero(np.isnan(whole))[0])
    assert 0 < first < TURNS - 1
    made = study([1e30, 0.1])
    with pytest.warns(TimeRLWarning, match=f"trial 0 ends at iteration {first}: 'loss' is NaN"):
        made.optimize(trl.tune.objective(diverging, "loss"), n_trials=2)
    assert states(made) == ["FAIL", "COMPLETE"]
    assert_curve(made.trials[0], whole[: first + 1])
    made = study([1e30])
    made.optimize(trl.tune.objective(diverging, "loss", stop_at_nan=False), n_trials=1)
    assert states(made) == ["FAIL"]
    assert_curve(made.trials[0], whole)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=0)
    made = study([0.1, 1e30], pruner=pruner)
    made.optimize(trl.tune.objective(diverging, "loss"), n_trials=2)
    assert states(made)[1] == "PRUNED"


def test_several_objectives_are_values_of_the_result() -> None:
    made = study([0.1], direction=None, directions=["minimize", "maximize"])
    values = lambda result: (result["loss"][-1], result["gain"].max())  # noqa: E731
    made.optimize(trl.tune.objective(program, "loss", value=values), n_trials=1)
    whole = descent(0.1).execute(progress=False)
    assert made.trials[0].values == [float(whole["loss"][-1]), float(whole["gain"].max())]
    assert not made.trials[0].intermediate_values
    with pytest.raises(OptionError, match="a study with 2 objectives needs 2 values"):
        made.optimize(trl.tune.objective(program, "loss"), n_trials=1)
    with pytest.raises(CallError, match="value= returned float, not 2 numbers"):
        objective = trl.tune.objective(program, "loss", value=lambda result: 1.0)
        made.optimize(objective, n_trials=1)


@pytest.mark.parametrize("value", ["x", None, np.zeros(3)], ids=str)
def test_a_value_that_is_not_a_number_is_refused(value: Any) -> None:
    objective = trl.tune.objective(program, "loss", value=lambda result: value)
    with pytest.raises(CallError, match="value= returned .*, not 1 number") as refused:
        study([0.1]).optimize(objective, n_trials=1)
    # the line of the user, not of Optuna
    assert Path(refused.value.origin.file).name == "test_optuna.py"


def test_a_folder_of_another_study_is_refused(tmp_path: Path) -> None:
    objective = trl.tune.objective(program, "loss", folder=tmp_path)
    study([0.1]).optimize(objective, n_trials=1)
    with pytest.raises(ExecutionError, match="trial-00000 has a trial of another study"):
        study([0.1]).optimize(objective, n_trials=1)


def test_errors_end_the_study_unless_they_are_caught() -> None:
    def wrong(trial: Any) -> trl.Program:
        made = program(trial)
        return made.with_bounds({"J": 3}) if trial.params["lr"] == 0.5 else made

    with pytest.raises(TimeRLError, match="J"):
        study([0.5]).optimize(trl.tune.objective(wrong, "loss"), n_trials=1)
    made = study([0.5, 0.1])
    made.optimize(trl.tune.objective(wrong, "loss"), n_trials=2, catch=(TimeRLError,))
    assert states(made) == ["FAIL", "COMPLETE"]
    with pytest.raises(OptionError, match="did you mean 'loss'"):
        study([0.1]).optimize(trl.tune.objective(program, "lost"), n_trials=1)
    with pytest.raises(CallError, match="returned NoneType, not a program"):
        study([0.1]).optimize(trl.tune.objective(lambda trial: None, "loss"), n_trials=1)  # type: ignore[arg-type,return-value]


def test_the_guide_finds_a_learning_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIMERL_EXECUTOR")  # as for a user
    page = Path(__file__).parents[3] / "docs/guides/tune-hyper-parameters.md"
    (code,) = re.findall(r"^```py\n(import optuna\n.*?)^```", page.read_text(), re.M | re.S)
    exec(compile(code.replace("n_trials=8", "n_trials=2"), str(page), "exec"), {})
    assert "'lr'" in capsys.readouterr().out
    assert len([*tmp_path.glob("runs/study/trial-*/manifest.json")]) == 2


def test_trials_in_two_threads_equal_those_in_one() -> None:
    """Both threads compile, and run, programs of their own and a common one."""
    common, rates = descent(0.05), [0.05, 0.1, 0.05, 0.2, 0.05, 0.3]
    # the default pruner may reject the sixth trial, if five others have ended before
    pruner = optuna.pruners.NopPruner()

    def chosen(trial: Any) -> trl.Program:
        rate = rates[trial.number]
        return common if rate == 0.05 else descent(rate)

    made = study([], pruner=pruner)
    objective = trl.tune.objective(chosen, "noisy", seed=lambda trial: trial.number)
    made.optimize(objective, n_trials=len(rates), n_jobs=2)
    assert states(made) == ["COMPLETE"] * len(rates)
    for trial in made.trials:
        want = descent(rates[trial.number]).execute(seed=trial.number, progress=False)
        assert_curve(trial, want["noisy"])
