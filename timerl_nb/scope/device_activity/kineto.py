"""What PyTorch's profiler wrote of devices: Kineto's traces, `prof.export_chrome_trace(path)`.

They are Chrome's trace events, in microseconds with three decimals since `baseTimeNanoseconds`, wall clock. Kernels, copies and
sets are of categories of their own, with `device`, `stream` and `correlation`; so are calls of CUDA, of the thread `tid`.
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
_LONGEST: Final = 8 << 30  # bytes of an unpacked trace
_WRONG: Final = (
    *(OSError, EOFError, zlib.error),  # of the file
    *(
        ValueError,
        ArithmeticError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ),  # of its contents
)
_ON_THREADS: Final = (*_CALLED, "cpu_op", "user_annotation")


def kineto(path: Path) -> Trace:
    """What a file of PyTorch's profiler says of devices, by the wall clock.

    Raises:
        ExecutionError: it is no such file.
    """
    try:
        content = read_regular(path)
        text = unpack_gzip(content, _LONGEST) if content[:2] == b"\x1f\x8b" else content
        return _parse_trace(json.loads(text, parse_float=Decimal))
    except _WRONG as error:
        raise ExecutionError(
            f"{path} is no trace of PyTorch's profiler: {cause(error)}.",
            hint="give a file that `prof.export_chrome_trace(path)` wrote.",
        ) from None


def _parse_trace(about: dict[str, Any]) -> Trace:
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
        raise ValueError("it has neither a span nor events of devices")
    begin, end = min(one[0] for one in every), max(one[1] for one in every)
    devices = {int(one["id"]): str(one["name"]) for one in about.get("deviceProperties", ())}
    process = max(set(processes), key=processes.count, default=0)
    return rows.trace(process, TRACER, begin, end, devices, "it saw no device")


def _ns(microseconds: int | Decimal) -> int:
    return int((Decimal(microseconds) * 1000).to_integral_value())
