"""Processes that join a recording as Python starts in them: `timerl scope run`, and what it starts.

They find it through the environment, so that no script is changed.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from timerl_nb.errors import ExecutionError, warn
from timerl_nb.scope import recorder
from timerl_nb.scope.libraries import Tapping

FOLDER: Final = "TIMERL_SCOPE"
_HOOK: Final = Path(__file__).parents[2] / "timerl_command" / "recorded"


def join(folder: str) -> None:
    """Record this process into a folder until it ends; where that cannot be, say so, and go on."""
    try:
        recorder.begin(Path(folder), joins=True)
    except ExecutionError as error:
        warn(f"process {os.getpid()} is not recorded: {error.what}")
        return
    Tapping().on()
    atexit.register(recorder.end)


def environment(folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that joins a recording, and of what it starts."""
    found = given.get("PYTHONPATH", "")
    paths = [str(_HOOK), *(found.split(os.pathsep) if found else ())]
    return {**given, "PYTHONPATH": os.pathsep.join(paths), FOLDER: str(folder.absolute())}
