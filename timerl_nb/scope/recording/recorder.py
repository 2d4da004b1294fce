"""Recorder of one process: owns the event timelines of its threads.

Each thread appends to its own timeline. If another thread or task exits an operation or phase out
of order, the interval is invalid: the entry stays on its stack, and a mark named *interleaved* is
written.
"""

from __future__ import annotations

import functools
import itertools
import mmap
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

from timerl_nb.base.errors import ExecutionError, warn
from timerl_nb.scope.calibration.enabled_disabled_blocks import Blocks
from timerl_nb.scope.recording.annotations import written_by
from timerl_nb.scope.storage.event_format import MISSED_OPERATION, NAME_BITS, RENEWED, Kind, Library
from timerl_nb.scope.storage.json_validation import cause
from timerl_nb.scope.storage.recording_writer import (
    LONGEST,
    MANIFEST,
    SEGMENT,
    Clocks,
    NameTable,
    Segments,
    clocks,
    write_manifest,
)
from timerl_nb.scope.wrappers import c_or_python_recorder, python_recorder

INTERLEAVED = "interleaved: "  # prefix of the mark for an exit out of order


Timed = Callable[["ThreadLane"], None]
Stepped = Callable[["ThreadLane", bool], None]


def begin(
    folder: Path,
    *,
    parent: int | None = None,
    timed: Timed | None = None,
    drawn: bool = True,
    at_once: bool = True,
    owner: object = None,
) -> None:
    """Start recording this process into a folder.

    Args:
        folder: folder of the recording.
        parent: number of the parent, to join its recording; None to start a new recording.
        timed: called now and then to measure the cost of recording in a tight loop. With it, random
            blocks are disabled, to calibrate the overhead.
        drawn: False to record all blocks even with `timed`.
        at_once: whether the timeline of this thread begins now; otherwise, call `begin_lane`.
        owner: owner of the recording; see `end`.

    Raises:
        ExecutionError: the folder cannot be written or holds a recording, or this process is
            already recorded.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ExecutionError(
            "Python without its global interpreter lock cannot be recorded: the recorder relies on the lock.",
            hint="set PYTHON_GIL=1, or use a Python build with the lock.",
        )
    with _SWITCH:
        if _now is not None:
            raise ExecutionError(
                f"a recording into {_now.folder} is still open.",
                hint="leave its `with` block first; after an interrupt, call its __exit__(None, None, None). "
                "Operations and phases may be nested, recordings may not.",
            )
        _go_on(_Recorder(folder, parent, timed=timed, drawn=drawn, owner=owner))
        if at_once:
            begin_lane()


def prepare_recording_folder(folder: Path) -> None:
    """Create a folder for a recording, or check an existing one.

    Raises:
        ExecutionError: the folder cannot be created, or it holds a recording.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: the name has a zero byte
        raise _not_written(folder, error) from error
    if any(MANIFEST.fullmatch(path.name) for path in folder.iterdir()):
        raise ExecutionError(
            f"{folder} already holds a recording.",
            hint="choose another folder, or remove this one.",
        )


def _not_written(folder: Path, error: OSError | ValueError) -> ExecutionError:
    return ExecutionError(
        f"the recording folder {folder} cannot be written: {cause(error)}.",
        hint="choose a writable folder.",
    )


def each_step(told: Stepped) -> None:
    """Call `told(lane, is_phase)` at the end of each thread's outermost phases and operations."""

    def on_end(is_phase: bool) -> None:
        lane = this_lane()
        if lane is not None and not lane.is_aside:
            told(lane, is_phase)

    if _now is not None:
        c_or_python_recorder.module.each_step(on_end)


def is_owned_by(owner: object) -> bool:
    """Return whether `owner` began the current recording."""
    return _now is not None and _now.owner is owner


def end(at: Clocks | None = None, owner: object = None) -> None:
    """End the current recording.

    Args:
        at: end time; code after it is left out. Default: now.
        owner: end the recording only if this object began it. None ends any recording.
    """
    global _now
    recorder = _now
    if recorder is None or (owner is not None and recorder.owner is not owner):
        return
    ended = at or clocks()
    try:
        _stop(recorder, ended)
    except BaseException:  # an interrupt must not leave an unreadable folder behind
        _stop(recorder, ended)
        raise


def _stop(recorder: _Recorder, at: Clocks) -> None:
    global _now
    with _SWITCH:
        _now = None
        c_or_python_recorder.module.stop()
    recorder.end(at)


def _go_on(recorder: _Recorder) -> None:
    """Make `recorder` the recorder of this process."""
    global _now
    _now = recorder
    written_by(c_or_python_recorder.module)
    c_or_python_recorder.module.start(
        _install_lane, recorder.top_of_call, recorder.names.numbers, _astray
    )


def begin_lane() -> None:
    """Begin the timeline of this thread, with an empty mark."""
    if (lane := this_lane()) is not None:
        lane.put(0, Kind.MARK, 0)


def begin_thread(name: str, taken: int) -> None:
    """Begin the timeline of a new thread.

    Args:
        name: name of the thread.
        taken: number from `hand`, called in the parent thread.
    """
    recorder = _now
    if recorder is not None and not recorder.failed:
        recorder.lane(name).take(taken)


def hand() -> int:
    """Record the start of a thread or the submission of a task by this thread.

    Returns:
        A number for `begin_thread` or `ThreadLane.take`, 0 without a recording. The open phases of
        this thread extend to the thread or task with this number.
    """
    lane = this_lane()
    if lane is None:
        return 0
    number = next(lane.recorder.handed) & 0xFFFFFFFF
    lane.put(number, Kind.HANDS, 0)
    return number


def own_process() -> int:
    """Return the number of this process in the recording, or its system id without a recording."""
    return os.getpid() if _now is None else _now.process


def own_folder() -> Path | None:
    """Return the folder of the current recording; None without one."""
    return None if _now is None else _now.folder


def _install_lane() -> None:
    """Create the timeline of this thread, at its first wrapped call or annotation."""
    lane = this_lane()
    if lane is not None:
        lane.install()


def _astray(left: Any) -> None:
    """Handle the exit of an operation or phase below the top of this thread's stack."""
    recorder, here = _now, this_lane()
    if recorder is None or here is None:
        return
    for lane in (here, *(one for made in [*recorder.lanes] if (one := made()) is not None)):
        stack = lane.writer.phases if left.is_phase else lane.writer.operations
        where = next((k for k in reversed(range(len(stack))) if stack[k] is left), None)
        if where is None:
            continue
        if lane.silent and not left.is_phase:
            del stack[where]
        else:
            stack[where] = c_or_python_recorder.module.Named(left.name)
            here.mark(f"{INTERLEAVED}{left.name}")
        return


def this_lane() -> ThreadLane | None:
    """Return the timeline of the current thread; None without a recording."""
    recorder = _now
    if recorder is None or recorder.failed:
        return None
    try:
        return recorder.own.lane
    except AttributeError:
        return recorder.lane()


def known_thread() -> threading.Thread | None:
    """Return the current thread if Python has a `Thread` object for it.

    `threading.current_thread` would create an object for a foreign thread.
    """
    return threading._active.get(get_ident())  # type: ignore[attr-defined]


class ThreadLane:
    """Timeline of one thread: writes its begin and end events.

    Attributes:
        is_aside: whether the events go to another place for now; see `redirected`.
        number: number of the thread in the recording.
        taken: number of the running thread or task; see `hand`.
    """

    def __init__(self, recorder: _Recorder, name: str = "") -> None:
        self.is_aside = False
        self.recorder, self.thread = recorder, get_ident()
        self.native, self.taken = threading.get_native_id(), 0
        self.number = recorder.new_thread(self.native)
        self._segments = Segments(recorder.folder / f"{recorder.process}-{self.number}")
        self.writer: Any = c_or_python_recorder.module.Lane(
            functools.partial(recorder.segment, self._segments)
        )
        if recorder.timed is not None:
            blocks = Blocks(self.number, drawn=recorder.drawn)
            self.writer.tallies, self.writer.turn = {}, functools.partial(blocks.turn, self)
        self.install()
        called = name or (thread.name if (thread := known_thread()) else "")
        recorder.add_line({"thread": self.number, "called": called[:LONGEST]})

    @property
    def silent(self) -> bool:
        """Whether calls and operations are not recorded in the current block."""
        return self.writer.silent

    def silence(self, silent: bool) -> None:
        """Disable or enable the recording of calls and operations. No operation may be open."""
        if not silent:
            self.tell_missed()
        self.put(0, Kind.OFF if silent else Kind.ON, 0)
        self.writer.silent = silent

    def tell_missed(self) -> None:
        """Write the numbers of unrecorded calls and operations."""
        for name, which, count in self.writer.missed():
            left, entered = divmod(which, python_recorder.LIBRARIES)
            if which == python_recorder.ENTERED:
                left, entered = MISSED_OPERATION, 0
            self.put(self.recorder.number(name) | entered << NAME_BITS, Kind.MISSED, left)
            self.put(count, Kind.COUNT, 0)

    def take(self, number: int) -> None:
        """Begin the thread or task with a number from `hand`."""
        self.taken = number
        self.put(number, Kind.TAKES, 0)

    def close(self) -> None:
        """End the timeline of the current thread and free the unused rest of its last segment."""
        if self.silent:
            self.tell_missed()
        self.put(self.writer.edges, Kind.ENDED, 0)
        self.writer.close()
        self._segments.close(self.writer.edges)

    @contextmanager
    def redirected(self, segments: Callable[[], mmap.mmap]) -> Iterator[None]:
        """Write events to other segments inside of this context. No operation may be open."""
        writer, self.is_aside = self.writer, True
        self.writer = type(writer)(segments)
        # count operations as usual, because counting costs time, but never end a block
        if writer.tallies is not None:
            self.writer.tallies, self.writer.left = {}, sys.maxsize
        self.install()
        try:
            yield
        finally:
            self.writer, self.is_aside = writer, False
            self.install()

    def mark(self, name: str) -> None:
        """Write a named mark: an event at the current time."""
        self.put(self.recorder.number(name), Kind.MARK, 0)

    @property
    def operations(self) -> Sequence[Any]:
        """Open operations, outermost first."""
        return self.writer.operations

    @property
    def phases(self) -> Sequence[Any]:
        """Open phases, outermost first."""
        return self.writer.phases

    @property
    def library(self) -> int:
        """Library of the innermost open call."""
        return self.writer.library

    def called(self, top: int, ts: int = 0) -> None:
        """Record the start of a call.

        Args:
            top: library (`top >> NAME_BITS`) and name of the call.
            ts: time in nanoseconds, not before the last event; 0 for now.
        """
        if not self.recorder.failed:
            self.writer.called(top, ts)

    def returned(self) -> None:
        """Record the end of the innermost call."""
        recorder = self.recorder
        # otherwise the recording has ended, or it belongs to the parent of a forked child
        if recorder is _now and not recorder.failed:
            self.writer.returned()

    def install(self) -> None:
        """Let the wrappers write the calls of this thread here."""
        self.writer.install()

    def put(self, top: int, kind: Kind, depth: int) -> None:
        if not self.recorder.failed:
            self.writer.put(top, kind, depth)


class _Ends:
    """Thread-local object; its destructor ends the timeline together with the thread."""

    __slots__ = ("_lane",)

    def __init__(self, lane: ThreadLane) -> None:
        self._lane = lane

    def __del__(self) -> None:
        lane: ThreadLane | None = getattr(self, "_lane", None)
        if lane is None:  # an interrupt came during construction
            return
        recorder = lane.recorder
        # otherwise the recording has ended, or this is a forked child
        if recorder is _now and not recorder.failed and lane.thread == get_ident():
            lane.close()


class _Recorder:
    """State of the recording of one process.

    Args:
        folder: folder of the recording.
        parent: number of the parent, to join its recording; None to start a new recording.
        thread: forking thread of the parent; 0 without a fork.
        timed, drawn, owner: see `begin`.

    Attributes:
        timed: the `timed` callback.
        lanes: timelines of the live threads.
    """

    def __init__(
        self,
        folder: Path,
        parent: int | None = None,
        thread: int = 0,
        *,
        timed: Timed | None = None,
        drawn: bool = True,
        owner: object = None,
    ) -> None:
        self.folder, self.failed, self.owner = folder, False, owner
        self.drawn = drawn
        self.timed = timed
        self.own = threading.local()
        self.lanes: list[weakref.ref[ThreadLane]] = []
        self.handed = itertools.count(1)
        self._threads = Counter[int]()  # number of timelines per thread id of the system
        self._begin = clocks()
        if parent is None:
            prepare_recording_folder(folder)
        try:
            self.names = NameTable(folder)
            self.process = self.names.process
            if (
                parent is None or parent == self.process
            ):  # `os.execv` turned the parent into this process
                parent = os.getppid()
            self._made_by = parent, thread
            try:
                write_manifest(folder, self.process, _kind(), self._made_by, self._begin)
            except OSError:
                self.names.remove()
                raise
        except OSError as error:
            raise _not_written(folder, error) from error

    def lane(self, name: str = "") -> ThreadLane:
        """Return the timeline of the current thread; create it at the first call."""
        found: ThreadLane | None = getattr(self.own, "lane", None)
        if found is None:
            found = self.own.lane = ThreadLane(self, name)
            self.own.ends = _Ends(found)
            self.lanes.append(weakref.ref(found, self.lanes.remove))
        return found

    def new_thread(self, native: int) -> int:
        """Return a number for a thread, unique even if the system reuses its thread id."""
        earlier = self._threads[native]
        self._threads[native] += 1
        return native + earlier * RENEWED

    def segment(self, made: Segments) -> mmap.mmap:
        """Return the next segment of a thread.

        On a full disk, recording stops and the segment is discarded.
        """
        try:
            return made()
        except OSError as error:
            self.fail(error)
            return mmap.mmap(-1, SEGMENT)

    def number(self, name: str) -> int:
        try:
            return self.names.number(name)
        except OSError as error:
            self.fail(error)
            return 0

    def top_of_call(self, library: Library, name: str) -> int:
        """Return the `top` field of a call event: library and number of the name."""
        return library << NAME_BITS | self.number(name)

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Write a JSON line about the process; see `NameTable.add_line`."""
        try:
            self.names.add_line(line)
        except OSError as error:
            self.fail(error)

    def fail(self, error: OSError) -> None:
        """Stop recording after a write error; the program continues."""
        if not self.failed:
            self.failed = True
            c_or_python_recorder.module.stop()
            warn(
                f"recording into {self.folder} has stopped: {error.strerror or error}.",
                hint="free disk space, or record into another folder.",
            )

    def end(self, at: Clocks) -> None:
        try:
            alive = self._lanes_of_running_threads()
            if not self.failed:
                ends = {str(one.number): _last_of(one, at["monotonic"]) for one in alive}
                self.names.add_line({"lanes": ends})
            numbers = [one.number for one in alive]
            write_manifest(
                self.folder, self.process, _kind(), self._made_by, self._begin, at, numbers
            )
        except FileNotFoundError:  # the folder has been read and deleted
            self.failed = True
        except OSError as error:
            self.fail(error)

    def _lanes_of_running_threads(self) -> list[ThreadLane]:
        """Return the newest timeline of each running thread."""
        natives = {one.native_id for one in threading.enumerate()}
        newest: dict[int, ThreadLane] = {}
        for made in [*self.lanes]:
            lane = made()
            if lane is not None and lane.native in natives:
                newest[lane.native] = lane
        return list(newest.values())


def _last_of(lane: ThreadLane, now: int) -> dict[str, Any]:
    """Return the final record (`thread_files.Last`) of a thread still running at the end."""
    cpu, ready, switches = python_recorder.schedule(f"/proc/self/task/{lane.native}")
    if lane.thread == get_ident():
        cpu = time.thread_time_ns()
    writer = lane.writer
    # 0: the system reports no CPU time
    blocked = writer.blocked(now, cpu, ready, switches) if cpu else 0
    missed = [list(one) for one in writer.missed()] if lane.silent else []
    return {"edges": writer.edges, "blocked": blocked, "missed": missed}


def _kind() -> str:
    return "python" if c_or_python_recorder.module is python_recorder else "c"


def _restart_after_fork() -> None:
    """Start new files for a forked child. Open calls of the parent are not open in the child."""
    global _now, _SWITCH
    _SWITCH = threading.Lock()
    if _now is not None:
        before, _now = _now, None
        c_or_python_recorder.module.stop()
        forking: ThreadLane | None = getattr(before.own, "lane", None)
        thread = 0 if forking is None else forking.number
        try:
            made_by = before.folder, before.process, thread
            _go_on(_Recorder(*made_by, timed=before.timed, drawn=before.drawn))
            begin_lane()
        except ExecutionError as error:
            warn(f"a child process is not recorded: {error.what}")


_SWITCH = threading.Lock()
_now: _Recorder | None = None
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_after_fork)
