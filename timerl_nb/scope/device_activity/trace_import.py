"""Import of PyTorch and JAX profiler traces into a recording: `trl.scope.add_trace`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from timerl_nb.base.atomic_files import LONGEST_TEXT, parse_json, read_regular, user_path
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.scope.device_activity.clock_alignment import Anchor, Joint
from timerl_nb.scope.device_activity.device_operations import TracedWindow
from timerl_nb.scope.device_activity.kineto import kineto
from timerl_nb.scope.device_activity.trace_data import write_trace
from timerl_nb.scope.device_activity.xplane import xplane
from timerl_nb.scope.storage.json_validation import cause
from timerl_nb.scope.storage.recording_writer import MANIFEST

# accuracy in nanoseconds: a manifest has both clocks, read one after the other
_WIDTH: Final = 1_000


@explain_call_errors
def add_trace(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], process: int | None = None
) -> TracedWindow:
    """Add a device trace of PyTorch's or JAX's profiler to a recording of the same run.

    Trace times are converted from the wall clock. The recording has the wall clock at its start and
    end, so an adjustment in between is corrected as drift.

    Args:
        folder: folder of the recording.
        path: trace of PyTorch's profiler (`.json`, `.json.gz`) or of JAX's profiler (`.xplane.pb`).
        process: number of the process. Default: the one in the trace, or the only recorded one.

    Returns:
        The traced time window.

    Raises:
        OptionError: the suffix is unknown, or the process was not recorded.
        ExecutionError: the trace cannot be read or added, or its time is outside of the recording.

    Example:
        >>> import json, time
        >>> with trl.scope.record("run"):
        ...     now = time.time_ns() / 1000
        ...     time.sleep(0.01)
        >>> launch = {"device": 0, "stream": 7, "correlation": 1}
        >>> kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": now, "dur": 5, "args": launch}
        >>> with open("trace.json", "w") as file:
        ...     json.dump({"traceEvents": [kernel]}, file)
        >>> window = trl.scope.add_trace("run", "trace.json")
        >>> window.devices
        ('device 0',)
        >>> len(trl.scope.read("run").devices)
        1
    """
    path, folder = user_path(path), user_path(folder)
    if not path.name.endswith((".json", ".json.gz", ".pb")):
        raise OptionError(
            f"{path.name} is not a known kind of trace.",
            hint="pass a .json or .json.gz of PyTorch's profiler, or a .xplane.pb of JAX's.",
        )
    if not folder.is_dir():
        raise ExecutionError(
            f"the folder {folder} does not exist.",
            hint="pass the folder of a recording; unpack a zip file first.",
        )
    trace = (xplane if path.name.endswith(".pb") else kineto)(path)
    manifests = {one.stem: one for one in folder.iterdir() if MANIFEST.fullmatch(one.name)}
    which = str(trace.window.process if process is None else process)
    if which not in manifests and process is None and len(manifests) == 1:
        which = next(iter(manifests))
    if which not in manifests:
        known = ", ".join(sorted(manifests)) or "none"
        raise OptionError(
            f"process {which} was not recorded in {folder}.",
            hint=f"pass process= with a recorded one: {known}.",
        )
    try:
        about: Mapping[str, Any] = parse_json(read_regular(manifests[which], LONGEST_TEXT))
        joint = Joint(_anchor(about["begin"]), about["end"] and _anchor(about["end"]))
        trace = replace(trace, window=replace(trace.window, process=int(which)))
        joined = trace.to_our_clock(joint)
        begin, end = about["begin"]["monotonic"], (about["end"] or {}).get("monotonic")
        if joined.window.end < begin or (end is not None and joined.window.begin > end):
            raise ExecutionError(
                f"the time of the trace {path} is outside of the recording {folder}.",
                hint="pass a trace of the same run.",
            )
        write_trace(folder, joined)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExecutionError(
            f"the trace cannot be added to {folder}: {cause(error)}.",
            hint="pass the writable folder of a recording.",
        ) from None
    return joined.window


def _anchor(clocks: Mapping[str, int]) -> Anchor:
    return Anchor(clocks["wall"], clocks["monotonic"], _WIDTH)
