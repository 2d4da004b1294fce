"""Files of a recording: event segments, name tables and manifests.

Each thread has event segments; each process has a name table and a manifest::

    10-17-0.edges   process 10, thread 17, first segment: events, followed by zeros
    10.names        JSON lines: each name before its first use, names of threads, operations of launches,
                    costs of recording in nanoseconds; at the end, the number of events of each thread
    10.json         manifest: the recorder, and the clocks at start and end

File names contain the ids of the system. For each earlier process (or thread) with the same id in
the folder, `RENEWED` is added: `os.execv` keeps the id, and the system reuses ids.

Segments are memory-mapped, so events survive a killed process without a flush. The disk space of a
segment is reserved first, because writing to a sparse file on a full disk ends the program by
SIGBUS. Segments grow by a factor of two.
"""

from __future__ import annotations

import json
import mmap
import os
import platform
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic_ns
from typing import Any, Final

from timerl_nb.base.atomic_files import write_whole
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, RENEWED

# Version 1 has no PASSED events. Versions 1 and 2 have segments of equal size, and no kinds from
# BLOCKED on.
VERSION: Final = 3
MANIFEST: Final = re.compile(r"\d+\.json")
SEGMENT: Final = 1 << 20  # bytes of the largest segments
_ZEROS: Final = memoryview(bytes(1 << 16))
FIRST: Final = 1 << 12  # bytes of the first segment
LONGEST: Final = 1_000  # maximum number of characters in a name
_MOST_NAMES: Final = 1 << NAME_BITS
_VERSIONS: Final = ("gymnasium", "jax", "mujoco", "numpy", "stable_baselines3", "torch")


def size_of(number: int, most: int) -> int:
    """Return the size in bytes of a thread's segment; at most `most`."""
    return min(most, FIRST << min(number, 32))


class Segments:
    """Factory of the segment files of one thread.

    Args:
        stem: path of the files without number and suffix.
    """

    def __init__(self, stem: Path) -> None:
        self._stem, self._number, self._before = stem, 0, 0
        self._closed = False

    def __call__(self) -> mmap.mmap:
        """Create and map the next segment.

        Raises:
            OSError: the disk is full.
        """
        size = size_of(self._number, SEGMENT)
        if self._closed:
            return mmap.mmap(-1, size)
        path = self._path(self._number)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _reserve(file, size)
            made = mmap.mmap(file, size)
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(file)
        self._before += size_of(self._number - 1, SEGMENT) if self._number else 0
        self._number += 1
        return made

    def close(self, edges: int) -> None:
        """Truncate the last segment after the thread's last event, number `edges`."""
        self._closed = True
        if self._number:
            with suppress(OSError):  # the folder may have been deleted
                os.truncate(self._path(self._number - 1), edges * EDGE.itemsize - self._before)

    def _path(self, number: int) -> Path:
        return Path(f"{self._stem}-{number}.edges")


def _reserve(file: int, size: int) -> None:
    """Reserve the disk space of a segment, and fill it with zeros.

    The first store to a page that was only reserved takes 4 µs on ext4, to a written page 0.2 µs.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    left = size
    while left:
        left -= os.write(file, _ZEROS[:left])


class NameTable:
    """Numbers of names, from 1 on; each name is on disk before its first use.

    Attributes:
        numbers: number of each known name.
        process: number of this process in the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = Lock()
        self.numbers: dict[str, int] = {"": 0}
        self.process, self._path = _new_process(folder)

    def remove(self) -> None:
        """Delete the file if the recording could not begin."""
        self._path.unlink()

    def number(self, name: str) -> int:
        """Return the number of a name.

        If the table is full, all new names share the last number.
        """
        found = self.numbers.get(name)
        if found is not None:
            return found
        with self._lock:
            if name not in self.numbers and len(self.numbers) < _MOST_NAMES:
                self._add({"name": name if len(name) <= LONGEST else f"{name[:LONGEST]}… (cut)"})
                self.numbers[name] = len(self.numbers)
            return self.numbers.get(name, _MOST_NAMES - 1)

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Write a JSON line about the process."""
        with self._lock:
            self._add(line)

    def _add(self, line: Mapping[str, Any]) -> None:
        with open(self._path, "ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")


def _new_process(folder: Path) -> tuple[int, Path]:
    """Return the number of this process, and the path of its new name table."""
    number = os.getpid()
    while True:
        path = folder / f"{number}.names"
        try:
            path.touch(exist_ok=False)
            return number, path
        except FileExistsError:  # an earlier process had the same id
            number += RENEWED


Clocks = dict[str, int]


def clocks() -> Clocks:
    """Return both clocks at one moment, and the CPU time of the process, in nanoseconds."""
    cpu = time.process_time_ns()
    return {"monotonic": monotonic_ns(), "wall": time.time_ns(), "cpu": cpu}


def write_manifest(
    folder: Path,
    process: int,
    recorder: str,
    made_by: tuple[int, int],
    begin: Clocks,
    end: Clocks | None = None,
    alive: Sequence[int] = (),
) -> None:
    """Write the manifest of a process, at the start and again at the end of the recording.

    Args:
        folder: folder of the recording.
        process: number of the process in the folder.
        recorder: "c" or "python".
        made_by: number of the parent process, and its forking thread or 0.
        begin: clocks at the start.
        end: clocks at the end; None while the recording is open.
        alive: numbers of the threads still running at the end.
    """
    about = {
        "version": VERSION,
        "recorder": recorder,
        "python": platform.python_version(),
        "process": process,
        "parent": made_by[0],
        "forked_by": made_by[1],
        "command": (sys.argv if sys.argv[:1] != ["-c"] else sys.orig_argv[1:])[:100],
        "begin": begin,
        "end": end,
        "alive": list(alive),
        "segment": SEGMENT,
        "made_by": {} if end is None else _made_by(),
    }
    path = folder / f"{process}.json"
    write_whole(path, json.dumps(about, indent=1).encode(), synced=False)


def _made_by() -> dict[str, str]:
    """Return the machine and the versions of libraries, because overhead depends on them."""
    loaded = {name: getattr(sys.modules.get(name), "__version__", None) for name in _VERSIONS}
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        **{name: str(version) for name, version in loaded.items() if version is not None},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
