"""Runs of `timerl train` and `timerl resume` in the processes of `timerl launch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from timerl_nb.base.options import environment
from timerl_nb.cli.support.exit_status import FINE
from timerl_nb.cli.support.foreground_run import clear_logs, report_result
from timerl_nb.cli.support.run_request import RunRequest
from timerl_nb.distributed.initialization import COORDINATOR, Processes, initialize
from timerl_nb.driver.program import Program
from timerl_nb.runtime.jax_backend.process_connection import combine
from timerl_nb.runtime.state.run_folder import RunFolder

_USUALLY: Final = 100  # turns; a time would differ between hosts


def connect_launched() -> Processes:
    """Connect the processes of `timerl launch`; without it, return the only process."""
    return initialize() if COORDINATOR in environment() else Processes(0, 1)


def on_all_devices(asked: RunRequest) -> RunRequest:
    """Return a request for a program of all processes, with intervals in turns."""
    every = asked.every if asked.every.isdecimal() else str(_USUALLY)
    return replace(asked, options={**asked.options, "devices": "all"}, every=every)


def folder_of_process_0(claim: Callable[[], Path], me: Processes) -> Path:
    """Return the folder that process 0 claims."""
    return Path(combine("folder", str(claim()) if me.is_first else "")[0])


def execute_together(
    asked: RunRequest, program: Program, folder: Path, me: Processes, *, quiet: bool
) -> int:
    """Start or continue a run in all processes, and return the exit status. Process 0 prints the result."""
    log = folder if asked.log else None
    is_new = str(RunFolder(folder).is_empty) if me.is_first else ""
    if combine("is new", is_new)[0] == str(True):
        if me.is_first:
            clear_logs(folder)
        result = program.execute(asked.seed, checkpoint=folder, every=int(asked.every), log=log)
    else:
        result = program.resume(folder, every=int(asked.every), log=log)
    if me.is_first:
        asked.overwrite(folder)
        turns = program.executable.progress().turns or 0
        report_result(asked, folder, result, turns, quiet=quiet)
    return FINE
