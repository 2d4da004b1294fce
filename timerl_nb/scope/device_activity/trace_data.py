"""Device trace of one process: in memory, and as a file of the recording.

The first trace of process 10 is the file `10-0.devices`, a NumPy archive (`.npz`, without pickles)
with three arrays. `ran` has rows of `device_operations.RAN`, and `called` rows of
`device_operations.CALLED`, both in CLOCK_MONOTONIC. `about` has the bytes of a JSON object:
version, tracer, process, begin, end, devices, absent, names (by number), drift and width (see
`device_operations.TracedWindow`).
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.atomic_files import write_whole
from timerl_nb.base.errors import ExecutionError
from timerl_nb.scope.device_activity.clock_alignment import Joint
from timerl_nb.scope.device_activity.device_operations import CALLED, RAN, Sort, TracedWindow
from timerl_nb.scope.storage.json_validation import cause, content_of, of_version

VERSION: Final = 1
# errors of `zipfile` for a damaged archive; the last one for an unknown compression method
_LONGEST: Final = 8 << 30  # maximum size of a trace in bytes
_DAMAGED: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
_WINDOW: Final = {
    "process": int,
    "tracer": str,
    "begin": int,
    "end": int,
    "devices": [str],
    "absent": str,
    "drift": (int, None),
    "width": int,
}


@dataclass(frozen=True, eq=False)
class Trace:
    """Device trace of a time window.

    Args:
        window: the window; times of the tracer's clock before the conversion.
        names: names of operations and calls, by number.
        ran: device operations, rows of `RAN`.
        called: interface calls, rows of `CALLED`.
        marks: annotations for the clock comparison, by name: thread (0 if unknown), begin, end.
    """

    window: TracedWindow
    names: tuple[str, ...]
    ran: Array
    called: Array
    marks: Mapping[str, tuple[int, int, int]]

    def to_our_clock(self, joint: Joint) -> Trace:
        """Return the trace in CLOCK_MONOTONIC."""
        begin, end = joint.to_our_clock(np.array([self.window.begin, self.window.end])).tolist()
        window = replace(self.window, begin=begin, end=end, drift=joint.drift, width=joint.width)
        ran, called = self.ran.copy(), self.called.copy()
        for rows in (ran, called):
            for column in ("begin", "end"):
                rows[column] = joint.to_our_clock(rows[column])
        marks = {
            name: (thread, *joint.to_our_clock(np.array(moments)).tolist())
            for name, (thread, *moments) in self.marks.items()
        }
        return replace(self, window=window, ran=ran, called=called, marks=marks)


class Rows:
    """Builder of a trace; rows in any order."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self.ran: list[tuple[int, ...]] = []
        self.called: list[tuple[int, ...]] = []
        self.marks: dict[str, tuple[int, int, int]] = {}

    def _name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def run(
        self,
        sort: Sort,
        name: str,
        begin: int,
        end: int,
        device: int,
        stream: int,
        correlation: int,
    ) -> None:
        """Add a device operation."""
        self.ran.append((begin, end, correlation, stream, self._name(name), device, sort))

    def call(self, name: str, begin: int, end: int, thread: int, correlation: int) -> None:
        """Add an interface call of a thread."""
        self.called.append((begin, end, correlation, thread & 0xFFFFFFFF, self._name(name)))

    def shift(self, by: int) -> None:
        """Add an offset in nanoseconds to all times."""
        self.ran = [(row[0] + by, row[1] + by, *row[2:]) for row in self.ran]
        self.called = [(row[0] + by, row[1] + by, *row[2:]) for row in self.called]
        self.marks = {name: (of, a + by, b + by) for name, (of, a, b) in self.marks.items()}

    def trace(
        self,
        process: int,
        tracer: str,
        begin: int,
        end: int,
        devices: Mapping[int, str],
        absent: str = "",
    ) -> Trace:
        """Return the trace; its devices are the named ones and those with operations."""
        ran, called = np.array(self.ran, RAN), np.array(self.called, CALLED)
        most = max([-1, *devices, *ran["device"].tolist()])
        names = tuple(devices.get(k, f"device {k}") for k in range(most + 1))
        window = TracedWindow(
            process, tracer, begin, end, names, absent if not names else "", None, 0
        )
        order = (np.argsort(rows["begin"], kind="stable") for rows in (ran, called))
        ran, called = (rows[at] for rows, at in zip((ran, called), order, strict=True))
        return Trace(window, tuple(self._names), ran, called, self.marks)


def write_trace(folder: Path, trace: Trace) -> Path:
    """Write a converted trace to the folder of a recording, and return its path.

    Args:
        folder: folder of the recording.
        trace: trace in CLOCK_MONOTONIC.

    Raises:
        OSError: the file cannot be written.
    """
    window = trace.window
    about = {
        "version": VERSION,
        "names": trace.names,
        **{key: getattr(window, key) for key in _WINDOW},
    }
    held = io.BytesIO()
    words = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez_compressed(held, ran=trace.ran, called=trace.called, about=words)
    number = sum(1 for _ in folder.glob(f"{window.process}-*.devices"))
    path = folder / f"{window.process}-{number}.devices"
    write_whole(path, held.getvalue(), synced=False)
    return path


def read_trace(path: Traversable) -> Trace:
    """Read a trace from the folder of a recording.

    Args:
        path: the file.

    Raises:
        ExecutionError: the file is damaged or has an unsupported version.
    """
    try:
        with np.load(io.BytesIO(content_of(path, _LONGEST)), allow_pickle=False) as found:
            ran, called = found["ran"], found["called"]
            about = json.loads(found["about"].tobytes())
        window = of_version(about, (VERSION,), {**_WINDOW, "names": [str]}, path)
        names = window.pop("names")
        if ran.dtype != RAN or called.dtype != CALLED or not ran.ndim == called.ndim == 1:
            raise ValueError("its rows have another type")
        for rows in (ran, called):
            if (rows["name"] >= len(names)).any() or (rows["end"] < rows["begin"]).any():
                raise ValueError("a row has no name, or ends before its start")
    except (*_DAMAGED, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise ExecutionError(
            f"{path} is not a valid device trace: {cause(error)}.",
            hint="record again, or remove this file; the recording can be read without it.",
        ) from None
    window["devices"] = tuple(window["devices"])
    return Trace(TracedWindow(**window), tuple(names), ran, called, {})
