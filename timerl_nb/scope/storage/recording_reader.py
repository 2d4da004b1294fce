"""Reader of recordings, also of processes killed during the recording."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.resources.abc import Traversable
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.atomic_files import LONGEST_TEXT, parse_json, user_path
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.language.argument_checks import printable
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.scope.analysis.phase_inheritance import with_phases
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import BLOCKED, Lane, Process
from timerl_nb.scope.device_activity.trace_data import read_trace
from timerl_nb.scope.device_activity.traced_windows import merge_traces
from timerl_nb.scope.storage.event_format import BLOCKS, NAME_BITS, NAME_MASK, NAMELESS
from timerl_nb.scope.storage.host_recordings import (
    Host,
    host_folders,
    merge_hosts,
    read_joins,
)
from timerl_nb.scope.storage.json_validation import NUMBER, cause, content_of, fits, of_version
from timerl_nb.scope.storage.recording_writer import MANIFEST, VERSION, size_of
from timerl_nb.scope.storage.thread_files import HOW, Last, lane_of, missed_of, read_edges

_LANE: Final = re.compile(r"(\d+)-(\d+)-(\d+)\.edges")
_TRACE: Final = re.compile(r"\d+-\d+\.devices")
_CLOCKS: Final = {"monotonic": int, "wall": int, "cpu": int}
_ABOUT: Final = {
    "recorder": str,
    "python": str,
    "process": int,
    "parent": int,
    "forked_by": int,
    "command": [str],
    "begin": _CLOCKS,
    "end": (_CLOCKS, None),
    "alive": [int],
    "segment": int,
    "made_by": {str: str},
}
_LINE: Final = (
    {"name": str},
    {"thread": int, "called": str},
    {"launch": str, "op_ids": [int]},
    {"costs": {str: NUMBER}},
    {"lanes": {str: {"edges": int, "blocked": int, "missed": [[(str, int)]]}}},
)


@explain_call_errors
def read(folder: str | os.PathLike[str]) -> Recording:
    """Read a recording from its folder, or from a zip file of the folder.

    An incomplete last event or name of a killed process is ignored. Subfolders of other hosts are read, too, and their
    times are converted to the clock of the recording.

    Args:
        folder: the folder or zip file.

    Returns:
        The events of all processes under one name table, and the operations of devices.

    Raises:
        ExecutionError: there is no recording, it has an unsupported version, or a file is damaged;
            the message names the file.

    Example:
        >>> with trl.scope.record("run"):
        ...     with trl.scope.operation("inference"):
        ...         total = sum(range(100))
        >>> recording = trl.scope.read("run")
        >>> "inference" in recording.names
        True
    """
    source = user_path(folder)
    with _open_recording(source) as there:
        own = _read(there, source)
        hosts = [Host(_read(one, source), read_joins(one)) for one in host_folders(there)]
        return merge_hosts(own, hosts) if hosts else own


@contextmanager
def _open_recording(path: Path) -> Iterator[Traversable]:
    """Return the folder, or the root of the zip file."""
    if not path.is_file():
        yield path
        return
    try:
        with zipfile.ZipFile(path) as archive:
            # the zip file may contain the folder itself
            inside = list(zipfile.Path(archive).iterdir())
            is_folder = len(inside) == 1 and inside[0].is_dir()
            yield inside[0] if is_folder else zipfile.Path(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ExecutionError(
            f"{path} is not a zip file of a recording, or is damaged: {cause(error)}.", hint=HOW
        ) from None


def _read(folder: Traversable, source: Path) -> Recording:
    """Read a recording from its folder or zip file; errors name it `source`.

    Raises:
        ExecutionError: there is no recording, or a file is missing or damaged.
    """
    try:
        files = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError:  # not a folder, or no permission
        files = []
    manifests = [path for path in files if MANIFEST.fullmatch(path.name)]
    if not manifests:
        raise ExecutionError(
            f"{source} contains no recording.",
            hint="pass the folder of a recording, or a zip file of it.",
        )
    segments: dict[tuple[int, int], dict[int, Traversable]] = {}
    for path in files:
        found = _LANE.fullmatch(path.name)
        if found:
            process, thread, number = map(int, found.groups())
            segments.setdefault((process, thread), {})[number] = path
    table: dict[str, int] = {"": 0}
    lanes: list[Lane] = []
    lasts: dict[tuple[int, int], Last] = {}
    op_ids: dict[str, tuple[int, ...]] = {}
    processes: list[Process] = []
    for path in manifests:
        about = _manifest(path)
        process, begin, end = about["process"], about["begin"], about["end"]
        said = _read_messages(folder / f"{process}.names")
        made_by = {key: about[key] for key in ("recorder", "python")} | about["made_by"]
        made_by[BLOCKS] = "operations" if said.costs else "nothing"
        processes.append(
            Process(
                process,
                about["parent"],
                about["forked_by"],
                printable(" ".join(about["command"])),
                begin["monotonic"],
                end and end["monotonic"],
                end and end["cpu"] - begin["cpu"],
                made_by,
                said.costs,
                begin["wall"],
            )
        )
        op_ids |= said.launches
        numbers = np.array([table.setdefault(name, len(table)) for name in said.names], np.uint32)
        for (of, thread), parts in sorted(segments.items()):
            if of != process:
                continue
            last = said.lanes.get(thread)
            if last is not None:
                rows = missed_of(last["missed"], lambda name: table.setdefault(name, len(table)))
                lasts[process, thread] = Last(last["edges"], last["blocked"], rows)
            sizes = partial(_size, about["version"], about["segment"])
            edges = read_edges(parts, sizes, lasts.get((process, thread)))
            if not len(edges):
                continue
            until = int(edges["ts"][-1])
            known = max(until, end["monotonic"]) if end and thread in about["alive"] else until
            renamed = _remap_names(edges, numbers, folder)
            lanes.append(Lane(process, thread, said.threads.get(thread, ""), renamed, known))
        for thread, last in said.lanes.items():
            if last["edges"] and (process, thread) not in segments:
                raise ExecutionError(
                    f"{folder / f'{process}-{thread}-0.edges'} is missing.", hint=HOW
                )
    processes.sort(key=lambda one: one.begin)
    traces = [read_trace(path) for path in files if _TRACE.fullmatch(path.name)]
    seen, devices = merge_traces(with_phases(lanes), traces, table)
    whole = [lane_of(lane, lasts.get((lane.process, lane.thread))) for lane in seen]
    if any(lane.blocked.size for lane in whole):
        table.setdefault(BLOCKED, len(table))
    return Recording(tuple(whole), tuple(table), op_ids, tuple(processes), devices, source=source)


def _size(version: int, most: int, number: int) -> int:
    """Return the size of a segment in bytes."""
    return most if version < 3 else size_of(number, most)


def _manifest(path: Traversable) -> Mapping[str, Any]:
    try:
        about = parse_json(content_of(path, LONGEST_TEXT))
        found = of_version(about, range(1, VERSION + 1), _ABOUT, path)
        return {**found, "version": about["version"]}
    except (OSError, ValueError) as error:
        raise ExecutionError(
            f"{path} is not a valid manifest of a recording: {cause(error)}.", hint=HOW
        ) from None


class _NameRecords(NamedTuple):
    """Content of a `.names` file.

    Attributes:
        names: names by number.
        threads: names of threads.
        launches: operation ids of each kernel launch.
        costs: costs of recording in nanoseconds (medians).
        lanes: final records of the threads still running at the end.
    """

    names: list[str]
    threads: dict[int, str]
    launches: dict[str, tuple[int, ...]]
    costs: dict[str, float]
    lanes: dict[int, Mapping[str, Any]]


def _read_messages(path: Traversable) -> _NameRecords:
    """Read the `.names` file of a process; an incomplete last line is ignored."""
    try:
        *lines, _ = content_of(path, LONGEST_TEXT).split(b"\n")
        found = [parse_json(line) for line in lines]
        if not fits(found, [_LINE]):
            raise ValueError("a line has an unknown format")
    except (OSError, ValueError) as error:
        raise ExecutionError(
            f"{path} is not a valid name table of a recording: {cause(error)}.", hint=HOW
        ) from None
    costs: dict[str, list[float]] = {}
    for kind, ns in (one for line in found for one in line.get("costs", {}).items()):
        costs.setdefault(kind, []).append(ns)
    return _NameRecords(
        ["", *[printable(one["name"]) for one in found if "name" in one]],
        {one["thread"]: printable(one["called"]) for one in found if "thread" in one},
        {one["launch"]: tuple(one["op_ids"]) for one in found if "launch" in one},
        {kind: median(each) for kind, each in costs.items()},
        {int(thread): last for line in found for thread, last in line.get("lanes", {}).items()},
    )


def _remap_names(edges: Array, numbers: Array, folder: Traversable) -> Array:
    """Return the events with numbers of the common name table."""
    named = ~np.isin(edges["kind"], NAMELESS)
    name = np.where(named, edges["top"] & NAME_MASK, 0)
    if int(name.max()) >= len(numbers):
        raise ExecutionError(f"events in {folder} refer to missing names.", hint=HOW)
    made = edges.copy()
    renamed = edges["top"] >> NAME_BITS << NAME_BITS | numbers[name]
    made["top"] = np.where(named, renamed, edges["top"])
    return made
