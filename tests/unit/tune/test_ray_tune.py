"""Searches with Ray Tune: early stopping, a failing program, a killed worker. Needs Ray (`requirements.peers.txt`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tuned import TURNS, descent

pytest.importorskip("ray", reason="Ray is not installed: pip install -r requirements.peers.txt")

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def searches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return the trials of each search of `tests.tuned`."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'widgets'}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
    }
    folder = tmp_path_factory.mktemp("tune")
    command = [sys.executable, "-m", "tests.tuned", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    marked = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    found = [json.loads(line.removeprefix("RESULT ")) for line in marked]
    return {one["search"]: one["trials"] for one in found}


def assert_rows(rows: list[Any], lr: float, count: int) -> None:
    """Compare rows with an uninterrupted run. Tune numbers them from 1 without a gap."""
    want = descent(lr).execute(progress=False)["loss"][:count]
    assert [(row[0], row[1]) for row in rows] == [(k + 1, k) for k in range(count)]
    np.testing.assert_array_equal(np.float32([row[2] for row in rows]), want)


def test_asha_stops_the_worse_trial(searches: dict[str, list[dict[str, Any]]]) -> None:
    good, bad = searches["asha"]
    assert_rows(good["rows"], 0.3, TURNS)
    assert_rows(bad["rows"], 0.01, 3)
    assert good["error"] == bad["error"] == ""


def test_asha_continues_after_a_trial_that_ends_with_nan(
    searches: dict[str, list[dict[str, Any]]],
) -> None:
    bad, good = searches["nan"]
    whole = descent(1e30).execute(progress=False)["loss"]
    assert_rows(bad["rows"], 1e30, int(np.flatnonzero(np.isnan(whole))[0]) + 1)
    assert_rows(good["rows"], 0.3, TURNS)
    assert good["error"] == bad["error"] == ""


def test_a_program_that_does_not_compile_fails_its_trial(
    searches: dict[str, list[dict[str, Any]]],
) -> None:
    (trial,) = searches["wrong"]
    assert "BoundsError: Q is not a bound" in trial["error"] and trial["rows"] == []


def test_a_trial_of_a_killed_worker_continues_from_its_checkpoint(
    searches: dict[str, list[dict[str, Any]]],
) -> None:
    (trial,) = searches["killed"]
    assert trial["error"] == ""
    before, after = trial["rows"][:5], trial["rows"][5:]  # killed in the sixth iteration
    assert before[4] == after[0]  # the last checkpoint was made after the fourth
    assert_rows([*before, *after[1:]], 0.2, TURNS)
