"""A recording, read from its folder, also of processes that were killed while they wrote it."""

from __future__ import annotations

import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.errors import ExecutionError
from timerl_nb.scope.edges import EDGE, NAME_BITS, NAME_MASK, Kind
from timerl_nb.scope.lanes import Lane, Process
from timerl_nb.scope.recording import Recording
from timerl_nb.scope.traces import read_trace
from timerl_nb.scope.windows import windowed
from timerl_nb.scope.writing import VERSION

_LANE: Final = re.compile(r"(\d+)-(\d+)-(\d+)\.edges")
_TRACE: Final = re.compile(r"\d+-\d+\.devices")
_HOW: Final = "record anew, or read the folder as it was recorded."


def read(folder: str | os.PathLike[str]) -> Recording:
    """The lanes of all processes in a folder, or in a zip of it, under one table of names, and what devices ran.

    An edge that was being written as its process was killed is left out, and so is a last line of names.

    Raises:
        ExecutionError: it is no recording, one of another version, or was changed; the file is named.
    """
    with _opened(Path(folder)) as there:
        return _read(there, Path(folder))


@contextmanager
def _opened(path: Path) -> Iterator[Traversable]:
    """A folder, or the inside of a zip."""
    if not zipfile.is_zipfile(path):
        yield path
        return
    try:
        with zipfile.ZipFile(path) as archive:
            yield zipfile.Path(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ExecutionError(f"{path} is damaged: {error}.", hint=_HOW) from None


def _read(folder: Traversable, source: Path) -> Recording:
    try:
        files = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError:  # it is no folder, or none that may be read
        files = []
    manifests = [path for path in files if path.name.endswith(".json")]
    if not manifests:
        raise ExecutionError(
            f"there is no recording in {source}.", hint="name a recorded folder, or a zip of one."
        )
    segments: dict[tuple[int, int], dict[int, Traversable]] = {}
    for path in files:
        found = _LANE.fullmatch(path.name)
        if found:
            process, thread, number = map(int, found.groups())
            segments.setdefault((process, thread), {})[number] = path
    table: dict[str, int] = {"": 0}
    lanes: list[Lane] = []
    op_ids: dict[str, tuple[int, ...]] = {}
    processes: list[Process] = []
    for path in manifests:
        about = _manifest(path)
        process, end, alive = about["process"], about["end"], set(about["alive"])
        ended = end and end["monotonic"]
        command = " ".join(about["command"])
        names, threads, launches, costs = _names(folder / f"{process}.names")
        begin = about["begin"]["monotonic"]
        cpu = end["cpu"] - about["begin"]["cpu"] if end and "cpu" in end else None
        made_by = {key: str(about[key]) for key in ("recorder", "python") if key in about}
        made_by |= about.get("made_by", {})
        made_by["count of blocks"] = "operations" if costs else "nothing"
        processes.append(
            Process(
                process,
                about["parent"],
                about["forked_by"],
                command,
                begin,
                ended,
                cpu,
                made_by,
                costs,
            )
        )
        op_ids |= launches
        numbers = np.array([table.setdefault(name, len(table)) for name in names], np.uint32)
        for (of, thread), parts in sorted(segments.items()):
            if of != process:
                continue
            edges = _edges(parts, about["segment"])
            if not len(edges):
                continue
            last = int(edges["ts"][-1])
            known = max(last, end["monotonic"]) if end and thread in alive else last
            renamed = _renamed(edges, numbers, folder)
            lanes.append(Lane(process, thread, threads.get(thread, ""), renamed, known))
    processes.sort(key=lambda one: one.begin)
    traces = [read_trace(path) for path in files if _TRACE.fullmatch(path.name)]
    seen, devices = windowed(lanes, traces, table)
    return Recording(seen, tuple(table), op_ids, tuple(processes), devices, source=source)


def _manifest(path: Traversable) -> Mapping[str, Any]:
    try:
        about = json.loads(path.read_bytes())
        version, process, end = about["version"], about["process"], about["end"]
        whole = isinstance(process, int) and isinstance(about["segment"], int)
        whole = whole and isinstance(about["alive"], list) and isinstance(about["parent"], int)
        whole = whole and isinstance(about["forked_by"], int)
        whole = whole and isinstance(about["begin"]["monotonic"], int)
        whole = whole and all(isinstance(word, str) for word in about["command"])
        whole = whole and (end is None or isinstance(end["monotonic"], int))
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


def _names(
    path: Traversable,
) -> tuple[list[str], dict[int, str], dict[str, tuple[int, ...]], dict[str, float]]:
    """Names by number, what threads are called, what launches run, and what recording costs; a last line without its
    end was being written."""
    try:
        *lines, _ = path.read_bytes().split(b"\n")
        found = [json.loads(line) for line in lines]
        names = ["", *[one["name"] for one in found if "name" in one]]
        threads = {one["thread"]: one["called"] for one in found if "thread" in one}
        launches = {one["launch"]: tuple(one["op_ids"]) for one in found if "launch" in one}
        costs = {kind: float(ns) for one in found for kind, ns in one.get("costs", {}).items()}
        return names, threads, launches, costs
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExecutionError(f"{path} has no names of a recording: {error!r}.", hint=_HOW) from None


def _edges(paths: Mapping[int, Traversable], size: int) -> Array:
    """The edges of a thread's segments of so many bytes, in order, as far as the last one is whole."""
    parts: list[Array] = []
    for k, path in sorted(paths.items()):
        try:
            content = np.frombuffer(path.read_bytes(), np.uint8)
        except OSError as error:
            raise ExecutionError(f"{path} cannot be read: {error}.", hint=_HOW) from None
        edges = content[: len(content) // EDGE.itemsize * EDGE.itemsize].view(EDGE)
        empty = np.flatnonzero(edges["ts"] == 0)
        parts.append(edges[: empty[0]] if len(empty) else edges)
        is_last = k + 1 == len(paths)
        if k >= len(paths) or (not is_last and parts[-1].nbytes != size):
            missing = "is not the last, and not whole" if k < len(paths) else "lacks one before it"
            raise ExecutionError(f"{path} {missing}.", hint=_HOW)
    edges = np.concatenate(parts)
    back = np.flatnonzero(edges["ts"][1:] < edges["ts"][:-1]) + 1
    wrong = np.concatenate([np.flatnonzero(edges["kind"] > max(Kind)), back])
    if len(wrong):
        raise ExecutionError(
            f"{paths[0]} is damaged at edge {wrong.min()} of its thread.",
            hint=_HOW,
        )
    return edges


def _renamed(edges: Array, numbers: Array, folder: Traversable) -> Array:
    """The edges by the names of all processes."""
    named = ~np.isin(edges["kind"], (Kind.POINT, Kind.BLOCK_ENTER, Kind.BLOCK_EXIT))
    name = np.where(named, edges["top"] & NAME_MASK, 0)
    if int(name.max()) >= len(numbers):
        raise ExecutionError(f"edges in {folder} have names that are not in it.", hint=_HOW)
    made = edges.copy()
    renamed = edges["top"] >> NAME_BITS << NAME_BITS | numbers[name]
    made["top"] = np.where(named, renamed, edges["top"])
    return made
