"""Agreement of each executor in processes with another number of visible devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax

from tests.workers import COUNT, HANDED_ON, settings

HERE = Path(__file__).parent
TESTS = (
    "test_programs.py::test_all_ways_of_running_agree",
    "test_xla.py::test_lowered_programs_agree",
    "test_swaps.py::test_any_swaps_change_nothing_but_memory",
)


def test_agreement_does_not_depend_on_how_many_are_visible() -> None:
    """Uses one device if this process has several, and two if it has one."""
    devices = 2 if len(jax.devices()) == 1 else 1
    tests = (str(HERE / test) for test in TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *tests],
        cwd=HERE.parent.parent,
        env={**os.environ, HANDED_ON: settings(devices), "TIMERL_EXAMPLES": "4"},
        capture_output=True,
        text=True,
    )
    assert f"{COUNT}={devices} " in done.stdout
    assert done.returncode == 0 and f"{len(TESTS)} passed" in done.stdout, done.stdout
