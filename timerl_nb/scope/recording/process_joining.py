"""Recording of child processes, and of processes on other hosts.

A recorded process passes the folder and the options to its children in environment variables. A
start-up hook on `PYTHONPATH` reads them, so the program needs no change. A process of another host
records into a subfolder of its host, and compares its clock with that of the first process.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.errors import ExecutionError, OptionError, explain_os_errors, warn
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.scope.calibration.microbenchmark_cost import measure_call_costs
from timerl_nb.scope.device_activity.clock_alignment import Anchor
from timerl_nb.scope.device_activity.tracing_session import Steps
from timerl_nb.scope.recording import recorder
from timerl_nb.scope.recording.clock_exchange import (
    ClockServer,
    address_of_this_host,
    request_anchor,
)
from timerl_nb.scope.storage.host_clock_files import Join, folder_of
from timerl_nb.scope.wrappers.library_wrappers import Tapping

# JSON object: folder or null, host and parent (process number) of the children, taps, devices, calibrated, drawn;
# root: the folder and host of the recording, and the address of its clock or null
RECORDING: Final = "TIMERL_SCOPE"
_HOST_NAME: Final = "TIMERL_SCOPE_HOST"  # replaces the name of this host
_ASKED: Final = "taps", "devices", "calibrated", "drawn", "root"
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
    is_elsewhere = to["host"] != host_name()
    try:
        if is_elsewhere:
            folder = Path(to["root"]["folder"]) / folder_of(host_name())
            with explain_os_errors(
                f"the recording folder {folder} cannot be written", hint="choose a writable folder."
            ):
                folder.mkdir(parents=True, exist_ok=True)
        clock = measure_call_costs if to["calibrated"] else None
        recorder.begin(folder, parent=to["parent"], timed=clock, drawn=to["drawn"])
    except ExecutionError as error:
        warn(f"process {os.getpid()} is not recorded: {error.what}")
        return
    if is_elsewhere:
        _join_from_elsewhere(folder, to)
    hand_on(folder, **{name: to[name] for name in _ASKED})
    Tapping(taps).install()
    steps = Steps(devices)
    steps.begin()
    atexit.register(recorder.end)
    atexit.register(steps.end)  # exit handlers run in reverse order: device tracing ends first


def _join_from_elsewhere(folder: Path, to: Mapping[str, Any]) -> None:
    """Write the file of a process of another host, now and at its end, with a comparison of clocks each time."""
    root, process, anchors = to["root"], recorder.own_process(), list[Anchor]()
    parent_host = "" if to["host"] == root["host"] else to["host"]
    address = root["clock"]

    def compare() -> None:
        if os.getpid() != maker:  # a forked child
            return
        found = None if address is None else request_anchor((address[0], address[1]))
        if found is not None:
            anchors.append(found)
        with suppress(OSError):  # the folder may have been deleted
            Join(host_name(), to["parent"], parent_host, anchors).write(folder, process)

    maker = os.getpid()
    compare()
    if anchors:
        atexit.register(compare)


def host_name() -> str:
    """Return the name of this host."""
    return os.environ.get(_HOST_NAME) or socket.gethostname()


@explain_call_errors
def worker_environment(address: str | None = None) -> dict[str, str]:
    """Return environment variables with which other Python processes join the open recording.

    Child processes of this process join without the variables. Pass them to processes that a service starts, such as
    the workers of Ray, and to processes on other hosts. A process on another host records into the subfolder
    `host-NAME` of the recording's folder. If the hosts do not share the folder, copy the subfolder there after the run.
    `trl.scope.read` then shows these processes as children of this one. TimeRL-nb must be installed at the same path on
    all hosts.

    Processes on other hosts compare their clocks with the clock of this process, by UDP messages, at their start and at
    their end. This process answers until the recording ends.

    Args:
        address: the address at which the other hosts reach this host; by default the one of its route to other networks.

    Returns:
        The variables `PYTHONPATH` and `TIMERL_SCOPE`.

    Raises:
        OptionError: the address is not a text.
        ExecutionError: no recording is open.

    Example:
        >>> with trl.scope.record("run"):
        ...     sorted(trl.scope.worker_environment())
        ['PYTHONPATH', 'TIMERL_SCOPE']
    """
    if address is not None and not isinstance(address, str):
        raise OptionError(
            f"address={address!r} is not a host.", hint="pass a name or an IP address, as a text."
        )
    if recorder.own_folder() is None or RECORDING not in os.environ:
        raise ExecutionError(
            "no recording is open, so no process can join it.",
            hint="call worker_environment() inside of `with trl.scope.record(folder):`.",
        )
    told = json.loads(os.environ[RECORDING])
    if told["root"]["clock"] is None and told["root"]["host"] == host_name():
        clock = [address or address_of_this_host(), _serve_clock().port]
        told["root"] = {**told["root"], "clock": clock}
        os.environ[RECORDING] = json.dumps(told)
    return {name: os.environ[name] for name in _VARIABLES}


_clock: ClockServer | None = None


def _serve_clock() -> ClockServer:
    """Answer other hosts with the clock of this process."""
    global _clock
    if _clock is None or _clock.process != os.getpid():
        _clock = ClockServer()
    return _clock


def environment(
    folder: Path | None,
    given: Mapping[str, str],
    *,
    taps: bool = True,
    devices: int = 0,
    calibrated: bool = True,
    drawn: bool = True,
    root: Mapping[str, Any] | None = None,
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
        root: folder, host and clock of the recording of several hosts. Default: of this process.
    """
    paths = [path for path in given.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(_HOOK) not in paths:
        paths.insert(0, str(_HOOK))
    path = folder and str(folder.absolute())
    told: dict[str, Any] = {
        "folder": path,
        "host": host_name(),
        "parent": recorder.own_process(),
        "taps": taps,
        "root": root or {"folder": path, "host": host_name(), "clock": None},
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
    """Restore the environment variables to the values in `before`, and answer no more questions about the clock."""
    global _clock
    if _clock is not None:
        _clock.close()
        _clock = None
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
