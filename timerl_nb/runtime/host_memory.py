"""Main memory available to this process under Linux.

Three limits apply: the memory of the machine, the limit of every control group around the process
(versions 1 and 2), and the resource limits of the process.
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
class AvailableMemory:
    """Available bytes, and the limit that determines them."""

    nbytes: int
    why: str


@dataclass(frozen=True)
class _Files:
    """File names of one version of control groups."""

    limit: str
    used: str
    cached: str  # field of memory.stat: cached bytes, freed first by the operating system


_VERSIONS = {
    "cgroup2": _Files("memory.max", "memory.current", "inactive_file"),
    "cgroup": _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
_GROUP = re.compile(r"(?P<number>\d+):(?P<controllers>[^:]*):(?P<group>/.*)")
_MOUNT = re.compile(
    r"\S+ \S+ \S+ (?P<at>\S+) (?P<mounted>\S+) .*?- (?P<version>\S+) \S+ (?P<options>\S+)"
)
_UNLIMITED = 1 << 60  # version 1 represents "no limit" by a number of about 2⁶³


def available_main_memory(root: Path = Path("/")) -> AvailableMemory | None:
    """Return the smallest of all limits; None if no limit is known.

    Args:
        root: Folder with the folders `proc` and `sys`.
    """
    found = [*_machine_memory(root), *_control_group_memory(root), *_process_limits(root)]
    return min(found, key=lambda left: left.nbytes, default=None)


def _machine_memory(root: Path) -> Iterator[AvailableMemory]:
    available = _read_number(root / "proc/meminfo", "MemAvailable:")
    if available is not None:
        yield AvailableMemory(available * 1024, "the machine has no more available memory")
    elif hasattr(os, "sysconf"):
        with suppress(ValueError, OSError):
            whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            yield AvailableMemory(whole, "the machine has no more memory")


def _control_group_memory(root: Path) -> Iterator[AvailableMemory]:
    for version, mounted, at, group in _control_group_mounts(root):
        files = _VERSIONS[version]
        top = root / mounted.lstrip("/")
        inside = _relative_group(group, at)
        for path in (inside, *inside.parents):
            folder = top / path
            limit, used = _read_number(folder / files.limit), _read_number(folder / files.used)
            if limit is None or used is None or limit >= _UNLIMITED:
                continue
            idle = _read_number(folder / "memory.stat", files.cached) or 0
            name = str(PurePosixPath(mounted) / path)
            why = f"the control group {name} has a limit of {limit:,} bytes and uses {used:,}"
            yield AvailableMemory(max(0, limit - max(0, used - idle)), why)


def _control_group_mounts(root: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield the mounts of memory control groups: version, mount point, root group, our group."""
    ours: dict[str, str] = {}
    for line in _read_lines(root / "proc/self/cgroup"):
        found = _GROUP.fullmatch(line)
        if found and found["number"] == "0":
            ours["cgroup2"] = found["group"]
        elif found and "memory" in found["controllers"].split(","):
            ours["cgroup"] = found["group"]
    for line in _read_lines(root / "proc/self/mountinfo"):
        mount = _MOUNT.match(line)
        if mount is None or mount["version"] not in ours:
            continue
        if mount["version"] == "cgroup2" or "memory" in mount["options"].split(","):
            yield mount["version"], mount["mounted"], mount["at"], ours[mount["version"]]


def _relative_group(group: str, at: str) -> PurePosixPath:
    """Return a group relative to the mounted one, or that one itself if the group is not inside."""
    with suppress(ValueError):
        inside = PurePosixPath(group).relative_to(at)
        if ".." not in inside.parts:
            return inside
    return PurePosixPath()


def _process_limits(root: Path) -> Iterator[AvailableMemory]:
    """Yield the memory left by the resource limits of the process."""
    try:
        limits: Any = importlib.import_module("resource")
        pages = [int(word) for word in _read_lines(root / "proc/self/statm")[0].split()]
    except (ImportError, IndexError, ValueError):
        return
    page = os.sysconf("SC_PAGE_SIZE")
    for name, column in (("RLIMIT_AS", 0), ("RLIMIT_DATA", 5)):
        limit, _ = limits.getrlimit(getattr(limits, name))
        if limit != limits.RLIM_INFINITY:
            used = pages[column] * page
            why = f"the process limit {name} is {limit:,} bytes, of which {used:,} are in use"
            yield AvailableMemory(max(0, limit - used), why)


def _read_number(path: Path, name: str = "") -> int | None:
    """Read the number in a file, or the number after `name`; None if it is another text, such as `max`."""
    for line in _read_lines(path):
        words = line.split()
        if name and words[:1] == [name]:
            words = words[1:]
        elif name:
            continue
        return int(words[0]) if words and words[0].isdecimal() else None
    return None


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, ValueError):
        return []
