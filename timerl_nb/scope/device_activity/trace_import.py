"""Traces of PyTorch's and JAX's own profilers, added to a recording of the same run: `trl.scope.add_trace`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from timerl_nb.base.atomic_files import LONGEST_TEXT, parse_json, read_regular, user_path
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.scope.device_activity.clock_alignment import Anchor, Joint
from timerl_nb.scope.device_activity.device_operations import TracedWindow
from timerl_nb.scope.device_activity.kineto import kineto
from timerl_nb.scope.device_activity.trace_data import write_trace
from timerl_nb.scope.device_activity.xplane import xplane
from timerl_nb.scope.storage.json_validation import cause
from timerl_nb.scope.storage.recording_writer import MANIFEST

_WIDTH: Final = 1_000  # nanoseconds: both clocks of a manifest are read one after the other


def add_trace(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], process: int | None = None
) -> TracedWindow:
    """Add what a profiler wrote of devices to a recording that went on meanwhile.

    Their times are by the wall clock, which the recording has at both of its ends: what this was set by between them
    is the drift.

    Args:
        folder: the recorded folder.
        path: a trace of PyTorch's profiler (`.json`, `.json.gz`), or of JAX's (`.xplane.pb`).
        process: whose it is; by default what the trace says, or the only process that there is.

    Returns:
        the window that it saw.

    Raises:
        OptionError: the name is that of neither; the recording knows no such process.
        ExecutionError: it cannot be read, or not be put into the folder; nothing was recorded meanwhile.
    """
    path, folder = user_path(path), user_path(folder)
    if not path.name.endswith((".json", ".json.gz", ".pb")):
        raise OptionError(
            f"{path.name} is no trace that is known here.",
            hint="give a .json or .json.gz of PyTorch's profiler, or a .xplane.pb of JAX's.",
        )
    if not folder.is_dir():
        raise ExecutionError(
            f"there is no recorded folder {folder}.",
            hint="name a recorded folder; a zip of one is to be unpacked first.",
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
            hint=f"processes are there: {known}; name one of them, `process=`.",
        )
    try:
        about: Mapping[str, Any] = parse_json(read_regular(manifests[which], LONGEST_TEXT))
        joint = Joint(_anchor(about["begin"]), about["end"] and _anchor(about["end"]))
        trace = replace(trace, window=replace(trace.window, process=int(which)))
        joined = trace.to_our_clock(joint)
        begin, end = about["begin"]["monotonic"], (about["end"] or {}).get("monotonic")
        if joined.window.end < begin or (end is not None and joined.window.begin > end):
            raise ExecutionError(
                f"{path} was traced at another time than {folder} was recorded.",
                hint="give the trace of the same run.",
            )
        write_trace(folder, joined)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExecutionError(
            f"the trace cannot be added to {folder}: {cause(error)}.",
            hint="name a recorded folder that can be written.",
        ) from None
    return joined.window


def _anchor(clocks: Mapping[str, int]) -> Anchor:
    return Anchor(clocks["wall"], clocks["monotonic"], _WIDTH)
