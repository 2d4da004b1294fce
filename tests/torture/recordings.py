"""Recordings of processes killed at a random moment: only the last event may be lost.

One or five processes of two threads call a wrapped function inside operations, and count calls in
separate files. All processes are killed at the same moment. The recording must contain every
counted call.
"""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any, Final

import numpy as np

from tests.torture.progress import Progress
from timerl_nb.scope import operation, phase
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.analysis.time_breakdown import overlap_of
from timerl_nb.scope.recording import recorder
from timerl_nb.scope.storage.event_format import NAME_BITS, Kind, Library
from timerl_nb.scope.storage.recording_reader import read
from timerl_nb.scope.wrappers import c_or_python_recorder as native
from timerl_nb.scope.wrappers import python_recorder as pure
from timerl_nb.scope.wrappers.function_wrappers import Taps

ABOUT: Final = "recordings of processes that are killed while they write"
COUNT: Final = 100
MINUTES: Final = 10.0
_BUILT: Final = native.module
_NAME: Final = (1 << NAME_BITS) - 1
_DEEP: Final = Kind.CALL_ENTER, Kind.OPERATION_ENTER, Kind.PHASE_ENTER


def run(progress: Progress) -> None:
    while progress.goes_on:
        random = Random(f"{progress.seed} {progress.done}")
        written, processes = ("c", "python")[progress.done % 2], random.choice((1, 5))
        folder = progress.folder / "recording"
        edges, wrong = tried(folder, written, processes, random.random() * 0.3)
        progress.add(f"{written}, {processes} processes")
        progress.most("edges in one recording", edges)
        progress.tried(*(f"try {progress.done}: {text}" for text in wrong))


def tried(folder: Path, written: str, processes: int, seconds: float) -> tuple[int, list[str]]:
    """Return the number of events in a recording of processes killed after some seconds, and failures."""
    rmtree(folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks, but the child does not use it
        child = os.fork()
    if not child:
        os.setpgid(0, 0)
        try:
            _record(folder, written, processes)
        finally:
            os._exit(1)
    # a file is empty until its thread sets its size
    while sum(path.stat().st_size > 0 for path in folder.glob("*.count")) < 2 * processes:
        if os.waitpid(child, os.WNOHANG)[0]:
            return 0, ["its process ended by itself"]
        time.sleep(0.001)
    time.sleep(seconds)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return checked(folder, processes)


def checked(folder: Path, processes: int) -> tuple[int, list[str]]:
    """Return the same for the folder of dead processes."""
    recording = read(folder)
    lanes = {(lane.process, lane.thread): lane for lane in recording.lanes}
    wrong = [text for lane in recording.lanes for text in _broken(lane)]
    if len(recording.processes) != processes:
        wrong.append(f"{len(recording.processes)} processes of {processes}")
    for path in folder.glob("*.count"):
        process, thread = map(int, path.stem.split("-"))
        counted = int(np.frombuffer(path.read_bytes(), np.uint64)[0])
        found = _done(lanes[process, thread]) if (process, thread) in lanes else 0
        if found < counted:
            wrong.append(f"{path.stem}: {counted} operations were done, {found} are recorded")
    wall = sum(lane.end - int(lane.edges["ts"][0]) for lane in recording.lanes)
    if overlap_of(recording).total != wall:
        wrong.append("times do not sum up to the wall time")
    return sum(len(lane.edges) for lane in recording.lanes), wrong + _strange(recording)


def _record(folder: Path, written: str, processes: int) -> None:
    """Record until killed."""
    native.module = pure if written == "python" else _BUILT
    taps = Taps()
    called = taps.get_or_make(zlib.crc32, "crc32", Library.BACKEND)
    recorder.begin(folder)

    def work() -> None:
        path = folder / f"{os.getpid()}-{threading.get_native_id()}.count"
        path.write_bytes(bytes(8))
        with open(path, "r+b") as file:
            count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
        while True:
            with phase("all"), operation("step"):
                called(b"x")
            count[0] += 1

    for _ in range(processes - 1):
        if not os.fork():
            break
    threading.Thread(target=work).start()
    work()


def _done(lane: Lane) -> int:
    return int((lane.edges["kind"] == Kind.PHASE_EXIT).sum())


def _broken(lane: Lane) -> Iterator[str]:
    """Yield the first event of each stack that does not change its depth by one."""
    kinds = lane.edges["kind"].astype(int)
    for enter in _DEEP:
        at = np.flatnonzero(kinds & ~1 == enter)
        kind, depth = kinds[at], lane.edges["depth"][at]
        meant = np.cumsum(np.where(kind & 1, -1, 1))
        if (wrong := np.flatnonzero(meant != depth)).size:
            k = int(wrong[0])
            yield f"{lane.process}-{lane.thread}: depth {depth[k]} at edge {at[k]}, {meant[k]} is meant"


def _strange(recording: Recording) -> list[str]:
    known: dict[Any, set[str]] = {
        Kind.CALL_ENTER: {"crc32"},
        Kind.OPERATION_ENTER: {"step"},
        Kind.PHASE_ENTER: {"all"},
    }
    found: list[str] = []
    for lane in recording.lanes:
        for kind, names in known.items():
            tops = lane.edges["top"][lane.edges["kind"] == kind] & _NAME
            said = {recording.names[top] for top in np.unique(tops).tolist()}
            found += [f"{lane.process}-{lane.thread}: {name!r}" for name in sorted(said - names)]
    return found
