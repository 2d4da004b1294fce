"""The benchmark of full stock PPO runs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.training import learning
from benchmarks.works import Stock

RETURNS = np.array([10.0, 0.0, 470.0, 490.0])
EPISODES = np.array([60, 0, 80, 100])


def test_recent_episodes_are_as_many_as_asked_for() -> None:
    assert learning.recent(RETURNS, EPISODES, 1) == 10
    assert learning.recent(RETURNS, EPISODES, 3) == pytest.approx((600 + 470 * 80) / 140)
    assert learning.recent(RETURNS, EPISODES, 4) == 490
    assert learning.recent(RETURNS, np.zeros(4, int), 4) == 0


def test_what_was_learnt_and_when() -> None:
    found = learning.learnt(lambda seed: (RETURNS, EPISODES), 0)
    assert (found.last, found.solved) == (490, 4)
    assert learning.learnt(lambda seed: (RETURNS[:3], EPISODES[:3]), 0).solved is None


def test_all_systems_run(capsys: pytest.CaptureFixture[str]) -> None:
    work = Stock(envs=2, steps=8, iterations=2, epochs=1, minibatches=2, hidden=(4,))
    learning.main(1, work)
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in learning.systems(work)]
    assert all("inf" in row for row in rows), "nobody learns in two iterations"
