"""Reader of JAX profiler traces (XLA's `.xplane.pb`), with `jax.profiler.ProfileData`.

Devices are planes `/device:GPU:0` with one line per stream. CUDA calls are on the lines of host
threads and have a correlation id. Times are nanoseconds of the wall clock since
`profile_start_time`. The file has no thread ids; a mark on a line contains the id.
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
_STREAM: Final = re.compile(r"Stream #(\d+)")  # other lines are sums over these
_HOST: Final = ("/host:CPU", "/host:CUPTI", "/host:ROCTRACER")


def xplane(path: Path) -> Trace:
    """Read a JAX profiler trace; times are in nanoseconds of the wall clock.

    Args:
        path: the file.

    Raises:
        ExecutionError: the file is not a trace of JAX's profiler, or JAX is not installed.
    """
    try:
        profile: Any = importlib.import_module("jax.profiler").ProfileData
        return read_profile(profile.from_file(str(path)))
    except Exception as error:  # invalid protocol buffers raise various errors
        raise ExecutionError(
            f"{path} is not a trace of JAX's profiler: {cause(error)}.",
            hint="pass the .xplane.pb below plugins/profile, written by `jax.profiler.stop_trace`.",
        ) from None


def read_profile(profile: Any) -> Trace:
    """Read a `ProfileData` object.

    Raises:
        ValueError: it has no start time.
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
        raise ValueError("it has no start time")
    rows.shift(start)
    return rows.trace(process, TRACER, start, max(start, stop), devices, "the trace has no GPU")


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
    """Read calls and marks of a host thread."""
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
