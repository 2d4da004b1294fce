"""The files of a recording: lanes as mapped segments, names as lines, a manifest for each process.

    10-17-0.edges   process 10, thread 17, its first segment: edges, the rest of it zeros
    10.names        a line of JSON for each name, ahead of its first use; for what each thread is called, the operations of each
                    launch of a compiled program, and what recording costs in a tight loop, in nanoseconds
    10.json         who recorded, and the clocks at both ends

What is in a mapped file survives the process, whatever ends it, without any flush. A segment is reserved
before it is written to: a sparse one would end the program by SIGBUS on a full disk.
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
from pathlib import Path
from threading import Lock
from time import monotonic_ns
from typing import Any, Final

from timerl_nb.files import write_whole
from timerl_nb.scope.edges import NAME_BITS

VERSION: Final = 2  # recordings of 1 do not say what has passed
MANIFEST: Final = re.compile(r"\d+\.json")
SEGMENT: Final = 1 << 20  # bytes
LONGEST: Final = 1_000  # characters of a name that are kept
_MOST_NAMES: Final = 1 << NAME_BITS
_VERSIONS: Final = ("gymnasium", "jax", "mujoco", "numpy", "stable_baselines3", "torch")


class Segments:
    """Makes the files of one thread, one after the other.

    Args:
        stem: their path without number and ending.
    """

    def __init__(self, stem: Path) -> None:
        self._stem, self._number = stem, 0

    def __call__(self) -> mmap.mmap:
        """The next segment, mapped.

        Raises:
            OSError: there is no room for it.
        """
        path = Path(f"{self._stem}-{self._number}.edges")
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _reserve(file)
            made = mmap.mmap(file, SEGMENT)
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(file)
        self._number += 1
        return made


def _reserve(file: int) -> None:
    """Have the room of a segment on the disk."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, SEGMENT)
        return
    left = SEGMENT
    while left:
        left -= os.write(file, bytes(left))


class NameTable:
    """Numbers for names, from 1 on, each on the disk ahead of its first use.

    Attributes:
        numbers: of the names that have one.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        self.numbers: dict[str, int] = {"": 0}
        path.touch(exist_ok=False)

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

    def say(self, line: Mapping[str, Any]) -> None:
        """Say something else of the process, in a line of its own."""
        with self._lock:
            self._add(line)

    def _add(self, line: Mapping[str, Any]) -> None:
        with open(self._path, "ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")


Clocks = dict[str, int]


def clocks() -> Clocks:
    """Both clocks at one moment, and the CPU time that the process has spent, in nanoseconds."""
    cpu = time.process_time_ns()
    return {"monotonic": monotonic_ns(), "wall": time.time_ns(), "cpu": cpu}


def write_manifest(
    folder: Path,
    recorder: str,
    made_by: tuple[int, int],
    begin: Clocks,
    end: Clocks | None = None,
    alive: Sequence[int] = (),
) -> None:
    """Say who records, and since when; and, where that has ended, until when, and the threads that were there then.

    Args:
        made_by: the process that made this one, and the thread of it that forked it, or 0.
    """
    about = {
        "version": VERSION,
        "recorder": recorder,
        "python": platform.python_version(),
        "process": os.getpid(),
        "parent": made_by[0],
        "forked_by": made_by[1],
        "command": (sys.argv if sys.argv[:1] != ["-c"] else sys.orig_argv[1:])[:100],
        "begin": begin,
        "end": end,
        "alive": list(alive),
        "segment": SEGMENT,
        "made_by": {} if end is None else _made_by(),
    }
    path = folder / f"{os.getpid()}.json"
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
