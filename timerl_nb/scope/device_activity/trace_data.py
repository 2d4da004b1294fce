"""What a tracer saw of devices in one process: as it says so, joined to our clock, and in a file beside the lanes.

10-0.devices    of process 10, the first window: a NumPy archive (`.npz`, no pickles) of
                `ran`, rows of `devices.RAN`, and `called`, rows of `devices.CALLED`, both by CLOCK_MONOTONIC,
                and `about`, the bytes of a JSON object: version, tracer, process, begin, end, devices, absent,
                names (of both, by number), drift and width (as in `device_operations.TracedWindow`)
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
# what `zipfile` raises of a damaged archive: the last where the way of packing is none that there is
_LONGEST: Final = 8 << 30  # bytes of a trace
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
    """What a tracer saw in a window.

    Args:
        window: its moments by the tracer's clock, until they are joined.
        names: of what ran and what was called, by number.
        ran: of `devices.RAN`.
        called: of `devices.CALLED`.
        marks: annotations that were set to compare clocks, by name: the thread (0 where it is not said), begin, end.
    """

    window: TracedWindow
    names: tuple[str, ...]
    ran: Array
    called: Array
    marks: Mapping[str, tuple[int, int, int]]

    def to_our_clock(self, joint: Joint) -> Trace:
        """The same by our clock."""
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
    """Collects what a tracer saw, in any order."""

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
        """A kernel or copy ran."""
        self.ran.append((begin, end, correlation, stream, self._name(name), device, sort))

    def call(self, name: str, begin: int, end: int, thread: int, correlation: int) -> None:
        """A thread called a device's interface."""
        self.called.append((begin, end, correlation, thread & 0xFFFFFFFF, self._name(name)))

    def shift(self, by: int) -> None:
        """Have all moments be so many nanoseconds later."""
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
        """All of it; devices are those that are named, and those on which something ran."""
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
    """Put a joined trace beside the lanes; returns its file.

    Raises:
        OSError: it cannot be written.
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
    """A trace that was put beside lanes.

    Raises:
        ExecutionError: it is none, one of another version, or was changed.
    """
    try:
        with np.load(io.BytesIO(content_of(path, _LONGEST)), allow_pickle=False) as found:
            ran, called = found["ran"], found["called"]
            about = json.loads(found["about"].tobytes())
        window = of_version(about, (VERSION,), {**_WINDOW, "names": [str]}, path)
        names = window.pop("names")
        if ran.dtype != RAN or called.dtype != CALLED or not ran.ndim == called.ndim == 1:
            raise ValueError("its rows are of another kind")
        for rows in (ran, called):
            if (rows["name"] >= len(names)).any() or (rows["end"] < rows["begin"]).any():
                raise ValueError("its rows have no names, or end before they begin")
    except (*_DAMAGED, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise ExecutionError(
            f"{path} holds no trace of devices: {cause(error)}.",
            hint="record anew, or remove that file: the rest can be read without it.",
        ) from None
    window["devices"] = tuple(window["devices"])
    return Trace(TracedWindow(**window), tuple(names), ran, called, {})
