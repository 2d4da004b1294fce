"""Recording of child processes.

A recorded process passes the folder and the options to its children in environment variables. A
start-up hook on `PYTHONPATH` reads them, so the program needs no change.
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

# JSON object: folder or null, parent (process number), taps, devices, calibrated, drawn
RECORDING: Final = "TIMERL_SCOPE"
_ASKED: Final = "taps", "devices", "calibrated", "drawn"
_VARIABLES: Final = "PYTHONPATH", RECORDING
_HOOK: Final = Path(__file__).parents[3] / "timerl_command" / "recorded"


def join(told: str) -> None:
    """Record this process until it ends, with the options of `RECORDING`.

    If the folder cannot be written, a warning is given and the process runs without a recording.
    """
    to = json.loads(told)
    if to["folder"] is None:  # the environment only makes the hook importable
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
    atexit.register(steps.end)  # exit handlers run in reverse order: device tracing ends first


def environment(
    folder: Path | None,
    given: Mapping[str, str],
    *,
    taps: bool = True,
    devices: int = 0,
    calibrated: bool = True,
    drawn: bool = True,
) -> dict[str, str]:
    """Return an environment for child processes, so that they join this recording.

    Args:
        folder: folder of the recording. None makes the children start with the same hook, but
            unrecorded; overhead measurements compare the two.
        given: environment to extend.
        taps: whether to wrap library functions.
        devices: number of steps to trace on devices.
        calibrated: whether to count operations in blocks.
        drawn: whether random blocks are disabled, with `calibrated`. Otherwise all blocks are
            recorded.
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
    """Return the values of the environment variables changed by `hand_on`."""
    return {name: os.environ.get(name) for name in _VARIABLES}


def hand_on(folder: Path, **asked: Any) -> None:
    """Let child processes join the recording in `folder`; `asked` are options of `environment`."""
    new = environment(folder, os.environ, **asked)
    os.environ.update({name: new[name] for name in _VARIABLES})


def take_back(before: Mapping[str, str | None]) -> None:
    """Restore the environment variables to the values in `before`."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _set_parent_after_fork() -> None:
    """Name this forked child as the parent of its own children."""
    if RECORDING in os.environ:
        told = json.loads(os.environ[RECORDING])
        os.environ[RECORDING] = json.dumps({**told, "parent": recorder.own_process()})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_set_parent_after_fork)
