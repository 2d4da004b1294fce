"""A recording, read from its folder, also of processes that were killed while they wrote it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.errors import ExecutionError
from timerl_nb.scope.edges import EDGE, NAME_BITS, Kind
from timerl_nb.scope.lanes import Lane, Recording
from timerl_nb.scope.writing import VERSION

_LANE: Final = re.compile(r"(\d+)-(\d+)-(\d+)\.edges")
_NAME: Final = (1 << NAME_BITS) - 1
_HOW: Final = "record anew, or read the folder as it was recorded."


def read(folder: str | Path) -> Recording:
    """The lanes of all processes in a folder, under one table of names.

    An edge that was being written as its process was killed is left out, and so is a last line of names.

    Raises:
        ExecutionError: it is no recording, one of another version, or was changed; the file is named.
    """
    folder = Path(folder)
    manifests = sorted(folder.glob("*.json"), key=lambda path: path.name)
    if not manifests:
        raise ExecutionError(f"there is no recording in {folder}.", hint="name a recorded folder.")
    segments: dict[tuple[int, int], dict[int, Path]] = {}
    for path in folder.iterdir():
        found = _LANE.fullmatch(path.name)
        if found:
            process, thread, number = map(int, found.groups())
            segments.setdefault((process, thread), {})[number] = path
    table: dict[str, int] = {"": 0}
    lanes: list[Lane] = []
    for path in manifests:
        about = _manifest(path)
        process, end = about["process"], about["end"]
        names, threads = _names(folder / f"{process}.names")
        numbers = np.array([table.setdefault(name, len(table)) for name in names], np.uint32)
        for (of, thread), parts in sorted(segments.items()):
            if of != process:
                continue
            edges = _edges([parts[k] for k in sorted(parts)])
            if not len(edges):
                continue
            last = int(edges["ts"][-1])
            known = last if end is None else max(last, end["monotonic"])
            renamed = _renamed(edges, numbers, folder)
            lanes.append(Lane(process, thread, threads.get(thread, ""), renamed, known))
    return Recording(tuple(lanes), tuple(table))


def _manifest(path: Path) -> Mapping[str, Any]:
    try:
        about = json.loads(path.read_bytes())
        version, process, end = about["version"], about["process"], about["end"]
        whole = isinstance(process, int) and (end is None or isinstance(end["monotonic"], int))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExecutionError(
            f"{path} is no manifest of a recording: {error!r}.", hint=_HOW
        ) from None
    if version != VERSION:
        raise ExecutionError(
            f"{path} is of version {version!r}; this is read here: {VERSION}.",
            hint="read it with the TimeRL-nb that recorded it.",
        )
    if not whole:
        raise ExecutionError(f"{path} is no manifest of a recording.", hint=_HOW)
    return about


def _names(path: Path) -> tuple[list[str], dict[int, str]]:
    """Names by number, and what threads are called; a last line without its end was being written."""
    try:
        *lines, _ = path.read_bytes().split(b"\n")
        found = [json.loads(line) for line in lines]
        names = ["", *[one["name"] for one in found if "name" in one]]
        return names, {one["thread"]: one["called"] for one in found if "thread" in one}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExecutionError(f"{path} has no names of a recording: {error!r}.", hint=_HOW) from None


def _edges(paths: list[Path]) -> Array:
    """The edges of a thread's segments, in order, as far as they are whole."""
    parts: list[Array] = []
    for path in paths:
        try:
            size = path.stat().st_size // EDGE.itemsize * EDGE.itemsize
            content = np.fromfile(path, EDGE, size // EDGE.itemsize)
        except OSError as error:
            raise ExecutionError(f"{path} cannot be read: {error}.", hint=_HOW) from None
        empty = np.flatnonzero(content["ts"] == 0)
        parts.append(content[: empty[0]] if len(empty) else content)
    edges = np.concatenate(parts) if parts else np.zeros(0, EDGE)
    wrong = np.flatnonzero(
        (edges["kind"] > max(Kind)) | (np.diff(edges["ts"], prepend=0) > 1 << 63)
    )
    if len(wrong):
        raise ExecutionError(
            f"{paths[0].name.rpartition('-')[0]} in {paths[0].parent} is damaged at edge {wrong[0]}.",
            hint=_HOW,
        )
    return edges


def _renamed(edges: Array, numbers: Array, folder: Path) -> Array:
    """The edges by the names of all processes."""
    name = edges["top"] & _NAME
    if int(name.max()) >= len(numbers):
        raise ExecutionError(f"edges in {folder} have names that are not in it.", hint=_HOW)
    made = edges.copy()
    made["top"] = edges["top"] >> NAME_BITS << NAME_BITS | numbers[name]
    return made
