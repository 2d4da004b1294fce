"""Threads in recordings: total time, waits, inherited phases, and counts in disabled blocks."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from jupyter_client.manager import start_new_kernel

import timerl_nb as trl
from tests.recorders import own_lane
from tests.recorders import recorder_in as recorder_in
from timerl_nb.base.errors import CallError, OptionError, TimeRLWarning
from timerl_nb.scope.analysis.blocked_time import with_waits
from timerl_nb.scope.analysis.phase_inheritance import with_phases
from timerl_nb.scope.analysis.recording_comparison import operations
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.stack_frames import count_entries
from timerl_nb.scope.analysis.thread_timelines import BLOCKED, Lane
from timerl_nb.scope.recording import recorder
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind, Library

SECONDS = 0.15  # much longer than starting a thread


def blocking(wait: Callable[[int], object], *, ended: bool) -> Recording:
    """Record a thread that computes a little, then blocks until its end or the recording's."""
    read, write = os.pipe()

    def idle() -> None:
        sum(range(1000))
        wait(read)

    with trl.scope.record(taps=False) as rec:
        thread = threading.Thread(target=idle, daemon=True, name="idle")
        thread.start()
        begun = time.thread_time()
        with trl.scope.operation("work"):
            while time.thread_time() - begun < SECONDS:
                pass
        if ended:
            os.write(write, b"x")
            thread.join()
    os.write(write, b"x")
    thread.join()
    os.close(read)
    os.close(write)
    return rec.read()


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("wait", [lambda r: os.read(r, 1), lambda r: select.select([r], [], [])])
def test_a_thread_that_is_blocked_waits(wait: Callable[[int], object], ended: bool) -> None:
    recording = blocking(wait, ended=ended)
    times = {
        (str(key[0]).split()[0], key[1]): ns
        for key, ns in recording.table().by("thread", "library").items()
    }
    (idle,) = (lane for lane in recording.lanes if lane.name == "idle")
    assert times["idle", "waiting"] > 4 * times["idle", "python"]
    spent = times["idle", "waiting"] + times["idle", "python"]
    assert spent == idle.end - int(idle.edges["ts"][0])
    assert spent > SECONDS * 0.9e9
    work = recording.table().by("operation", "library")
    assert work["work", "python"] > 0.9e9 * SECONDS


def test_waits_are_told_by_the_call_that_waits() -> None:
    def waits(read: int) -> None:
        os.read(read, 1)
        select.select([], [], [], 0.001)
        lock.acquire(timeout=0.02)

    lock = threading.Lock()
    lock.acquire()
    read, write = os.pipe()
    with trl.scope.record() as rec:
        thread = threading.Thread(target=waits, args=(read,), name="waits")
        thread.start()
        os.write(write, b"x")
        thread.join()
    recording = rec.read()
    (lane,) = (one for one in recording.lanes if one.name == "waits")
    lane = with_waits(lane, recording.names)
    entries = lane.edges[lane.edges["kind"] == Kind.CALL_ENTER]["top"]
    waited = entries[entries >> NAME_BITS == Library.WAITING] & 0xFFFFFF
    names = [recording.names[k] for k in waited.tolist()]
    assert [x for x in names if x != BLOCKED] == ["os.read", "select.select"]
    assert names[-1] == BLOCKED  # a lock cannot be wrapped
    assert recording.transitions()["", "python", "waiting"] >= 2
    assert (lane.traced == np.flatnonzero(np.isin(lane.edges["top"], entries[-1:]))[-1]).any()


def test_what_computes_is_not_taken_for_blocked() -> None:
    """Neither is a ready thread without a processor."""
    with trl.scope.record(taps=False) as rec:
        with trl.scope.operation("a"):
            pass
        writer: Any = recorder.this_lane().writer  # type: ignore[union-attr]
        now, cpu = time.monotonic_ns(), time.thread_time_ns()
        ms = 1_000_000
        later = now + 100 * ms
        assert writer.blocked(later, cpu + 100 * ms, 0, -1) == 0
        assert 97 * ms < writer.blocked(later, cpu, 0, -1) <= 101 * ms
        assert 37 * ms < writer.blocked(later, cpu + 60 * ms, 0, -1) <= 41 * ms
        ready = 1 << 40  # it was ready all the time
        assert writer.blocked(later, cpu, ready, -1) == 0
        writer.called(Library.BACKEND << NAME_BITS)
        assert writer.blocked(time.monotonic_ns() + 100 * ms, cpu, 0, -1) == 0  # the library's
        writer.returned()
    assert own_lane(rec.read()).blocked.size == 0


def test_waits_are_calls_where_python_is_on_top() -> None:
    backend, name = Library.BACKEND << NAME_BITS | 1, 2
    rows = [
        (10, 0, Kind.MARK, 0),
        (20, backend, Kind.CALL_ENTER, 1),
        (40, 0, Kind.CALL_EXIT, 0),
        (90, backend, Kind.CALL_ENTER, 1),
        (95, 0, Kind.CALL_EXIT, 0),
    ]
    blocked = np.array([(0, 25, 60, 97), (20, 35, 90, 120)])
    lane = Lane(1, 1, "", np.array(rows, EDGE), 120, blocked=blocked)
    table = trl.scope.overlap_of(Recording((lane,), ("", "f", BLOCKED)))
    assert table.by("library") == {("waiting",): 63, ("python",): 22, ("backend",): 25}
    made = with_waits(lane, ("", "f", BLOCKED))
    assert made.traced.tolist() == [1, 2, 5, 6, 9, 10]
    assert set(made.edges["top"][made.traced].tolist()) == {Library.WAITING << NAME_BITS | name, 0}


def test_times_and_columns_by_thread() -> None:
    with trl.scope.record(taps=False) as rec, trl.scope.operation("o"):
        thread = threading.Thread(target=lambda: None, name="helper")
        thread.start()
        thread.join()
    table = rec.table()
    here = f"MainThread ({threading.get_native_id()})"
    by = table.by("thread")
    assert [name.split()[0] for (name,) in by] == ["MainThread", "helper"]  # type: ignore[union-attr]
    assert sum(by.values()) == table.total
    assert next(iter(table.threads)) == here  # first most of the user's operations
    assert f"\n{here}" in str(table) and "\nhelper (" in str(table)
    assert (table + table).by("thread") == {key: 2 * ns for key, ns in by.items()}
    with pytest.raises(OptionError, match="the column 'libary' does not exist") as found:
        table.by("libary")  # type: ignore[arg-type]
    assert "did you mean 'library'" in found.value.hint


def spin(phases: Counter[str]) -> None:
    with trl.scope.operation("task"):
        sum(range(1000))


def phases_of(rec: trl.scope.record, operation: str = "task") -> set[str]:
    return {c.phase for c in rec.table().cells if c.operation == operation}


@pytest.mark.parametrize("taps", [True, False])
def test_phases_cover_threads_that_are_begun_in_them(taps: bool) -> None:
    ready, go_on = threading.Event(), threading.Event()

    def work() -> None:
        with trl.scope.operation("inside"):
            inner = threading.Thread(target=trl.scope.operation("grandchild")(lambda: None))
            inner.start()
            inner.join()
        with trl.scope.phase("own"), trl.scope.operation("mine"):
            pass
        with trl.scope.operation("again"):
            pass
        ready.set()
        go_on.wait()
        with trl.scope.operation("later"):
            pass

    with trl.scope.record(taps=taps, exact=True) as rec:
        with trl.scope.phase("epoch"):
            with trl.scope.phase("collect"):
                thread = threading.Thread(target=work)
                thread.start()
                ready.wait()
            with trl.scope.phase("learn"):
                pass
        go_on.set()
        thread.join()
    found = {(c.operation, c.phase) for c in rec.table().cells if c.operation}
    assert {
        ("inside", "collect"),
        ("grandchild", "collect"),
        ("mine", "own"),
        ("again", "collect"),
        ("later", ""),
    } <= found
    assert ("later", "collect") not in found and not any(phase == "learn" for _, phase in found)
    recording = rec.read()
    counts = Counter[str]()
    for lane in recording.lanes:
        for name, count in count_entries(lane, "phase").items():
            counts[recording.names[name]] += count
    assert counts == {"epoch": 1, "collect": 1, "learn": 1, "own": 1}
    assert trl.scope.critical_chain(rec, "collect").links
    with pytest.raises(OptionError, match="has 1 occurrences"):
        trl.scope.critical_chain(rec, "collect", 1)


@pytest.mark.parametrize("pool", ["executor", "pool"])
def test_phases_cover_tasks_that_are_submitted_in_them(pool: str) -> None:
    none = Counter[str]()
    with trl.scope.record(exact=True) as rec:
        if pool == "executor":
            with ThreadPoolExecutor(2) as executor:
                for name in "abc":
                    with trl.scope.phase(name):
                        assert list(executor.map(spin, [none] * 3)) == [None] * 3
                executor.submit(trl.scope.operation("after")(spin), none).result()
        else:
            with ThreadPool(2) as threads:
                for name in "abc":
                    with trl.scope.phase(name):
                        assert threads.map(spin, [none] * 3) == [None] * 3
                        assert threads.apply(divmod, (7, 2)) == (3, 1)
                        assert [*threads.imap(abs, [-1])] == [1]
                threads.apply(trl.scope.operation("after")(spin), (none,))
    assert phases_of(rec) == {"a", "b", "c", ""}
    assert phases_of(rec, "after") <= {""}
    assert operations(rec.read()) == {"task": 10, "after": 1}


def test_a_phase_covers_a_task_until_it_ends() -> None:
    """The submitter's phase covers it until the submitter leaves; the task's phases are on top."""
    rows = {
        1: [
            (0, 1, Kind.PHASE_ENTER, 1),
            (5, 2, Kind.PHASE_ENTER, 2),
            (6, 1, Kind.HANDS, 0),
            (40, 1, Kind.PHASE_EXIT, 1),
            (70, 0, Kind.PHASE_EXIT, 0),
            (99, 0, Kind.MARK, 0),
        ],
        2: [
            (10, 1, Kind.TAKES, 0),
            (30, 3, Kind.PHASE_ENTER, 1),
            (50, 0, Kind.PHASE_EXIT, 0),
            (90, 0, Kind.TAKES, 0),
            (99, 0, Kind.MARK, 0),
        ],
    }
    lanes = [Lane(1, k, "", np.array(x, EDGE), 99) for k, x in rows.items()]
    found = with_phases(lanes)[1]
    table = trl.scope.overlap_of(Recording((found,), ("", "epoch", "collect", "own")))
    assert table.by("phase") == {
        ("",): 29,  # from 70 on
        ("collect",): 20,
        ("epoch",): 20,
        ("own",): 20,
    }


def test_calls_and_operations_are_counted_in_disabled_blocks() -> None:
    with trl.scope.tap(zlib, "backend"), trl.scope.record(taps=False, calibrated=True) as rec:
        lane = recorder.this_lane()
        assert lane is not None
        for k in range(40):
            if k in (11, 31):
                lane.silence(k == 11)
            with trl.scope.operation("outer"):
                zlib.crc32(b"x")
                with trl.scope.operation(f"inner {k % 2}"):
                    zlib.adler32(b"x")
                zlib.crc32(b"x")
        lane.silence(True)  # up to the end
        zlib.crc32(b"x")
        lane.called(Library.WAITING << NAME_BITS)
        zlib.crc32(b"x")
        lane.returned()
    found = trl.scope.transitions(rec)
    assert found == {
        ("outer", "python", "backend"): 80,
        ("inner 0", "python", "backend"): 20,
        ("inner 1", "python", "backend"): 20,
        ("", "python", "backend"): 1,
        ("", "python", "waiting"): 1,
        ("", "waiting", "backend"): 1,
    }
    assert operations(rec.read()) == {"outer": 40, "inner 0": 20, "inner 1": 20}
    compared = rec.compare(rec)
    assert {x.operation: (x.times[0], x.transitions[0]) for x in compared.operations} == {
        "outer": (40, 80),
        "inner 0": (20, 20),
        "inner 1": (20, 20),
        "": (0, 3),
    }


def test_exact_records_all_time() -> None:
    with trl.scope.record(exact=True) as rec:
        for _ in range(30):
            with trl.scope.operation("o"):
                zlib.crc32(b"x" * 10_000)
    assert "unobserved" not in {cell.library for cell in rec.table().cells}
    assert "count of blocks" in rec.read().processes[0].made_by
    with pytest.raises(OptionError, match="give one|leaves some out"):
        trl.scope.record(exact=True, calibrated=True)


def test_what_record_returns_is_a_recording_everywhere() -> None:
    with trl.scope.record(taps=False) as rec, trl.scope.phase("p"):
        time.sleep(0.001)
    assert trl.scope.processes(rec).roots[0].process == rec.read().processes[0]
    assert trl.scope.transitions(rec) == {}
    assert trl.scope.overlap_of(rec) == rec.table()
    assert trl.scope.critical_chain(rec, "p").links
    for function in (trl.scope.processes, trl.scope.transitions, trl.scope.overlap_of):
        with pytest.raises(CallError, match="'runs' is not a recording"):
            function("runs")  # type: ignore[operator]


class _Old:
    """Import finder and loader with only the pre-3.4 methods."""

    def find_module(self, name: str, path: Any = None) -> None:
        return None


class _Other(Loader):
    def load_module(self, fullname: str) -> ModuleType:
        module = sys.modules[fullname] = ModuleType(fullname)
        module.__dict__["loaded"] = True
        return module


class _Finds:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, _Other()) if name == "queue" else None


@pytest.mark.filterwarnings("ignore::ImportWarning", "ignore::DeprecationWarning")
def test_finders_of_other_makes_are_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    import queue

    with trl.scope.record():
        sys.meta_path.insert(0, _Old())  # type: ignore[arg-type]
        monkeypatch.delitem(sys.modules, "queue")
        import queue as again

        assert again.Queue is not queue.Queue
        sys.meta_path.insert(0, _Finds())  # type: ignore[arg-type]
        monkeypatch.delitem(sys.modules, "queue")
        import queue as other

        assert vars(other)["loaded"]
        sys.meta_path = [
            x
            for x in sys.meta_path
            if type(x).__module__ != "timerl_nb.scope.wrappers.library_wrappers"
        ]
    monkeypatch.setitem(sys.modules, "queue", queue)


def test_a_module_of_another_make_does_not_end_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "socket", ModuleType("socket"))
    said = "some calls of socket are not recorded separately"
    with pytest.warns(TimeRLWarning, match=said), trl.scope.record() as rec:
        time.sleep(0)
    assert rec.transitions() == {("", "python", "waiting"): 1}


def test_threads_of_a_kernel_are_told_apart(recorder_in: str, tmp_path: Path) -> None:
    """A lesson, run cell by cell; the kernel's threads wait."""
    if recorder_in == "python":
        pytest.skip("one kernel is enough")
    begin = f"""
import time, timerl_nb as trl
rec = trl.scope.record({str(tmp_path / "r")!r})
rec.__enter__()
"""
    lesson = """
with trl.scope.phase("lesson"), trl.scope.operation("work"):
    begun = time.thread_time()
    while time.thread_time() - begun < 0.3:
        pass
    print("done")
"""
    end = """
rec.__exit__()
import json
told = {" ".join(map(str, key)): ns for key, ns in rec.table().by("thread", "operation", "library").items()}
print(json.dumps(told))
"""
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        for cell in (begin, lesson, "time.sleep(0.3)", end):
            said: list[str] = []
            client.execute_interactive(
                cell,
                timeout=60,
                output_hook=lambda message, said=said: said.append(
                    message["content"].get("text", str(message["content"].get("ename", "")))
                ),
            )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    table: dict[str, int] = json.loads("".join(said))
    work = [ns for name, ns in table.items() if name.endswith("work python")]
    assert sum(work) > 0.27e9
    others = {name.rpartition(" ")[0] for name in table if not name.startswith("MainThread")}
    assert len(others) > 1, table
    for name in others:  # a thread of the kernel
        # a new thread may not have waited yet
        computed = max(table.get(f"{name} python", 0) - 1_000_000, 0)
        assert table.get(f"{name} waiting", 0) >= 4 * computed, table
