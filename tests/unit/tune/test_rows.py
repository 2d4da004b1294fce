"""Rows of a run on the caller's thread: each once, and none after the run was stopped."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.tuned import TURNS, descent
from timerl_nb.base.errors import (
    CallError,
    ExecutionError,
    MissingPartError,
    OptionError,
    TimeRLWarning,
)
from timerl_nb.tune.ray_trainable import TrialRun
from timerl_nb.tune.row_stream import RowStream

_MADE: dict[Any, trl.Program] = {}


def program(**options: Any) -> trl.Program:
    """Return a compiled program, one for all tests."""
    key = tuple(options.items())
    if key not in _MADE:
        _MADE[key] = descent(0.1, **options)
    return _MADE[key]


def points(made: trl.Program, metric: str = "loss", *following: int) -> list[int]:
    with RowStream(made, metric, *following) as rows:
        return [row.point for row in rows]


@pytest.mark.parametrize("options", [{"executor": "interpret"}, {"fuse_iterations": 5}])
def test_rows_have_the_values_of_the_result(options: dict[str, Any]) -> None:
    with RowStream(program(**options), "loss", seed=3) as rows:
        found = [*rows]
        result = rows.result()
        assert next(rows, None) is None
    assert [row.point for row in found] == [*range(TURNS)]
    np.testing.assert_array_equal(np.float32([row.value for row in found]), result["loss"])


@pytest.mark.parametrize(("interval", "want"), [(1, [*range(12)]), (5, [4, 9, 11]), (100, [11])])
def test_rows_are_apart_and_the_last_one_is_always_there(interval: int, want: list[int]) -> None:
    assert points(program(), "loss", interval) == want


def test_a_metric_that_some_iterations_lack_is_reported_by_the_others() -> None:
    assert points(program(), "third") == [2, 5, 8, 11]
    assert points(program(), "third", 5) == [5, 11]


@pytest.mark.parametrize("options", [{"executor": "interpret"}, {"fuse_iterations": 5}])
def test_a_run_that_is_stopped_ends_with_the_reported_iteration(options: dict[str, Any]) -> None:
    made = program(**options)
    whole = made.execute(progress=False)["loss"]
    with RowStream(made, "loss") as rows:
        assert next(row for row in rows if row.point == 4).value == whole[4]
    np.testing.assert_array_equal(rows.result()["loss"], whole[:5])


def test_resources_of_a_stopped_run_are_closed() -> None:
    events: list[str] = []

    class Bell:
        def __init__(self, sizes: Any, seed: int) -> None:
            events.append("opened")

        def close(self) -> None:
            events.append("closed")

    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        bell = trl.Resource(Bell)
        ctx.output("x", trl.udf(lambda bell, at, x: x, trl.value(i), out="i32", resource=bell))
    made = ctx.compile({"I": 9}, trl.Options(executor="interpret", vectorize=()))
    with RowStream(made, "x") as rows:
        assert next(rows).point == 0
        assert events == ["opened"]
    assert events == ["opened", "closed"]


def test_several_seeds_report_their_mean() -> None:
    made = program(seeds=3)
    with RowStream(made, "noisy", seed=5) as rows:
        values = [row.value for row in rows]
        result = rows.result()
    np.testing.assert_allclose(values, np.mean(result["noisy"], 0), rtol=1e-6)


def test_nan_is_reported_as_it_is() -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        ctx.output("x", trl.where(trl.value(i) == 1, np.nan, trl.value(i).floating()))
    with RowStream(ctx.compile({"I": 3}), "x") as rows:
        values = [row.value for row in rows]
    assert values[0] == 0.0 and math.isnan(values[1]) and values[2] == 2.0


def test_a_metric_of_the_end_is_reported_with_a_warning() -> None:
    with (
        pytest.warns(TimeRLWarning, match="'loss' is computed after the last iteration"),
        RowStream(descent(0.1, live=False), "loss") as rows,
    ):
        found = [row.point for row in rows]
    assert found == [*range(found[0], TURNS)]


def test_wrong_metrics_are_refused() -> None:
    with pytest.raises(OptionError, match=r"no output 'los'(.|\n)*did you mean 'loss'"):
        RowStream(program(), "los")
    with pytest.raises(OptionError, match=r"'pair' is not one number(.|\n)*x.mean\(over=b\)"):
        RowStream(program(), "pair")


def test_wrong_arguments_are_refused() -> None:
    for make in (trl.tune.objective, trl.tune.trainable):
        with pytest.raises(CallError, match="is not a function of a"):
            make(program(), "loss")  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="every=0 is not a number of iterations"):
            make(lambda given: program(), "loss", every=0)


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [(trl.tune.objective, "optuna", "optuna"), (trl.tune.trainable, "ray", "tune")],
)
def test_a_missing_package_is_named(
    make: Any, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [module, *(n for n in sys.modules if n.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPartError, match=rf"{module}.*(.|\n)*timerl-nb\[{extra}\]"):
        make(lambda given: program(), "loss")


# --- steps of a trial, as Ray Tune calls them ----------------------------------------------------


Trial = Callable[..., TrialRun]


@pytest.fixture
def trial() -> Iterator[Trial]:
    """Return a function that makes trials; they are closed at the end of the test."""
    made: list[TrialRun] = []

    def make(
        function: Any = lambda config: program(), metric: str = "loss", every: int = 1
    ) -> TrialRun:
        made.append(TrialRun(function, metric, 0, every, {"lr": 0.1}))
        return made[-1]

    yield make
    for one in made:
        one.close()


def rows_of(run: TrialRun, count: int = 100) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    while len(found) < count and (row := run.next_row()) is not None:
        found.append((row["i"], row["loss"]))
    return found


@pytest.mark.parametrize("every", [1, 3])
def test_a_saved_trial_goes_on_here_and_elsewhere(every: int, trial: Trial, tmp_path: Path) -> None:
    whole = rows_of(trial(every=every))
    one = trial(every=every)
    begun = rows_of(one, 2)
    one.save(tmp_path)
    assert begun + rows_of(one) == whole
    other = trial(every=every)
    other.load(tmp_path)
    assert begun + rows_of(other) == whole
    assert other.next_row() is None


def test_a_finished_trial_has_no_more_rows_after_loading(trial: Trial, tmp_path: Path) -> None:
    one = trial()
    rows_of(one)
    one.save(tmp_path)
    other = trial()
    other.load(tmp_path)
    assert other.next_row() is None


def test_a_checkpoint_of_another_program_is_refused(trial: Trial, tmp_path: Path) -> None:
    one = trial()
    rows_of(one, 2)
    one.save(tmp_path)
    other = trial(lambda config: descent(0.2))
    other.load(tmp_path)
    with pytest.raises(ExecutionError, match="is of another program"):
        other.next_row()


def test_a_program_that_cannot_be_saved_runs_again(trial: Trial, tmp_path: Path) -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        ctx.output("loss", trl.value(i).floating())
    made = ctx.compile({"I": 3})  # one call to XLA
    one = trial(lambda config: made)
    assert rows_of(one, 2) == [(0, 0.0), (1, 1.0)]
    one.save(tmp_path)  # Tune saves all trials at their end
    assert rows_of(one) == [(2, 2.0)]
    other = trial(lambda config: made)
    other.load(tmp_path)
    assert rows_of(other) == [(2, 2.0)]
    other = trial(lambda config: made)
    other._config = {"lr": 0.2}
    with pytest.raises(ExecutionError, match="a trial with another configuration"):
        other.load(tmp_path)


def test_a_trial_returns_a_program(trial: Trial) -> None:
    with pytest.raises(CallError, match=r"returned Context, not a program(.|\n)*ctx.compile"):
        trial(lambda config: trl.algorithms.reinforce()).next_row()


def test_a_run_without_the_metric_is_an_error(trial: Trial) -> None:
    with pytest.raises(ExecutionError, match="ended without a value of 'third'"):
        trial(lambda config: descent(0.1, turns=2), "third").next_row()
