"""Recordings can be read, whatever ended the recorded program."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import partial, partialmethod
from itertools import count
from pathlib import Path
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import timerl_nb as trl
from tests.interrupts import interrupted, lines
from tests.recorders import PYTHON_ALONE, own_lane
from tests.recorders import recorder_in as recorder_in
from timerl_nb.base import c_extensions
from timerl_nb.base.errors import ExecutionError, OptionError, TimeRLWarning
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.analysis.time_breakdown import overlap_of
from timerl_nb.scope.recording import process_joining as joining
from timerl_nb.scope.recording import recorder
from timerl_nb.scope.recording.annotations import operation, phase
from timerl_nb.scope.storage import recording_writer as writing
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind
from timerl_nb.scope.storage.recording_reader import read
from timerl_nb.scope.wrappers import c_or_python_recorder as native
from timerl_nb.scope.wrappers import python_recorder as pure
from timerl_nb.scope.wrappers.library_wrappers import Tapping

record = partial(trl.scope.record, taps=False)  # annotations only


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    yield
    assert recorder._now is None


def told(recording: Recording, lane: Lane | None = None) -> list[tuple[str, str, int]]:
    """Return a track as (kind, new top of the stack, depth)."""
    (one,) = recording.lanes if lane is None else (lane,)
    names = recording.names
    return [
        (Kind(kind).name, names[top & ((1 << NAME_BITS) - 1)], depth)
        for _, top, kind, depth in one.edges.tolist()
        if (kind, top) != (Kind.MARK, 0)  # its start
    ]


def in_thread(work: Callable[[], object]) -> None:
    """Call a function in a new thread."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_operations_nest_in_phases_and_in_themselves(tmp_path: Path) -> None:
    @operation("fib")
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert fib(3) == 2  # recording is off
    with record(tmp_path / "r") as rec, phase("collect"):
        assert fib(2) == 1
    assert fib(2) == 1
    assert told(rec.read()) == [
        ("PHASE_ENTER", "collect", 1),
        ("OPERATION_ENTER", "fib", 1),
        ("OPERATION_ENTER", "fib", 2),
        ("OPERATION_EXIT", "fib", 1),
        ("OPERATION_ENTER", "fib", 2),
        ("OPERATION_EXIT", "fib", 1),
        ("OPERATION_EXIT", "", 0),
        ("PHASE_EXIT", "", 0),
    ]
    (lane,) = rec.read().lanes
    assert (lane.process, lane.thread) == (os.getpid(), threading.get_native_id())
    assert lane.name == threading.current_thread().name
    assert (np.diff(lane.edges["ts"].astype(np.int64)) >= 0).all()
    found = overlap_of(rec.read())
    assert found.total == lane.end - int(lane.edges["ts"][0])
    assert set(found.by("phase", "operation")) == {
        ("collect", "fib"),
        ("collect", ""),
        ("", ""),
    }


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_is_left_by_an_error_is_left(error: type[BaseException], tmp_path: Path) -> None:
    with pytest.raises(error), record(tmp_path / "r"), phase("p"), operation("o"):
        raise error
    assert told(read(tmp_path / "r"))[-2:] == [("OPERATION_EXIT", "", 0), ("PHASE_EXIT", "", 0)]


def test_generators_and_coroutines_are_in_it_while_they_are_open(tmp_path: Path) -> None:
    @operation("draws")
    def draws() -> Iterator[int]:
        yield from (1, 2)

    @operation("waits")
    async def waits() -> int:
        await asyncio.sleep(0)
        return 3

    with record(tmp_path / "r") as rec:
        assert list(draws()) == [1, 2] and asyncio.run(waits()) == 3
        half = draws()
        assert next(half) == 1
        half.close()
    kinds = [(kind, name) for kind, name, _ in told(rec.read())]
    assert kinds == [
        (kind, name)
        for word in ("draws", "waits", "draws")
        for kind, name in (("OPERATION_ENTER", word), ("OPERATION_EXIT", ""))
    ]


def test_what_is_left_out_of_order_is_interleaved(tmp_path: Path) -> None:
    async def main() -> None:
        ready = asyncio.Event()

        async def first() -> None:
            with operation("first"):
                await ready.wait()

        async def second() -> None:
            with operation("second"):
                ready.set()
                await asyncio.sleep(0.01)

        await asyncio.gather(first(), second())

    with record(tmp_path / "r") as rec:
        asyncio.run(main())
        with operation("after"):
            pass
    assert told(rec.read()) == [
        ("OPERATION_ENTER", "first", 1),
        ("OPERATION_ENTER", "second", 2),
        ("MARK", "interleaved: first", 0),
        # with `second`, the other one is gone, too
        ("OPERATION_EXIT", "first", 1),
        ("OPERATION_EXIT", "", 0),
        ("OPERATION_ENTER", "after", 1),
        ("OPERATION_EXIT", "", 0),
    ]


def test_what_another_thread_leaves_is_interleaved_there(tmp_path: Path) -> None:
    with record(tmp_path / "r") as rec:
        one = operation("handed on")
        one.__enter__()
        other = threading.Thread(target=one.__exit__, args=(None, None, None), name="other")
        other.start()
        other.join()
        with operation("after"):
            pass
    recording = rec.read()
    lanes = {lane.name: told(recording, lane) for lane in recording.lanes}
    assert lanes.pop("other") == [("MARK", "interleaved: handed on", 0)]
    (mine,) = lanes.values()
    assert mine == [
        ("OPERATION_ENTER", "handed on", 1),
        ("OPERATION_ENTER", "after", 2),
        ("OPERATION_EXIT", "handed on", 1),
        ("OPERATION_EXIT", "", 0),
    ]


def test_one_operation_may_be_entered_by_several_threads(tmp_path: Path) -> None:
    shared, inside, go_on = operation("shared"), threading.Event(), threading.Event()

    def work() -> None:
        with shared:
            inside.set()
            assert go_on.wait(60)

    with record(tmp_path / "r") as rec:
        other = threading.Thread(target=work)
        with shared:
            other.start()
            assert inside.wait(60)
        go_on.set()
        other.join()
    recording = rec.read()
    alike = [("OPERATION_ENTER", "shared", 1), ("OPERATION_EXIT", "", 0)]
    assert [told(recording, lane) for lane in recording.lanes] == [alike, alike]


def test_a_thread_takes_time_up_to_its_end(tmp_path: Path) -> None:
    ended = list[int]()

    def work() -> None:
        with operation("o"):
            pass
        ended.append(monotonic_ns())

    with record(tmp_path / "r") as rec:
        in_thread(work)
        with operation("o"):
            later = monotonic_ns()
    ends = {lane.thread: lane.end for lane in rec.read().lanes}
    assert ends.pop(threading.get_native_id()) > later
    (end,) = ends.values()
    assert ended[0] < end < later


def test_asynchronous_generators_are_refused() -> None:
    async def draws() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(OptionError, match="asynchronous generator") as found:
        operation("o")(draws)
    assert "with trl.scope.operation('o'):" in found.value.hint


@pytest.mark.parametrize("made", [operation, phase, pure.Operation])
def test_what_has_no_name_is_refused(made: Any) -> None:
    with pytest.raises(OptionError, match="is not a name of an operation or phase") as found:

        @made
        def act() -> None: ...

    assert '@trl.scope.operation("inference")' in found.value.hint
    with pytest.raises(TypeError):
        made()


def test_threads_have_lanes_and_segments_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SEGMENT", mmap_page := 4096)

    def work() -> None:
        for _ in range(mmap_page // EDGE.itemsize):
            with operation(threading.current_thread().name):
                pass

    with record(tmp_path / "r") as rec:
        threads = [threading.Thread(target=work, name=f"w{k}") for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    recording = rec.read()
    assert sorted(lane.name for lane in recording.lanes) == ["MainThread", "w0", "w1", "w2"]
    for lane in (one for one in recording.lanes if one.name != "MainThread"):
        assert (
            len(lane.edges) == 1 + 2 * mmap_page // EDGE.itemsize
        )  # the first event starts the track
        (word,) = {name for kind, name, _ in told(recording, lane) if kind == "OPERATION_ENTER"}
        assert word == lane.name


def test_a_folder_that_cannot_be_recorded_into_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExecutionError, match="the recording folder"):
        record(tmp_path / "file" / "r").__enter__()
    with pytest.raises(ExecutionError, match="the recording folder"):
        record(tmp_path / "zero \0 byte").__enter__()
    with record(tmp_path / "r") as rec:
        with pytest.raises(ExecutionError, match="is still open"):
            record(tmp_path / "other").__enter__()
        with operation("o"):
            pass
    assert not (tmp_path / "other").exists()
    with pytest.raises(ExecutionError, match="already holds a recording"):
        record(tmp_path / "r").__enter__()
    assert len(told(rec.read())) == 2


def test_nothing_recorded_is_an_empty_recording(tmp_path: Path) -> None:
    with record(tmp_path / "r") as rec:
        pass
    (lane,) = rec.read().lanes
    assert told(rec.read()) == []
    assert overlap_of(rec.read()).by("library") == {
        ("python",): lane.end - int(lane.edges["ts"][0])
    }


def test_tapping_is_no_part_of_what_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at: list[int] = []

    def switched(tapping: Tapping, done: Callable[[Tapping], None]) -> None:
        before = time.monotonic_ns()
        done(tapping)
        at.extend((before, time.monotonic_ns()))

    for name in ("install", "remove"):
        monkeypatch.setattr(Tapping, name, partialmethod(switched, getattr(Tapping, name)))
    with trl.scope.record(tmp_path / "r", calibrated=False) as rec:
        pass
    lane = own_lane(rec.read())
    _, tapped, untapping, _ = at
    assert tapped <= lane.edges["ts"][0] <= lane.end <= untapping


def test_long_names_are_cut_and_say_so(tmp_path: Path) -> None:
    with record(tmp_path / "r") as rec, operation("x" * 10_000):
        pass
    assert told(rec.read())[0][1] == "x" * 1_000 + "… (cut)"


def test_what_cannot_be_written_down_of_a_name_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["runs/\udcff.py"])  # with a name that is not UTF-8
    with record(tmp_path / "r") as rec:
        for name in ("\ud800", "a\nb", "\x1b[31m", "ü → 🎉"):
            with phase(name), operation(name):
                pass
    recording = rec.read()
    escaped = {r"\ud800", r"a\nb", r"\x1b[31m", "ü → 🎉"}
    assert {cell.operation for cell in overlap_of(recording).cells} == {"", *escaped}
    assert recording.processes[0].command == r"runs/\udcff.py"
    for text in (str(rec), str(trl.scope.processes(recording)), str(rec.compare(recording))):
        assert text.encode() and all(name in text for name in escaped) and "\x1b" not in text
    ElementTree.fromstring(rec._repr_mimebundle_()["image/svg+xml"])


def test_a_full_disk_ends_the_recording_and_not_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with record(tmp_path / "r") as rec:
        with operation("fits"):
            pass
        monkeypatch.setattr(writing, "_reserve", full)
        done: list[int] = []

        def work() -> None:
            for k in range(3):
                with operation("does not"):
                    done.append(k)

        with pytest.warns(TimeRLWarning, match="has stopped: No space left on device"):
            in_thread(work)
    assert done == [0, 1, 2]
    assert told(rec.read()) == [("OPERATION_ENTER", "fits", 1), ("OPERATION_EXIT", "", 0)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_writes_files_of_its_own(recorder_in: str, tmp_path: Path) -> None:
    code = (
        (PYTHON_ALONE if recorder_in == "python" else "")
        + """
import os, sys
from timerl_nb.scope.recording.recording_session import record
from timerl_nb.scope.recording.annotations import operation
with record(sys.argv[1], taps=False):
    with operation("parent"):
        child = os.fork()
        if child == 0:
            with operation("child"):
                os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    other = os.fork()
    if other == 0:
        with operation("of its own"):
            pass
if other == 0:
    os._exit(4)  # it has ended its recording, and not its parent's
assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 4
"""
    )
    folder = str(tmp_path / "r")
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, folder], check=True, timeout=60)
    recording = read(folder)
    lanes = [told(recording, lane) for lane in recording.lanes]
    assert sorted(lanes, key=lambda lane: (len(lane), lane)) == [
        [("OPERATION_ENTER", "child", 1)],  # it was open when the child ended
        [("OPERATION_ENTER", "of its own", 1), ("OPERATION_EXIT", "", 0)],
        [("OPERATION_ENTER", "parent", 1), ("OPERATION_EXIT", "", 0)],
    ]
    begun = [
        json.loads(path.read_bytes())["begin"]["monotonic"] for path in Path(folder).glob("*.json")
    ]
    assert len({*begun}) == 3


def test_a_disk_too_full_for_a_name_does_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with record(tmp_path / "r"):
        monkeypatch.setattr(writing.NameTable, "_add", full)
        with pytest.warns(TimeRLWarning, match="has stopped: No space left on device"):
            in_thread(lambda: operation("o").__enter__())
    monkeypatch.setattr(writing, "write_whole", full)
    with pytest.raises(ExecutionError, match="cannot be written.*No space left"):
        record(tmp_path / "other").__enter__()
    assert os.listdir(tmp_path / "other") == []


def test_rooms_are_reserved_where_the_system_has_no_word_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    with record(tmp_path / "r") as rec, operation("o"):
        pass
    (lane,) = rec.folder.glob("*.edges")
    assert lane.stat().st_size == writing.FIRST and len(told(rec.read())) == 2


@pytest.mark.parametrize("reserves", [True, False])
def test_a_new_segment_is_written_with_zeros_also_in_parts(
    reserves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not reserves:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    write, sizes = os.write, list[int]()

    def partly(file: int, data: bytes) -> int:
        sizes.append(write(file, data[:5_000]))
        return sizes[-1]

    monkeypatch.setattr(os, "write", partly)
    for size in writing.FIRST, writing.SEGMENT + 8:
        with (tmp_path / "segment").open("w+b") as file:
            writing._reserve(file.fileno(), size)
            assert sum(sizes) == size and file.read() == b"" and not file.seek(0)
            assert file.read() == bytes(size)
        sizes.clear()


def test_what_was_recorded_survives_being_killed(recorder_in: str, tmp_path: Path) -> None:
    code = (
        (PYTHON_ALONE if recorder_in == "python" else "")
        + """
import sys, threading
from timerl_nb.scope.recording.recording_session import record
from timerl_nb.scope.recording.annotations import operation
def work():
    while True:
        with operation(f"a {threading.get_ident()}"):
            with operation("b"):
                pass
with record(sys.argv[1], taps=False):
    with operation("first"):
        pass
    threading.Thread(target=work, daemon=True).start()
    print("goes on", flush=True)
    work()
"""
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline()
        threading.Event().wait(0.05)
        child.send_signal(signal.SIGKILL)
    recording = read(tmp_path)
    assert json.loads(next(tmp_path.glob("*.json")).read_bytes())["recorder"] == recorder_in
    assert "first" in recording.names and recording.lanes
    for lane in recording.lanes:
        depth = 0
        for kind, _, now in told(recording, lane):
            depth += 1 if kind == "OPERATION_ENTER" else -1
            assert now == depth  # none is missing
        assert lane.end == int(lane.edges["ts"][-1])


def test_damaged_foreign_and_newer_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="contains no recording"):
        read(tmp_path)
    with record(tmp_path / "r") as rec, operation("o"):
        pass
    (manifest,) = rec.folder.glob("*.json")
    (names,) = rec.folder.glob("*.names")
    (lane,) = rec.folder.glob("*.edges")
    text, words, edges = manifest.read_text(), names.read_bytes(), lane.read_bytes()

    def refused(path: Path, content: bytes, match: str) -> None:
        before = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(ExecutionError, match=match):
            read(rec.folder)
        path.write_bytes(before)

    refused(manifest, text.replace('"version": 3', '"version": 4').encode(), "has version 4")
    refused(manifest, b"{}", "is not a valid manifest")
    refused(manifest, json.dumps([]).encode(), "is not a valid manifest")
    refused(manifest, text[:40].encode(), "it is not valid JSON, or it is truncated")
    about = json.loads(text)
    for name, wrong in (("made_by", [3]), ("alive", [[1]]), ("command", 3), ("end", {"cpu": 1})):
        other = json.dumps(about | {name: wrong}).encode()
        refused(manifest, other, f"'{name}' has an invalid value")
    refused(names, b'{"name": 3\n' + words, "is not a valid name table")
    for line in (b"[1]", b'{"name": 3}', b'{"costs": [1]}', b'{"thread": "x"}', b"\xff\x00"):
        refused(names, words + line + b"\n", "is not a valid name table of a recording: ")
    (rec.folder / "package.json").write_text("{}")  # somebody else's
    assert len(told(rec.read())) == 2
    refused(names, b"", "refer to missing names")
    refused(lane, edges[:12] + b"\xff\xff" + edges[14:], "is damaged at event 0")
    refused(lane, edges[:7] + b"\x7f" + edges[8:], "is damaged at event 1")  # time goes back
    lane.rename(later := lane.with_name(lane.name.replace("-0.edges", "-1.edges")))
    with pytest.raises(ExecutionError, match="has no previous segment"):
        read(rec.folder)
    lane.write_bytes(edges[:16])
    with pytest.raises(ExecutionError, match="is truncated"):
        read(rec.folder)
    later.rename(lane)
    names.write_bytes(words + b'{"name": "cut o')  # the process ended there
    assert len(told(rec.read())) == 2
    for size in (0, 8, 16, 24, 32):  # of a partially copied file
        refused(lane, edges[:size], "is truncated after ")
    refused(lane, edges[:16] + bytes(16) + edges[32:], "has a gap after event 1")
    refused(lane, edges[:16] + bytes(len(edges) - 16), "is truncated after 1 event of 3")
    lane.unlink()
    with pytest.raises(ExecutionError, match="0.edges is missing"):
        read(rec.folder)


def test_libraries_that_there_are_not_are_named(tmp_path: Path) -> None:
    with record(tmp_path / "r", taps=False) as rec, trl.scope.tap(zlib, "api"):
        zlib.crc32(b"x")
    lane = rec.folder / f"{os.getpid()}-{threading.get_native_id()}-0.edges"
    edges = np.frombuffer(lane.read_bytes(), EDGE).copy()
    at = int(np.flatnonzero(edges["top"] >> NAME_BITS == 3)[0])
    edges["top"][at] |= 0xF0 << NAME_BITS
    lane.write_bytes(edges.tobytes())
    with pytest.raises(ExecutionError, match=f"event {at} of its thread: unknown library 243"):
        rec.transitions()


def test_a_lane_of_a_thread_that_ended_is_not_read_without_its_end(tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(300):  # more than the first segment holds
            with operation("o"):
                pass

    with record(tmp_path / "r", taps=False) as rec:
        in_thread(work)
    (last,) = rec.folder.glob("*-1.edges")
    content = last.read_bytes()
    assert 0 < len(content) < 16 * 700
    assert (rec.folder / last.name.replace("-1.", "-0.")).stat().st_size == writing.FIRST
    last.write_bytes(content[:-16])
    with pytest.raises(ExecutionError, match="is truncated after 6"):
        rec.read()
    last.write_bytes(content)
    assert rec.transitions() == {} and len(rec.read().lanes) == 2


def test_many_short_threads_take_little_room(tmp_path: Path) -> None:
    with record(tmp_path / "r", taps=False) as rec:
        for _ in range(50):
            in_thread(operation("o").__enter__)
    lanes = rec.read().lanes
    assert len(lanes) == 51 and len({lane.thread for lane in lanes}) == 51
    blocks = sum(path.stat().st_blocks * 512 for path in rec.folder.iterdir())
    assert blocks < 51 * 2 * writing.FIRST


def test_numbers_that_the_system_uses_again_are_told_apart(
    recorder_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container with few process numbers, or after `os.execv`."""
    monkeypatch.setattr(threading, "get_native_id", lambda: 77)
    with record(tmp_path / "r", taps=False) as rec:
        for name in "ab":
            in_thread(operation(name)(lambda: None))
    found = {lane.thread: told(rec.read(), lane)[:1] for lane in rec.read().lanes}
    assert found == {
        77: [],
        10_000_077: [("OPERATION_ENTER", "a", 1)],
        20_000_077: [("OPERATION_ENTER", "b", 1)],
    }


@pytest.mark.some_of("recorder_in", 1)
def test_a_process_that_becomes_another_program_is_recorded_as_both(
    recorder_in: str, tmp_path: Path
) -> None:
    script = tmp_path / "becomes.py"
    script.write_text(
        """
import os, sys
import timerl_nb as trl
with trl.scope.operation(sys.argv[1]):
    pass
if sys.argv[1] != "third":
    os.execv(sys.executable, [sys.executable, sys.argv[0], {"first": "second", "second": "third"}[sys.argv[1]]])
"""
    )
    environment = joining.environment(tmp_path / "r", os.environ, taps=False, calibrated=False)
    (tmp_path / "r").mkdir()
    done = subprocess.run([sys.executable, script, "first"], env=environment, capture_output=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    recording = read(tmp_path / "r")
    first = recording.processes[0].number
    numbers = [first + k * 10_000_000 for k in range(3)]
    assert [one.number for one in recording.processes] == numbers
    assert [one.parent for one in recording.processes] == [os.getpid(), *numbers[:2]]
    names = {name for lane in recording.lanes for _, name, _ in told(recording, lane)}
    assert names == {"first", "second", "third", ""}
    (root,) = trl.scope.processes(recording).roots
    assert [branch.process.number for branch in root] == numbers


@pytest.mark.some_of("recorder_in", 1)
def test_it_is_there_as_trl_scope_and_nobody_pays_for_it_before() -> None:
    code = """
import sys
import timerl_nb as trl
assert not [name for name in sys.modules if name.startswith("timerl_nb.scope")]
assert "scope" in dir(trl)
trl.scope.operation("o")
assert "timerl_nb.scope.recording.recorder" in sys.modules
try:
    trl.scope.recod
except trl.errors.MissingNameError as error:
    print(error.hint)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout == "did you mean record or read?\n"


def test_a_recorder_built_of_another_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (Path(pure.__file__).parent / "_tap.c").read_bytes()
    for known in (zlib.crc32(source), 1, None):
        built = SimpleNamespace() if known is None else SimpleNamespace(SOURCE=known)
        monkeypatch.setattr(c_extensions.importlib, "import_module", lambda _, built=built: built)
        if known == zlib.crc32(source):
            assert native._load_recorder() is built
            continue
        with pytest.warns(TimeRLWarning, match="built from an older source"):
            assert native._load_recorder() is pure


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_line_leaves_no_recording_open(tmp_path: Path) -> None:
    numbers = count()

    def recorded() -> None:
        with trl.scope.record(tmp_path / str(next(numbers)), taps=False):
            pass

    variables, parts = (
        joining.handed_on(),
        ("scope/recording/recording_session.py", "scope/recording/process_joining.py"),
    )
    visited = [*lines(recorded, *parts), *lines(recorded, "scope/recording/recorder.py")[::5]]
    # before the first line of `__exit__` the block looks like an open one
    ahead = inspect.getsourcelines(trl.scope.record.__exit__)[1] + 1
    for line in visited:
        raised = interrupted(recorded, line, *parts, "scope/recording/recorder.py")
        if line[1] != ahead or Path(line[0]).name != "recording_session.py":
            assert joining.handed_on() == variables, line
        recorded()  # another recording begins and ends
        assert joining.handed_on() == variables, line
        del raised


class _Interrupted(trl.scope.record):
    """A recording with an interrupt before the first line of its end."""

    def __exit__(self, *_: object) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("has_ended", ["the object", "the block"])
def test_a_recording_ends_without_its_exit(has_ended: str, tmp_path: Path) -> None:
    held = list[trl.scope.record]()

    def recorded() -> None:
        with _Interrupted(tmp_path / "r", taps=False) as rec, operation("o"):
            if has_ended == "the block":
                held.append(rec)

    before = joining.handed_on()
    with pytest.raises(KeyboardInterrupt):
        recorded()
    if has_ended == "the object":
        gc.collect()  # the frame of the block and the object form a cycle
        assert recorder._now is None
    with record(tmp_path / "other"), operation("p"):
        pass
    assert joining.handed_on() == before
    assert [name for _, name, _ in told(read(tmp_path / "r"))][:1] == ["o"]
    assert [name for _, name, _ in told(read(tmp_path / "other"))][:1] == ["p"]


def test_an_open_recording_in_another_frame_goes_on(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(record(tmp_path / "r"))
        with pytest.raises(ExecutionError, match="is still open"):
            record(tmp_path / "other").__enter__()
        with operation("o"):
            pass
    assert [name for _, name, _ in told(read(tmp_path / "r"))][:1] == ["o"]
