"""Recordings of several hosts join one tree, in one clock.

No second host exists here. Processes pretend to be on other hosts by `TIMERL_SCOPE_HOST`, and a different clock is
simulated: by a function, or by a shift of all times in the files of a host.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import ExecutionError
from timerl_nb.scope.analysis.process_tree import Branch
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane, Process
from timerl_nb.scope.device_activity.clock_alignment import Anchor, HostClock
from timerl_nb.scope.device_activity.device_operations import Devices, TracedWindow
from timerl_nb.scope.recording.clock_exchange import ClockServer, compare_clocks, request_anchor
from timerl_nb.scope.storage.event_format import EDGE, STARTS, Kind
from timerl_nb.scope.storage.host_clock_files import Join
from timerl_nb.scope.storage.host_recordings import Host, merge_hosts

# The first argument is a path to import from. Each other one is a host, on which the program starts itself again.
PROGRAM = """
import os, subprocess, sys
path, *hosts = sys.argv[1:]
sys.path.append(path)
import timerl_nb as trl
with trl.scope.phase("there"), trl.scope.operation("work"):
    total = sum(range(1000))
if hosts:
    given = {**os.environ, "TIMERL_SCOPE_HOST": hosts[0]}
    code = sys.orig_argv[sys.orig_argv.index("-c") + 1]
    subprocess.run([sys.executable, "-c", code, path, *hosts[1:]], env=given, check=True)
"""


class Network:
    """Simulated clocks of two hosts, and messages of random duration between them."""

    def __init__(self, offset: int, seed: int) -> None:
        self.now, self._offset = 10**12, offset
        self._random = random.Random(seed)

    def clock(self) -> int:
        return self.now

    def ask(self) -> int:
        self.now += self._random.randint(50_000, 5_000_000)
        theirs = self.now + self._offset
        self.now += self._random.randint(50_000, 5_000_000)
        return theirs


@pytest.mark.parametrize("offset", [0, 5 * 10**9, -3 * 10**11])
def test_the_error_of_an_offset_is_within_its_residual(offset: int) -> None:
    residuals = []
    for seed in range(50):
        network = Network(offset, seed)
        anchor = compare_clocks(network.ask, clock=network.clock)
        assert anchor is not None
        clock = HostClock.from_anchors("other", [anchor])
        assert clock.residual is not None and abs(clock.offset - offset) <= clock.residual
        residuals.append(clock.residual)
        one = compare_clocks(Network(offset, seed).ask, rounds=1, clock=network.clock)
        assert one is not None
    assert max(residuals) < 2_500_000  # sixteen round trips; the mean of one is 2,525,000


def test_the_shortest_round_trip_counts() -> None:
    times = iter([0, 100, 200, 210, 300, 500])
    anchor = compare_clocks(iter([1050, 1204, 1400]).__next__, 3, lambda: next(times))
    assert anchor == Anchor(theirs=205, ours=1204, width=5)


def test_lost_messages_are_left_out() -> None:
    times, answers = iter(range(0, 1000, 10)), iter([None, 1000, None, 1100])
    anchor = compare_clocks(lambda: next(answers), 4, lambda: next(times))
    assert anchor == Anchor(theirs=25, ours=1000, width=5)
    asked: list[int] = []
    assert compare_clocks(lambda: asked.append(1), 16, lambda: 0) is None
    assert len(asked) == 3


def test_a_drift_is_corrected_only_if_it_is_not_an_error_of_the_ends() -> None:
    first, last = Anchor(0, 1_000, 10), Anchor(10**9, 10**9 + 1_500, 20)
    clock = HostClock.from_anchors("other", [last, first])
    moments = np.array([0, 5 * 10**8, 10**9])
    assert clock.joint.to_our_clock(moments).tolist() == [1_000, 5 * 10**8 + 1_250, 10**9 + 1_500]
    assert clock.residual == 20 and "drift of -500 ns corrected" in str(clock)
    near = Anchor(10**9, 10**9 + 1_025, 20)
    clock = HostClock.from_anchors("other", [first, near])
    assert clock.joint.to_our_clock(moments).tolist() == [1_000, 5 * 10**8 + 1_000, 10**9 + 1_000]
    assert str(clock) == "clock of other: 0.001 ms added, accurate to 10 ns"


def test_a_server_answers_until_it_is_closed() -> None:
    server = ClockServer()
    anchor = request_anchor(("127.0.0.1", server.port))
    assert anchor is not None and abs(anchor.theirs - anchor.ours) <= anchor.width
    server.close()
    while request_anchor(("127.0.0.1", server.port)) is not None:  # until the thread has ended
        pass


# --- one recording of two -------------------------------------------------------------------------


def made(
    names: tuple[str, ...], rows: list[tuple[int, int, int, int]], *, at: int, launch: str
) -> Recording:
    """Return a recording of process 1 and its child 7, with one kernel; all times begin at `at`."""
    edges = np.array([(at + ts, *rest) for ts, *rest in rows], EDGE)
    blocked = np.array([[at + 20], [at + 25]])
    main = Lane(1, 1, "", edges, at + 100, missed={(1, 0, 1): 5}, blocked=blocked)
    child = Lane(7, 7, "", np.array([(at + 40, 0, Kind.MARK, 0)], EDGE), at + 60)
    window = TracedWindow(1, "tracer", at, at + 100, ("gpu",), "", 0, 5)
    columns = dict.fromkeys(
        ["device", "stream", "sort", "correlation", "window", "lane"], np.zeros(1, int)
    )
    columns |= {"begin": np.array([at + 30]), "end": np.array([at + 35])}
    columns |= {"name": np.array([2]), "process": np.array([1]), "launched": np.array([at + 10])}
    return Recording(
        (main, child),
        names,
        {launch: (3,)},
        (Process(1, 0, 0, "main", at, at + 100), Process(7, 1, 0, "child", at + 40, at + 60)),
        Devices(**columns, windows=(window,)),
    )


def test_names_numbers_and_times_of_both_hosts_are_kept_apart() -> None:
    rows = [(10, 1, Kind.PHASE_ENTER, 1), (30, 3, Kind.MARK, 0), (50, 0, Kind.PHASE_EXIT, 0)]
    point = (15, 2, Kind.POINT, 0)  # its number is no name
    names = ("", "here", "kernel", f"{STARTS}7 first", "blocked")
    own = made(names, [rows[0], point, *rows[1:]], at=100, launch="x")
    names = ("", "there", "here", f"{STARTS}7 second", "blocked")
    other = made(names, [rows[0], point, *rows[1:]], at=9_100, launch="y")
    join = Join("a", 7, "", [Anchor(9_000, 50, 3)])
    one = merge_hosts(own, [Host(other, {1: join})])
    main, _, there, _ = one.lanes
    assert [one.names[top] for top in there.edges["top"][[0, 2]]] == ["there", f"{STARTS}7 second"]
    assert there.edges["top"][1] == 2 == main.edges["top"][1]
    assert there.edges["ts"].tolist() == [160, 165, 180, 200] and there.end == 250
    assert there.blocked.tolist() == [[170], [175]]
    assert there.missed == {(one.names.index("there"), 0, 1): 5}
    assert one.op_ids == {"x": (3,), "y": (3,)}
    (root,) = trl.scope.processes(one).roots
    assert [(b.process.label, b.name) for b in root] == [
        ("1", ""),
        ("7", "first"),
        ("a:1", ""),
        ("a:7", "second"),
    ]
    devices = one.devices
    assert devices.begin.tolist() == [130, 180] and devices.launched.tolist() == [110, 160]
    assert [one.names[k] for k in devices.name] == ["kernel", "here"]
    assert devices.window.tolist() == [0, 1] and devices.lane.tolist() == [0, 2]
    assert devices.process.tolist() == [1, there.process]
    assert [(w.process, w.begin) for w in devices.windows] == [(1, 100), (there.process, 150)]


# --- processes that pretend to be on other hosts -------------------------------------------------


def recorded(folder: Path, *hosts: str) -> None:
    """Record processes, each of which starts the next one on the next host."""
    with trl.scope.record(folder, taps=False), trl.scope.phase("here"):
        given = {**os.environ, **trl.scope.worker_environment("127.0.0.1")}
        given["TIMERL_SCOPE_HOST"] = hosts[0]
        root = str(Path(__file__).parents[3])
        command = [sys.executable, "-c", PROGRAM, root, *hosts[1:]]
        subprocess.run(command, env=given, check=True)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a recording of this host, two processes of host a, and one of host b in between."""
    folder = tmp_path_factory.mktemp("several") / "run"
    recorded(folder, "a", "b", "a", "a")
    return folder


def chain(recording: Any) -> list[Branch]:
    """Return the processes of a tree without branches."""
    (one,) = trl.scope.processes(recording).roots
    found = [one]
    while found[-1].children:
        (child,) = found[-1].children
        found.append(child)
    return found


def test_processes_of_other_hosts_are_below_the_one_that_made_them(several: Path) -> None:
    recording = trl.scope.read(several)
    branches = chain(recording)
    assert [one.process.host for one in branches] == ["", "a", "b", "a", "a"]
    assert branches[0].process.number == os.getpid()
    assert [clock.host for clock in recording.hosts] == ["a", "b"]
    for clock in recording.hosts:  # the hosts have the same clock
        assert clock.is_exchanged and clock.residual is not None
        assert abs(clock.offset) <= clock.residual
    assert {path.name for path in several.iterdir() if path.is_dir()} == {"host-a", "host-b"}


def test_the_tree_and_the_summary_show_hosts_and_residuals(several: Path) -> None:
    recording = trl.scope.read(several)
    for text in (str(trl.scope.processes(recording)), str(recording)):
        assert [line.split(": ")[0] for line in text.splitlines() if "accurate to" in line] == [
            "clock of a",
            "clock of b",
        ]
    number = chain(recording)[2].process.number % 10**9
    assert f"b:{number} " in str(trl.scope.processes(recording))
    times = recording.table().by("phase", "operation")
    assert times["there", "work"] > 0


def test_a_zip_has_all_hosts(several: Path, tmp_path: Path) -> None:
    whole = trl.scope.read(several)
    saved = trl.scope.read(whole.save(tmp_path / "run.scope.zip"))
    assert saved.table() == whole.table() and saved.hosts == whole.hosts


def shifted(folder: Path, host: str, by: int) -> None:
    """Add a number of nanoseconds to all times of a host, as if its clock were ahead."""
    for path in (folder / f"host-{host}").iterdir():
        if path.suffix == ".edges":
            edges = np.fromfile(path, EDGE)
            edges["ts"] += np.uint64(by) * (edges["ts"] > 0).astype(np.uint64)
            edges.tofile(path)
        elif path.suffix in (".json", ".host"):
            about = json.loads(path.read_text())
            for one in (about.get("begin"), about.get("end")):
                if one:
                    one["monotonic"] += by
            for anchor in about.get("anchors", ()):
                anchor["theirs"] += by
            path.write_text(json.dumps(about))


def test_another_clock_changes_no_time(several: Path, tmp_path: Path) -> None:
    other = tmp_path / "run"
    shutil.copytree(several, other)
    shifted(other, "a", 5 * 10**9)
    shifted(other, "b", 10**15)
    want, have = trl.scope.read(several), trl.scope.read(other)
    assert [one.offset for one in have.hosts] == [
        one.offset - by for one, by in zip(want.hosts, (5 * 10**9, 10**15), strict=True)
    ]
    for mine, theirs in zip(want.lanes, have.lanes, strict=True):
        moved = mine.edges["ts"].astype(np.int64) - theirs.edges["ts"].astype(np.int64)
        assert np.abs(moved).max() <= 1  # the share of a drift is rounded
    assert have.table().total == pytest.approx(want.table().total, abs=100)
    assert [one.process.number for one in chain(have)] == [
        one.process.number for one in chain(want)
    ]


def test_without_answers_the_wall_clocks_are_used(several: Path, tmp_path: Path) -> None:
    other = tmp_path / "run"
    shutil.copytree(several, other)
    shifted(other, "b", 10**15)
    for path in (other / "host-b").glob("*.host"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "anchors": []}))
    recording = trl.scope.read(other)
    clock = recording.hosts[1]
    assert clock.residual is None and "by wall clocks of unknown accuracy" in str(clock)
    assert abs(clock.offset + 10**15) < 10**9
    assert [one.process.host for one in chain(recording)] == ["", "a", "b", "a", "a"]


def test_damaged_files_of_hosts_are_named(several: Path, tmp_path: Path) -> None:
    other = tmp_path / "run"
    shutil.copytree(several, other)
    (path,) = (other / "host-b").glob("*.host")
    whole = json.loads(path.read_text())
    (*_, anchor) = whole["anchors"]
    for damaged in ({"host": 3}, {**whole, "anchors": [{**anchor, "ours": 1 << 70}]}):
        path.write_text(json.dumps(damaged))
        with pytest.raises(ExecutionError, match=f"{path.name} is not a valid file of another"):
            trl.scope.read(other)
    path.unlink()
    with pytest.raises(ExecutionError, match="has joined this recording"):
        trl.scope.read(other)


def test_variables_are_for_an_open_recording() -> None:
    with pytest.raises(ExecutionError, match="no recording is open"):
        trl.scope.worker_environment()
    before = dict(os.environ)
    with trl.scope.record(taps=False):
        first = trl.scope.worker_environment()
        assert first == trl.scope.worker_environment()
    assert dict(os.environ) == before


# --- Ray -----------------------------------------------------------------------------------------

RAY = """
import os, sys
import ray
import timerl_nb as trl

@ray.remote
class Actor:
    def work(self):
        with trl.scope.operation("acting"):
            return os.getpid(), sum(range(1000))

ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
with trl.scope.record(sys.argv[1], taps=False):
    environment = {**trl.scope.worker_environment("127.0.0.1"), "TIMERL_SCOPE_HOST": "worker-1"}
    actor = Actor.options(runtime_env={"env_vars": environment}).remote()
    print("ACTOR", ray.get(actor.work.remote())[0])
    del actor
ray.shutdown()
"""


def test_an_actor_of_ray_is_below_the_program_that_made_it(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install -r requirements.peers.txt")
    root = Path(__file__).parents[3]
    given = {**os.environ, "PYTHONPATH": str(root), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-c", RAY, str(tmp_path / "run")]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    actor = int(done.stdout.partition("ACTOR ")[2].split()[0])
    recording = trl.scope.read(tmp_path / "run")
    (main,) = trl.scope.processes(recording).roots
    (found,) = main.children
    assert found.process.label == f"worker-1:{actor}"
    assert ("acting",) in found.time.by("operation")
    (clock,) = recording.hosts
    assert clock.residual is not None and abs(clock.offset) <= clock.residual
