"""Processes that join a recording as Python starts in them: those that a recorded one starts.

They find it through the environment, so that no script is changed.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.errors import ExecutionError, warn
from timerl_nb.scope.calibration.microbenchmark_cost import measure_call_costs
from timerl_nb.scope.device_activity.tracing_session import Steps
from timerl_nb.scope.recording import recorder
from timerl_nb.scope.wrappers.library_wrappers import Tapping

RECORDING: Final = "TIMERL_SCOPE"  # JSON: folder or null, parent (the process that says so), taps, devices, calibrated, drawn
_ASKED: Final = "taps", "devices", "calibrated", "drawn"
_VARIABLES: Final = "PYTHONPATH", RECORDING
_HOOK: Final = Path(__file__).parents[3] / "timerl_command" / "recorded"


def join(told: str) -> None:
    """Record this process until it ends, as its environment says; where that cannot be, say so, and go on."""
    to = json.loads(told)
    if to["folder"] is None:  # it has but imported what records
        return
    folder, taps, devices = Path(to["folder"]), bool(to["taps"]), int(to["devices"])
    try:
        clock = measure_call_costs if to["calibrated"] else None
        recorder.begin(folder, parent=to["parent"], timed=clock, drawn=to["drawn"])
    except ExecutionError as error:
        warn(f"process {os.getpid()} is not recorded: {error.what}")
        return
    hand_on(folder, **{name: to[name] for name in _ASKED})
    Tapping(taps).install()
    steps = Steps(devices)
    steps.begin()
    atexit.register(recorder.end)
    atexit.register(steps.end)  # ahead of that


def environment(
    folder: Path | None,
    given: Mapping[str, str],
    *,
    taps: bool = True,
    devices: int = 0,
    calibrated: bool = True,
    drawn: bool = True,
) -> dict[str, str]:
    """The environment of processes that join a recording of this one, and of what they start.

    Args:
        folder: None of processes that are not recorded, and start as those that are.
        drawn: whether blocks are silent at random, where `calibrated`; else all are recorded.
    """
    paths = [path for path in given.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(_HOOK) not in paths:
        paths.insert(0, str(_HOOK))
    told = {
        "folder": folder and str(folder.absolute()),
        "parent": recorder.own_process(),
        "taps": taps,
    }
    told |= {"devices": devices, "calibrated": calibrated, "drawn": drawn}
    return {**given, "PYTHONPATH": os.pathsep.join(paths), RECORDING: json.dumps(told)}


def handed_on() -> dict[str, str | None]:
    """The environment variables changed by `hand_on`."""
    return {name: os.environ.get(name) for name in _VARIABLES}


def hand_on(folder: Path, **asked: Any) -> None:
    """Have processes started by this one join its recording, as `environment` is asked."""
    new = environment(folder, os.environ, **asked)
    os.environ.update({name: new[name] for name in _VARIABLES})


def take_back(before: Mapping[str, str | None]) -> None:
    """Have the environment say what it said before."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _set_parent_after_fork() -> None:
    """What a forked child starts joins as its own."""
    if RECORDING in os.environ:
        told = json.loads(os.environ[RECORDING])
        os.environ[RECORDING] = json.dumps({**told, "parent": recorder.own_process()})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_set_parent_after_fork)
