"""What is written while a recording goes on: who writes it, and where.

Each thread writes a lane of its own. What is left out of order, by another task or another thread than
entered it, cannot be drawn as one stretch: it is marked as *interleaved* and left where it stands in its stack.
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

INTERLEAVED = "interleaved: "  # ahead of the name of what was


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
    """Begin a recording into a folder; one at a time in a process.

    Args:
        parent: the process whose recording this one joins; None where it begins one.
        timed: times what is recorded in a tight loop, now and then; with it, blocks are silent at random, so
            that a calibration can be made.
        drawn: whether they are, or are all recorded.
        at_once: what is known of this thread begins now, and not by `begin_lane`.
        owner: the object that ends the recording; see `end`.

    Raises:
        ExecutionError: the folder cannot be written, or holds a recording, or one goes on.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ExecutionError(
            "Python without its global lock cannot be recorded: what is on top of a thread is kept under it.",
            hint="set PYTHON_GIL=1, or use the usual Python.",
        )
    with _SWITCH:
        if _now is not None:
            raise ExecutionError(
                f"a recording into {_now.folder} goes on.",
                hint="end it first: leave its `with` block, or call its __exit__(None, None, None) after an "
                "interrupt. Operations and phases may be nested, recordings may not.",
            )
        _go_on(_Recorder(folder, parent, timed=timed, drawn=drawn, owner=owner))
        if at_once:
            begin_lane()


def make_fresh(folder: Path) -> None:
    """Make a folder to record into, if need be.

    Raises:
        ExecutionError: it cannot be made, or holds a recording.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a zero byte in its name
        raise _not_written(folder, error) from error
    if any(MANIFEST.fullmatch(path.name) for path in folder.iterdir()):
        raise ExecutionError(
            f"{folder} holds a recording.", hint="name another folder, or remove it."
        )


def _not_written(folder: Path, error: OSError | ValueError) -> ExecutionError:
    return ExecutionError(
        f"nothing can be recorded into {folder}: {cause(error)}.",
        hint="name a folder that can be written.",
    )


def each_step(told: Stepped) -> None:
    """Have somebody be told where a thread's outermost phase (true) or operation ends."""

    def on_end(is_phase: bool) -> None:
        lane = this_lane()
        if lane is not None and not lane.is_aside:
            told(lane, is_phase)

    if _now is not None:
        c_or_python_recorder.module.each_step(on_end)


def is_owned_by(owner: object) -> bool:
    """Whether an object began the current recording."""
    return _now is not None and _now.owner is owner


def end(at: Clocks | None = None, owner: object = None) -> None:
    """End the current recording; code that has run since some moment, by default now, is no part of it.

    Args:
        owner: the recording is ended only if this object has begun it; None ends any.
    """
    global _now
    recorder = _now
    if recorder is None or (owner is not None and recorder.owner is not owner):
        return
    ended = at or clocks()
    try:
        _stop(recorder, ended)
    except BaseException:  # an interrupt must not leave an unreadable folder
        _stop(recorder, ended)
        raise


def _stop(recorder: _Recorder, at: Clocks) -> None:
    global _now
    with _SWITCH:
        _now = None
        c_or_python_recorder.module.stop()
    recorder.end(at)


def _go_on(recorder: _Recorder) -> None:
    """From here on a recorder is that of this process."""
    global _now
    _now = recorder
    written_by(c_or_python_recorder.module)
    c_or_python_recorder.module.start(
        _install_lane, recorder.top_of_call, recorder.names.numbers, _astray
    )


def begin_lane() -> None:
    """What is known of the thread begins now."""
    if (lane := this_lane()) is not None:
        lane.put(0, Kind.MARK, 0)


def begin_thread(name: str, taken: int) -> None:
    """Begin the lane of a new thread.

    Args:
        taken: see `hand`.
    """
    recorder = _now
    if recorder is not None and not recorder.failed:
        recorder.lane(name).take(taken)


def hand() -> int:
    """Say that this thread starts a thread or submits a task, and return its number; 0 without a recording.

    The number goes to `begin_thread`, or to `ThreadLane.take` as the task begins: phases that are open here then cover it.
    """
    lane = this_lane()
    if lane is None:
        return 0
    number = next(lane.recorder.handed) & 0xFFFFFFFF
    lane.put(number, Kind.HANDS, 0)
    return number


def own_process() -> int:
    """The number of this process in the current recording; else the system's."""
    return os.getpid() if _now is None else _now.process


def _install_lane() -> None:
    """What is tapped or annotated asks for this thread's lane."""
    lane = this_lane()
    if lane is not None:
        lane.install()


def _astray(left: Any) -> None:
    """An operation or a phase is left that is not on top of its stack here, or that no recording knows of."""
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
    """That of the thread that asks; None where nothing is recorded."""
    recorder = _now
    if recorder is None or recorder.failed:
        return None
    try:
        return recorder.own.lane
    except AttributeError:
        return recorder.lane()


def known_thread() -> threading.Thread | None:
    """The thread that asks, as Python knows it; `current_thread` would make one of those that it does not know yet."""
    return threading._active.get(get_ident())  # type: ignore[attr-defined]


class ThreadLane:
    """Where a thread's edges go.

    Attributes:
        is_aside: what it does is not of the program.
        number: of the thread in the recording.
        taken: the thread or task that it runs; see `hand`.
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
        if recorder.asked is not None:
            blocks = Blocks(self.number, drawn=recorder.drawn)
            self.writer.tallies, self.writer.turn = {}, functools.partial(blocks.turn, self)
        self.install()
        called = name or (thread.name if (thread := known_thread()) else "")
        recorder.add_line({"thread": self.number, "called": called[:LONGEST]})

    @property
    def silent(self) -> bool:
        """Whether calls and operations are not recorded now."""
        return self.writer.silent

    def silence(self, silent: bool) -> None:
        """Record no calls and operations from now on, or do so again, while none is open."""
        if not silent:
            self.tell_missed()
        self.put(0, Kind.OFF if silent else Kind.ON, 0)
        self.writer.silent = silent

    def tell_missed(self) -> None:
        """Write the counts of unwritten edges."""
        for name, which, count in self.writer.missed():
            left, entered = divmod(which, python_recorder.LIBRARIES)
            if which == python_recorder.ENTERED:
                left, entered = MISSED_OPERATION, 0
            self.put(self.recorder.number(name) | entered << NAME_BITS, Kind.MISSED, left)
            self.put(count, Kind.COUNT, 0)

    def take(self, number: int) -> None:
        """Begin the thread or task with this number of `hand`."""
        self.taken = number
        self.put(number, Kind.TAKES, 0)

    def close(self) -> None:
        """End the lane with its thread, which asks; and give back the rest of its last segment."""
        if self.silent:
            self.tell_missed()
        self.put(self.writer.edges, Kind.ENDED, 0)
        self.writer.close()
        self._segments.close(self.writer.edges)

    @contextmanager
    def redirected(self, segments: Callable[[], mmap.mmap]) -> Iterator[None]:
        """Meanwhile what is recorded of the thread, of which nothing is open, goes elsewhere."""
        writer, self.is_aside = self.writer, True
        self.writer = type(writer)(segments)
        if writer.tallies is not None:  # they count, which costs, and no block ends
            self.writer.tallies, self.writer.left = {}, sys.maxsize
        self.install()
        try:
            yield
        finally:
            self.writer, self.is_aside = writer, False
            self.install()

    def mark(self, name: str) -> None:
        """Something happens now."""
        self.put(self.recorder.number(name), Kind.MARK, 0)

    @property
    def operations(self) -> Sequence[Any]:
        """Those that are open."""
        return self.writer.operations

    @property
    def phases(self) -> Sequence[Any]:
        """Those that are open."""
        return self.writer.phases

    @property
    def library(self) -> int:
        """The one on top of the calls."""
        return self.writer.library

    def called(self, top: int, ts: int = 0) -> None:
        """A library is called, `top >> NAME_BITS`, be it at a moment since the last edge."""
        if not self.recorder.failed:
            self.writer.called(top, ts)

    def returned(self) -> None:
        """What was called last has returned."""
        recorder = self.recorder
        if recorder is _now and not recorder.failed:  # else it has ended, or is another process's
            self.writer.returned()

    def install(self) -> None:
        """Have taps of this thread write here."""
        self.writer.install()

    def put(self, top: int, kind: Kind, depth: int) -> None:
        if not self.recorder.failed:
            self.writer.put(top, kind, depth)


class _Ends:
    """Ends a thread's lane as the thread's local variables are released."""

    __slots__ = ("_lane",)

    def __init__(self, lane: ThreadLane) -> None:
        self._lane = lane

    def __del__(self) -> None:
        lane: ThreadLane | None = getattr(self, "_lane", None)
        if lane is None:  # an interrupt came as this was made
            return
        recorder = lane.recorder
        # else the recording has ended, or this is a forked child
        if recorder is _now and not recorder.failed and lane.thread == get_ident():
            lane.close()


class _Recorder:
    """What is written while it goes on.

    Args:
        parent: the process whose recording this one joins; None where it begins one.
        thread: the one of it that forked this process; 0 where it was made otherwise.
        timed, drawn: see `begin`.

    Attributes:
        asked: what times tight loops.
        lanes: of its threads, as long as they go on.
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
        self.asked = timed
        self.own = threading.local()
        self.lanes: list[weakref.ref[ThreadLane]] = []
        self.handed = itertools.count(1)
        self._threads = Counter[int]()  # lanes by the system's number
        self._begin = clocks()
        if parent is None:
            make_fresh(folder)
        try:
            self.names = NameTable(folder)
            self.process = self.names.process
            if (
                parent is None or parent == self.process
            ):  # by `os.execv` the parent became this process
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
        """That of the thread that asks."""
        found: ThreadLane | None = getattr(self.own, "lane", None)
        if found is None:
            found = self.own.lane = ThreadLane(self, name)
            self.own.ends = _Ends(found)
            self.lanes.append(weakref.ref(found, self.lanes.remove))
        return found

    def new_thread(self, native: int) -> int:
        """The number of a new lane of a thread, which the system gave a number."""
        earlier = self._threads[native]
        self._threads[native] += 1
        return native + earlier * RENEWED

    def segment(self, made: Segments) -> mmap.mmap:
        """The next one of a thread; where there is no room, nothing is recorded any more, and what is being written is lost."""
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
        """What an edge says of a call."""
        return library << NAME_BITS | self.number(name)

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Say something else of the process: see `NameTable.add_line`."""
        try:
            self.names.add_line(line)
        except OSError as error:
            self.fail(error)

    def fail(self, error: OSError) -> None:
        """Record no more; the program goes on."""
        if not self.failed:
            self.failed = True
            c_or_python_recorder.module.stop()
            warn(f"recording into {self.folder} has stopped: {error.strerror or error}.")

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
        except FileNotFoundError:  # it has been read, and thrown away: nobody asks
            self.failed = True
        except OSError as error:
            self.fail(error)

    def _lanes_of_running_threads(self) -> list[ThreadLane]:
        """The lanes of running threads."""
        natives = {one.native_id for one in threading.enumerate()}
        newest: dict[int, ThreadLane] = {}
        for made in [*self.lanes]:
            lane = made()
            if lane is not None and lane.native in natives:
                newest[lane.native] = lane
        return list(newest.values())


def _last_of(lane: ThreadLane, now: int) -> dict[str, Any]:
    """The end of a lane whose thread goes on after the recording; see `lane_files.Last`."""
    cpu, ready, switches = python_recorder.schedule(f"/proc/self/task/{lane.native}")
    if lane.thread == get_ident():
        cpu = time.thread_time_ns()
    writer = lane.writer
    blocked = writer.blocked(now, cpu, ready, switches) if cpu else 0  # else nobody knows
    missed = [list(one) for one in writer.missed()] if lane.silent else []
    return {"edges": writer.edges, "blocked": blocked, "missed": missed}


def _kind() -> str:
    return "python" if c_or_python_recorder.module is python_recorder else "c"


def _restart_after_fork() -> None:
    """A child writes files of its own; what its parent had open when it was made is not open in it."""
    global _now, _SWITCH
    _SWITCH = threading.Lock()
    if _now is not None:
        before, _now = _now, None
        c_or_python_recorder.module.stop()
        forking: ThreadLane | None = getattr(before.own, "lane", None)
        thread = 0 if forking is None else forking.number
        try:
            made_by = before.folder, before.process, thread
            _go_on(_Recorder(*made_by, timed=before.asked, drawn=before.drawn))
            begin_lane()
        except ExecutionError as error:
            warn(f"a child process is not recorded: {error.what}")


_SWITCH = threading.Lock()
_now: _Recorder | None = None
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_after_fork)
