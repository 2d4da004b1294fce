"""A recording, read from its folder, also of processes that were killed while they wrote it."""

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
from timerl_nb.scope.analysis.phase_inheritance import with_phases
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import BLOCKED, Lane, Process
from timerl_nb.scope.device_activity.trace_data import read_trace
from timerl_nb.scope.device_activity.traced_windows import merge_traces
from timerl_nb.scope.storage.event_format import NAME_BITS, NAME_MASK, NAMELESS
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


def read(folder: str | os.PathLike[str]) -> Recording:
    """The lanes of all processes in a folder, or in a zip of it, under one table of names, and what devices ran.

    An edge that was being written as its process was killed is left out, and so is a last line of names.

    Raises:
        ExecutionError: it is no recording, one of another version, or was changed or cut short; the file is named.
    """
    with _open_recording(user_path(folder)) as there:
        return _read(there, user_path(folder))


@contextmanager
def _open_recording(path: Path) -> Iterator[Traversable]:
    """A folder, or the inside of a zip."""
    if not path.is_file():
        yield path
        return
    try:
        with zipfile.ZipFile(path) as archive:
            inside = list(zipfile.Path(archive).iterdir())  # of a zip of the folder, that
            is_folder = len(inside) == 1 and inside[0].is_dir()
            yield inside[0] if is_folder else zipfile.Path(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ExecutionError(
            f"{path} is no zip of a recording, or is damaged: {cause(error)}.", hint=HOW
        ) from None


def _read(folder: Traversable, source: Path) -> Recording:
    try:
        files = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError:  # it is no folder, or none that may be read
        files = []
    manifests = [path for path in files if MANIFEST.fullmatch(path.name)]
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
    lasts: dict[tuple[int, int], Last] = {}
    op_ids: dict[str, tuple[int, ...]] = {}
    processes: list[Process] = []
    for path in manifests:
        about = _manifest(path)
        process, begin, end = about["process"], about["begin"], about["end"]
        said = _read_messages(folder / f"{process}.names")
        made_by = {key: about[key] for key in ("recorder", "python")} | about["made_by"]
        made_by["count of blocks"] = "operations" if said.costs else "nothing"
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
    """Bytes of a thread's segment."""
    return most if version < 3 else size_of(number, most)


def _manifest(path: Traversable) -> Mapping[str, Any]:
    try:
        about = parse_json(content_of(path, LONGEST_TEXT))
        found = of_version(about, range(1, VERSION + 1), _ABOUT, path)
        return {**found, "version": about["version"]}
    except (OSError, ValueError) as error:
        raise ExecutionError(
            f"{path} is no manifest of a recording: {cause(error)}.", hint=HOW
        ) from None


class _NameRecords(NamedTuple):
    """Names by number, names of threads, operations of launches, costs of recording (medians), and ends of lanes."""

    names: list[str]
    threads: dict[int, str]
    launches: dict[str, tuple[int, ...]]
    costs: dict[str, float]
    lanes: dict[int, Mapping[str, Any]]


def _read_messages(path: Traversable) -> _NameRecords:
    """What a process has said beside its edges; a last line without its end was being written."""
    try:
        *lines, _ = content_of(path, LONGEST_TEXT).split(b"\n")
        found = [parse_json(line) for line in lines]
        if not fits(found, [_LINE]):
            raise ValueError("a line of it is none that is written")
    except (OSError, ValueError) as error:
        raise ExecutionError(
            f"{path} has no names of a recording: {cause(error)}.", hint=HOW
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
    """The edges by the names of all processes."""
    named = ~np.isin(edges["kind"], NAMELESS)
    name = np.where(named, edges["top"] & NAME_MASK, 0)
    if int(name.max()) >= len(numbers):
        raise ExecutionError(f"edges in {folder} have names that are not in it.", hint=HOW)
    made = edges.copy()
    renamed = edges["top"] >> NAME_BITS << NAME_BITS | numbers[name]
    made["top"] = np.where(named, renamed, edges["top"])
    return made
