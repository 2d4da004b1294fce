"""Child processes of a recorded process, and waits at the end of a phase."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import OptionError
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane, Process
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, SENDS, STARTS, Kind, Library

NAMES = ("", "collect", SENDS, f"{STARTS}2 worker")
WAITS = Library.WAITING << NAME_BITS


def lane(process: int, end: int, *rows: tuple[int, Kind, int, int]) -> Lane:
    """Return events from (ts, kind, top, depth)."""
    edges = [(ts, top, kind, depth) for ts, kind, top, depth in rows]
    return Lane(process, process, "", np.array(edges, EDGE), end)


def waits(begin: int, end: int) -> Sequence[tuple[int, Kind, int, int]]:
    return (begin, Kind.CALL_ENTER, WAITS, 1), (end, Kind.CALL_EXIT, 0, 0)


def links(recording: Recording, occurrence: int = 0) -> list[tuple[int, int, int, str]]:
    chain = trl.scope.critical_chain(recording, "collect", occurrence)
    for one, next_ in zip(chain.links, chain.links[1:], strict=False):
        assert one.end == next_.begin
    return [(one.process, one.begin, one.end, one.kind) for one in chain.links]


MAIN = lane(
    1,
    110,
    (10, Kind.PHASE_ENTER, 1, 1),
    (18, Kind.MARK, 2, 0),
    *waits(22, 80),
    (100, Kind.PHASE_EXIT, 0, 0),
    (101, Kind.PHASE_ENTER, 1, 1),
)


def test_a_chain_goes_where_a_wait_was_ended() -> None:
    worker = lane(
        2, 105, (5, Kind.MARK, 0, 0), *waits(6, 25), (70, Kind.MARK, 2, 0), *waits(75, 100)
    )
    idle = lane(3, 109, (5, Kind.MARK, 0, 0), (60, Kind.MARK, 2, 0), *waits(61, 109))
    recording = Recording((MAIN, worker, idle), NAMES)
    assert links(recording) == [
        (1, 10, 18, "works"),
        (2, 18, 25, "wakes"),
        (2, 25, 70, "works"),
        (1, 70, 80, "wakes"),
        (1, 80, 100, "works"),
    ]
    assert links(recording, 1) == links(recording, -1) == [(1, 101, 110, "works")]
    chain = trl.scope.critical_chain(recording, "collect")
    assert sum(chain.by_thread().values()) == 90
    assert str(chain).splitlines()[1].split() == ["2", "2", "works", "0.000", "50.0%"]


def test_a_chain_goes_to_whoever_made_a_process() -> None:
    main = lane(1, 110, (10, Kind.PHASE_ENTER, 1, 1), (20, Kind.MARK, 3, 0), *waits(21, 90))
    worker = lane(2, 85, (40, Kind.MARK, 0, 0))  # its end ends the wait
    made = (Process(1, 0, 0, "main", 1, 110), Process(2, 1, 0, "worker", 40, 85))
    recording = Recording((main, worker), NAMES, processes=made)
    assert links(recording) == [
        (1, 10, 20, "works"),
        (2, 20, 40, "starts"),
        (2, 40, 85, "works"),
        (1, 85, 90, "wakes"),
        (1, 90, 110, "works"),
    ]
    (root,) = trl.scope.processes(recording).roots
    assert [one.name for one in root.children] == ["worker"]


def test_where_nobody_is_known_the_wait_is_the_chain() -> None:
    assert links(Recording((MAIN,), NAMES)) == [
        (1, 10, 22, "works"),
        (1, 22, 80, "waits"),
        (1, 80, 100, "works"),
    ]


def test_phases_that_are_not_there_are_refused() -> None:
    recording = Recording((MAIN,), NAMES)
    with pytest.raises(OptionError, match="the phase 'colect' does not exist") as found:
        trl.scope.critical_chain(recording, "colect")
    assert "'collect'" in str(found.value)
    with pytest.raises(OptionError, match="has 2 occurrences, but occurrence=2"):
        trl.scope.critical_chain(recording, "collect", 2)
    with pytest.raises(OptionError, match="does not exist"):
        trl.scope.critical_chain(Recording((), ("",)), "collect")


def test_what_is_started_within_a_recording_is_in_it() -> None:
    before = dict(os.environ)
    code = "import time; time.sleep(0.001)"
    with trl.scope.record() as rec:
        subprocess.run([sys.executable, "-c", code], check=True)
    assert dict(os.environ) == before
    (root,) = trl.scope.processes(rec.read()).roots
    (child,) = root.children
    assert root.process.number == os.getpid() and child.waiting >= 1_000_000
    assert child.started is not None and child.joined is not None
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(list(trl.scope.processes(rec.read()))) == 2


def test_a_process_that_outlives_its_recording_ends_in_silence(tmp_path: Path) -> None:
    code = "import sys; sys.stdin.read()"
    with trl.scope.record(tmp_path / "r"):
        pipe = subprocess.PIPE
        child = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stderr=pipe)
    while len(list((tmp_path / "r").glob("*.json"))) < 2:
        time.sleep(0.01)
    shutil.rmtree(tmp_path / "r")
    assert child.communicate()[1] == b"" and child.returncode == 0
