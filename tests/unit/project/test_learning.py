"""Benchmarks of learning: full runs of stock PPO, and the table of thresholds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl
from benchmarks.datasets import curves
from benchmarks.datasets.curves import Task
from benchmarks.training import learning, learning_tasks, off_policy, stock_ppo
from benchmarks.training.peers import sb3_learning
from benchmarks.works import Stock

RETURNS = np.array([10.0, 0.0, 470.0, 490.0])
EPISODES = np.array([60, 0, 80, 100])


def test_recent_episodes_are_as_many_as_asked_for() -> None:
    assert stock_ppo.recent(RETURNS, EPISODES, 1) == 10
    assert stock_ppo.recent(RETURNS, EPISODES, 3) == pytest.approx((600 + 470 * 80) / 140)
    assert stock_ppo.recent(RETURNS, EPISODES, 4) == 490
    assert stock_ppo.recent(RETURNS, np.zeros(4, int), 4) == 0


def test_what_was_learnt_and_when() -> None:
    found = stock_ppo.learnt(lambda seed: (RETURNS, EPISODES), 0)
    assert (found.last, found.solved) == (490, 4)
    assert stock_ppo.learnt(lambda seed: (RETURNS[:3], EPISODES[:3]), 0).solved is None


def test_all_systems_run(capsys: pytest.CaptureFixture[str]) -> None:
    work = Stock(envs=2, steps=8, iterations=2, epochs=1, minibatches=2, hidden=(4,))
    stock_ppo.main(1, work)
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [
        f"| {name}" for name in stock_ppo.systems(work)
    ]
    assert all("inf" in row for row in rows), "nobody learns in two iterations"


# --- thresholds ------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs/algorithms/index.md"
TINY = learning_tasks.Row(
    "dqn",
    "CartPole-v1",
    60,
    500,
    "greedy",
    own=Task(
        "CartPole-v1",
        {"B": 2, "T": 30},
        {"hidden": (2,), "buffer_size": 3, "batch": 1, "learning_starts": 1},
    ),
)


def test_the_page_has_the_table_of_the_benchmark() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = lines.index("|---|---|---|---|---|") + 1
    assert lines[first:][: len(learning_tasks.ROWS)] == [r.text() for r in learning_tasks.ROWS]
    assert not lines[first + len(learning_tasks.ROWS)]


def test_runs_are_within_their_steps() -> None:
    for row in learning_tasks.ROWS:
        if row.algorithm in trl.algorithms.__all__:
            steps = row.task.iterations * row.task.steps
            assert steps <= row.steps, row  # fewer steps are a stricter task
            assert row.task.env == row.env or row.env == "T-maze of length 20"


def test_rows_are_chosen_by_algorithm_or_task() -> None:
    assert {row.algorithm for row in learning.chosen(["dqn"])} == {"dqn"}
    assert {row.algorithm for row in learning.chosen(["Pendulum-v1"])} == {"ddpg", "td3", "sac"}
    with pytest.raises(SystemExit, match="no algorithm or task is named 'other'; choose from a2c"):
        learning.chosen(["other"])


def test_a_row_is_run_for_each_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "ROWS", (TINY,))
    monkeypatch.setattr(sb3_learning, "is_installed", lambda: False)
    learning.main("dqn", "--seeds", "2")
    text = capsys.readouterr().out
    assert "| `dqn` | CartPole-v1 | TimeRL-nb | " in text and "| 500 | missed |" in text
    assert "Stable-Baselines3 is not installed here" in text


def test_medians_are_compared_with_the_threshold() -> None:
    text = learning.line(TINY, "ours", [490.0, 510.0, 500.0], [1.0, 3.0, 2.0])
    assert text == "| `dqn` | CartPole-v1 | ours | 500 | 490 | 500 | reached | 30 | 2.0 |"


def test_peers_have_our_arguments() -> None:
    task = learning_tasks.Row("dqn", "CartPole-v1", 120_000, 475, "").task
    found = sb3_learning.arguments("dqn", task)
    assert found["batch_size"] == 16 * 8 and found["target_update_interval"] == 250 * 8
    assert found["exploration_fraction"] == 3_000 / 15_000
    assert found["learning_rate"](0.5) == 0.5e-3
    clipped = sb3_learning.arguments("clipped_ppo", curves.TASKS["clipped_ppo"])
    assert (clipped["batch_size"], clipped["n_steps"], clipped["vf_coef"]) == (128, 128, 0.25)
    assert sb3_learning.arguments("sac", curves.TASKS["sac"])["ent_coef"] == "auto"


@pytest.mark.parametrize("name", ["other", "--help"])
def test_unknown_tasks_are_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        off_policy.main(name)
    printed = capsys.readouterr()
    assert "pendulum-sac" in printed.out + printed.err
