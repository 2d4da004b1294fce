"""Implementation of `Program.scope`: one recorded run of a compiled program."""

from __future__ import annotations

import os

from timerl_nb.driver.program import Program, a_program
from timerl_nb.driver.program_runs.run_observation import run_observed
from timerl_nb.scope.recording.recording_session import record


def scope(
    program: Program,
    seed: int = 0,
    turns: int | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    devices: int = 0,
) -> record:
    """Run a program under a recording and return the recording; see `Program.scope`."""
    a_program(program)
    with record(folder, taps=False, devices=devices) as rec:
        run_observed(program, seed, turns, waits=False)
    return rec
