"""The main memory that this process may still take, as Linux says it.

The machine has some to give, every control group that the process is in may allow less (those of both
versions, and each group around them), and so may the limits of the process itself.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any


@dataclass(frozen=True)
class Left:
    """Bytes that may still be taken, and what allows no more."""

    nbytes: int
    why: str


@dataclass(frozen=True)
class _Files:
    """What the files of a version of control groups are called."""

    limit: str
    used: str
    cached: str  # the line of memory.stat that says what would be given up first


_VERSIONS = {
    "cgroup2": _Files("memory.max", "memory.current", "inactive_file"),
    "cgroup": _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
_GROUP = re.compile(r"(?P<number>\d+):(?P<controllers>[^:]*):(?P<group>/.*)")
_MOUNT = re.compile(
    r"\S+ \S+ \S+ (?P<at>\S+) (?P<mounted>\S+) .*?- (?P<version>\S+) \S+ (?P<options>\S+)"
)
_UNLIMITED = 1 << 60  # version 1 writes a number of about 2⁶³ where there is no limit


def main_memory_left(root: Path = Path("/")) -> Left | None:
    """The least that anything leaves to this process; None where nothing says.

    Args:
        root: where the folders `proc` and `sys` are.
    """
    found = [*_machine(root), *_groups(root), *_own(root)]
    return min(found, key=lambda left: left.nbytes, default=None)


def _machine(root: Path) -> Iterator[Left]:
    available = _number(root / "proc/meminfo", "MemAvailable:")
    if available is not None:
        yield Left(available * 1024, "the machine has no more available")
    elif hasattr(os, "sysconf"):
        with suppress(ValueError, OSError):
            whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            yield Left(whole, "the machine has no more")


def _groups(root: Path) -> Iterator[Left]:
    for version, mounted, at, group in _mounts(root):
        files = _VERSIONS[version]
        top = root / mounted.lstrip("/")
        inside = _relative_group(group, at)
        for path in (inside, *inside.parents):
            folder = top / path
            limit, used = _number(folder / files.limit), _number(folder / files.used)
            if limit is None or used is None or limit >= _UNLIMITED:
                continue
            idle = _number(folder / "memory.stat", files.cached) or 0
            name = str(PurePosixPath(mounted) / path)
            why = f"the control group {name} allows {limit:,}, and holds {used:,}"
            yield Left(max(0, limit - max(0, used - idle)), why)


def _mounts(root: Path) -> Iterator[tuple[str, str, str, str]]:
    """Where groups that count memory are mounted: version, place, the group there, and ours."""
    ours: dict[str, str] = {}
    for line in _lines(root / "proc/self/cgroup"):
        found = _GROUP.fullmatch(line)
        if found and found["number"] == "0":
            ours["cgroup2"] = found["group"]
        elif found and "memory" in found["controllers"].split(","):
            ours["cgroup"] = found["group"]
    for line in _lines(root / "proc/self/mountinfo"):
        mount = _MOUNT.match(line)
        if mount is None or mount["version"] not in ours:
            continue
        if mount["version"] == "cgroup2" or "memory" in mount["options"].split(","):
            yield mount["version"], mount["mounted"], mount["at"], ours[mount["version"]]


def _relative_group(group: str, at: str) -> PurePosixPath:
    """A group as seen from the one that is mounted; that one itself where it is elsewhere."""
    with suppress(ValueError):
        inside = PurePosixPath(group).relative_to(at)
        if ".." not in inside.parts:
            return inside
    return PurePosixPath()


def _own(root: Path) -> Iterator[Left]:
    """What the limits of the process leave, where its system has them."""
    try:
        limits: Any = importlib.import_module("resource")
        pages = [int(word) for word in _lines(root / "proc/self/statm")[0].split()]
    except (ImportError, IndexError, ValueError):
        return
    page = os.sysconf("SC_PAGE_SIZE")
    for name, column in (("RLIMIT_AS", 0), ("RLIMIT_DATA", 5)):
        limit, _ = limits.getrlimit(getattr(limits, name))
        if limit != limits.RLIM_INFINITY:
            used = pages[column] * page
            why = f"its limit {name} allows {limit:,}, and it holds {used:,}"
            yield Left(max(0, limit - used), why)


def _number(path: Path, name: str = "") -> int | None:
    """The number in a file, or behind a name there; None where there is none, as for `max`."""
    for line in _lines(path):
        words = line.split()
        if name and words[:1] == [name]:
            words = words[1:]
        elif name:
            continue
        return int(words[0]) if words and words[0].isdecimal() else None
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, ValueError):
        return []
