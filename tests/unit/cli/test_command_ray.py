"""A sweep on Ray's workers, one of which is killed. Needs Ray (`requirements.peers.txt`)."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl

pytest.importorskip("ray", reason="Ray is not installed: pip install -r requirements.peers.txt")

ROOT = Path(__file__).parents[3]


def of_ray(begun: int) -> list[int]:
    """Return the processes in which Ray runs parts of a sweep, below a process."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
            group = (path / "environ").read_bytes()
        except OSError:
            continue
        if words.startswith(b"ray::_in_worker") and f"TIMERL_TEST={begun}".encode() in group:
            found.append(int(path.name))
    return found


def test_a_killed_worker_of_ray_goes_on(tmp_path: Path) -> None:
    words = ["sweep", "reinforce", "--hidden", "4", "--bounds", "B=2,T=5,I=150", "--every", "1"]
    words += ["--seeds", "3", "--workers", "2", "--ray", "--folder", "sweep"]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'widgets'}",
        "TIMERL_EXECUTOR": "interpret",
        "TIMERL_TEST": str(os.getpid()),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [sys.executable, "-m", "timerl_nb.cli", *words]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        until = time.monotonic() + 120
        while not [*tmp_path.glob("sweep/*/manifest.json")] and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(of_ray(os.getpid())[0], signal.SIGKILL)
        said = running.communicate(timeout=300)[0]
    assert running.returncode == 0, said
    assert "restarting (1 of 3)" in said
    with open(tmp_path / "sweep/results.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == ["finished"] * 3
    program = trl.algorithms.reinforce(hidden=[4]).compile({"B": 2, "I": 150, "T": 5})
    for row in rows:
        whole = program.execute(seed=int(row["seed"]))["return"]
        assert float(row["return"]) == float(np.mean(whole[-15:], dtype=np.float64))
