"""Reader of PyTorch profiler traces (Kineto), written by `prof.export_chrome_trace(path)`.

The file has Chrome trace events in microseconds of the wall clock, with three decimals, since
`baseTimeNanoseconds`. Device operations have categories of their own, with `device`, `stream` and
`correlation`. CUDA calls do, too, with the thread as `tid`.
"""

from __future__ import annotations

import json
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.atomic_files import read_regular, unpack_gzip
from timerl_nb.base.errors import ExecutionError
from timerl_nb.scope.device_activity.device_operations import Sort
from timerl_nb.scope.device_activity.trace_data import Rows, Trace
from timerl_nb.scope.storage.json_validation import cause

TRACER: Final = "PyTorch's profiler"
MARK: Final = "timerl mark "
_RAN: Final = {"kernel": Sort.KERNEL, "gpu_memcpy": Sort.COPY, "gpu_memset": Sort.SET}
_CALLED: Final = ("cuda_runtime", "cuda_driver", "hip_runtime")
_LONGEST: Final = 8 << 30  # maximum size of an uncompressed trace in bytes
_WRONG: Final = (
    *(OSError, EOFError, zlib.error),  # errors of the file
    *(
        ValueError,
        ArithmeticError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ),  # errors of its content
)
_ON_THREADS: Final = (*_CALLED, "cpu_op", "user_annotation")


def kineto(path: Path) -> Trace:
    """Read a PyTorch profiler trace; times are in nanoseconds of the wall clock.

    Args:
        path: the file.

    Raises:
        ExecutionError: the file is not a trace of PyTorch's profiler.
    """
    try:
        content = read_regular(path)
        text = unpack_gzip(content, _LONGEST) if content[:2] == b"\x1f\x8b" else content
        return _parse_trace(json.loads(text, parse_float=Decimal))
    except _WRONG as error:
        raise ExecutionError(
            f"{path} is not a trace of PyTorch's profiler: {cause(error)}.",
            hint="pass a file written by `prof.export_chrome_trace(path)`.",
        ) from None


def _parse_trace(about: dict[str, Any]) -> Trace:
    """Convert a trace of PyTorch's profiler in the Chrome format.

    Raises:
        ValueError: it has no time span and no device events.
    """
    base = int(about.get("baseTimeNanoseconds", 0))
    rows, processes, spans = Rows(), list[int](), list[tuple[int, int]]()
    for event in about["traceEvents"]:
        if event.get("ph") != "X":
            continue
        category, name, args = event.get("cat"), event["name"], event.get("args", {})
        begin = base + _ns(event["ts"])
        end = begin + _ns(event.get("dur", 0))
        if category in _RAN:
            where = int(args["device"]), int(args["stream"]), int(args.get("correlation", 0))
            rows.run(_RAN[category], name, begin, end, *where)
        elif category in _CALLED:
            rows.call(name, begin, end, int(event["tid"]), int(args.get("correlation", 0)))
        elif category == "Trace":
            spans.append((begin, end))
        elif name.startswith(MARK):
            rows.marks[name] = int(event["tid"]), begin, end
        if category in _ON_THREADS:
            processes.append(int(event["pid"]))
    every = [row[:2] for row in (*rows.ran, *rows.called)] + spans
    if not every:
        raise ValueError("it has no time span and no device events")
    begin, end = min(one[0] for one in every), max(one[1] for one in every)
    devices = {int(one["id"]): str(one["name"]) for one in about.get("deviceProperties", ())}
    process = max(set(processes), key=processes.count, default=0)
    return rows.trace(process, TRACER, begin, end, devices, "the trace has no device")


def _ns(microseconds: int | Decimal) -> int:
    return int((Decimal(microseconds) * 1000).to_integral_value())
