"""The files of a recording: lanes as mapped segments, names as lines, a manifest for each process.

    10-17-0.edges   process 10, thread 17, its first segment: edges, the rest of it zeros
    10.names        a line of JSON for each name, ahead of its first use; for the name of each thread, the operations of each
                    launch of a compiled program, the cost of recording in a tight loop, in nanoseconds; and, at the
                    end, for the number of edges of each thread
    10.json         the recorder, and the clocks at both ends

The numbers are those of the system. A process (or thread) gets `RENEWED` more for each earlier one of the same
number in the folder: `os.execv` keeps the number, and the system uses numbers again.

A mapped file survives the process without any flush. A segment is reserved before it is written to: a sparse one
would end the program by SIGBUS on a full disk. The first segment of a thread is small, each further one twice as large.
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

# 1 has no counts of passed calls; up to 2 all segments have one size, and the kinds from BLOCKED on are missing
VERSION: Final = 3
MANIFEST: Final = re.compile(r"\d+\.json")
SEGMENT: Final = 1 << 20  # bytes, of the largest ones
FIRST: Final = 1 << 12  # of the first one
LONGEST: Final = 1_000  # characters of a name that are kept
_MOST_NAMES: Final = 1 << NAME_BITS
_VERSIONS: Final = ("gymnasium", "jax", "mujoco", "numpy", "stable_baselines3", "torch")


def size_of(number: int, most: int) -> int:
    """Bytes of a thread's segment, at most `most`."""
    return min(most, FIRST << min(number, 32))


class Segments:
    """Makes the files of one thread, one after the other.

    Args:
        stem: their path without number and ending.
    """

    def __init__(self, stem: Path) -> None:
        self._stem, self._number, self._before = stem, 0, 0
        self._closed = False

    def __call__(self) -> mmap.mmap:
        """The next segment, mapped.

        Raises:
            OSError: there is no room for it.
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
        """Shrink the last segment of a thread that has written so many edges, and is done."""
        self._closed = True
        if self._number:
            with suppress(OSError):  # the folder may be gone
                os.truncate(self._path(self._number - 1), edges * EDGE.itemsize - self._before)

    def _path(self, number: int) -> Path:
        return Path(f"{self._stem}-{number}.edges")


def _reserve(file: int, size: int) -> None:
    """Reserve the disk space of a segment."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    left = size
    while left:
        left -= os.write(file, bytes(left))


class NameTable:
    """Numbers for names, from 1 on, each on the disk ahead of its first use.

    Attributes:
        numbers: of the names that have one.
        process: the number of this process in the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = Lock()
        self.numbers: dict[str, int] = {"": 0}
        self.process, self._path = _new_process(folder)

    def remove(self) -> None:
        """Take the file away: nothing is recorded."""
        self._path.unlink()

    def number(self, name: str) -> int:
        """The number of a name; of the last one there can be all further ones."""
        found = self.numbers.get(name)
        if found is not None:
            return found
        with self._lock:
            if name not in self.numbers and len(self.numbers) < _MOST_NAMES:
                self._add({"name": name if len(name) <= LONGEST else f"{name[:LONGEST]}… (cut)"})
                self.numbers[name] = len(self.numbers)
            return self.numbers.get(name, _MOST_NAMES - 1)

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Say something else of the process, in a line of its own."""
        with self._lock:
            self._add(line)

    def _add(self, line: Mapping[str, Any]) -> None:
        with open(self._path, "ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")


def _new_process(folder: Path) -> tuple[int, Path]:
    """The number of this process, and its new file of names."""
    number = os.getpid()
    while True:
        path = folder / f"{number}.names"
        try:
            path.touch(exist_ok=False)
            return number, path
        except FileExistsError:  # of an earlier process with the same id
            number += RENEWED


Clocks = dict[str, int]


def clocks() -> Clocks:
    """Both clocks at one moment, and the CPU time that the process has spent, in nanoseconds."""
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
    """Say who records, and since when; and, where that has ended, until when, and the threads that were there then.

    Args:
        process: its number in the folder.
        made_by: the process that made this one, and the thread of it that forked it, or 0.
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
    """What decides how long things take, but for the program: the machine, and versions of libraries."""
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
