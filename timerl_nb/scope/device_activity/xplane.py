"""What JAX's profiler wrote of devices: XLA's `.xplane.pb`, read by `jax.profiler.ProfileData`.

Devices are planes `/device:GPU:0`, with a line for each stream; calls of CUDA lie among what host threads did, and are told
by their correlation. Times are nanoseconds since `profile_start_time`, wall clock. Of a thread the file has no number: it is that of
a mark on its line, where there is one.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.errors import ExecutionError
from timerl_nb.scope.device_activity.device_operations import Sort
from timerl_nb.scope.device_activity.trace_data import Rows, Trace
from timerl_nb.scope.storage.json_validation import cause

TRACER: Final = "JAX's profiler"
MARK: Final = re.compile(r"timerl mark \d+ of thread (\d+)")
_DEVICE: Final = re.compile(r"/device:GPU:(\d+)")
_STREAM: Final = re.compile(r"Stream #(\d+)")  # other lines sum up what is on these
_HOST: Final = ("/host:CPU", "/host:CUPTI", "/host:ROCTRACER")


def xplane(path: Path) -> Trace:
    """What a file of JAX's profiler says of devices, by the wall clock.

    Raises:
        ExecutionError: it is no such file, or JAX is not there to read it.
    """
    try:
        profile: Any = importlib.import_module("jax.profiler").ProfileData
        return read_profile(profile.from_file(str(path)))
    except Exception as error:  # what is no protocol buffer ends in many ways
        raise ExecutionError(
            f"{path} is no trace of JAX's profiler: {cause(error)}.",
            hint="give the .xplane.pb below plugins/profile that `jax.profiler.stop_trace` wrote.",
        ) from None


def read_profile(profile: Any) -> Trace:
    """The same of a `ProfileData`.

    Raises:
        ValueError: it does not say when it began.
    """
    rows, devices = Rows(), dict[int, str]()
    start = stop = process = 0
    for plane in profile.planes:
        stats: Mapping[str, Any] = dict(plane.stats)
        start = int(stats.get("profile_start_time", start))
        stop = int(stats.get("profile_stop_time", stop))
        process = int(stats.get("process_id", process))
        if found := _DEVICE.fullmatch(plane.name):
            devices[int(found[1])] = f"GPU {found[1]}"
            _device(rows, plane, int(found[1]))
        elif plane.name in _HOST:
            for line in plane.lines:
                _thread(rows, line)
    if not start:
        raise ValueError("it does not say when it began")
    rows.shift(start)
    return rows.trace(process, TRACER, start, max(start, stop), devices, "it saw no GPU")


def _device(rows: Rows, plane: Any, device: int) -> None:
    for line in plane.lines:
        stream = _STREAM.match(line.name)
        for event in line.events if stream else ():
            stats = dict(event.stats)
            sort = Sort.KERNEL
            if "memcpy_details" in stats or event.name.lower().startswith("memcpy"):
                sort = Sort.COPY
            elif "memset_details" in stats or event.name.lower().startswith("memset"):
                sort = Sort.SET
            assert stream is not None
            correlation = int(stats.get("correlation_id", 0))
            rows.run(sort, event.name, *_times(event), device, int(stream[1]), correlation)


def _thread(rows: Rows, line: Any) -> None:
    """Calls and marks of a host thread."""
    thread, calls = 0, list[tuple[str, int, int, int]]()
    for event in line.events:
        if found := MARK.fullmatch(event.name):
            thread = int(found[1])
            rows.marks[event.name] = (thread, *_times(event))
        elif event.name.startswith(("cu", "hip")):
            stats = dict(event.stats)
            if "correlation_id" in stats:
                calls.append((event.name, *_times(event), int(stats["correlation_id"])))
    for name, begin, end, correlation in calls:
        rows.call(name, begin, end, thread, correlation)


def _times(event: Any) -> tuple[int, int]:
    begin = round(event.start_ns)
    return begin, max(begin, round(event.end_ns))
