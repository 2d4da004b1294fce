"""What is written while a recording goes on; `phase(name)` and `operation(name)` write what their user says.

Each thread writes a lane of its own. What is left out of order, by another task or another thread than
entered it, cannot be drawn as one stretch: it is marked as *interleaved* and left where it stands in its stack.
"""

from __future__ import annotations

import functools
import inspect
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any, Final, ParamSpec, TypeVar, cast

from timerl_nb.errors import ExecutionError, OptionError, warn
from timerl_nb.scope import native, pure
from timerl_nb.scope.blocks import Blocks
from timerl_nb.scope.edges import NAME_BITS, Kind, Library
from timerl_nb.scope.writing import (
    LONGEST,
    MANIFEST,
    SEGMENT,
    NameTable,
    Segments,
    clocks,
    write_manifest,
)

P = ParamSpec("P")
R = TypeVar("R")

_LEAVE: Final = [Kind(kind | 1) for kind in range(Kind.PHASE_EXIT)]  # by what enters
_OPERATION: Final = Kind.OPERATION_EXIT  # a name of ours: to ask the enum for it calls Python
INTERLEAVED = "interleaved: "  # ahead of the name of what was
GUESSED = " (guessed)"  # behind the name of an operation that nobody annotated


class _Named:
    """Something that is entered and left; as a decorator, at each call of a function."""

    enter: Kind

    def __init__(self, name: str) -> None:
        self.name = name
        self._lanes: list[tuple[ThreadLane, Frame | str]] = []  # of each time that it was entered

    def __enter__(self) -> _Named:
        recorder = _now
        if recorder is not None:
            try:
                lane: ThreadLane = recorder.own.lane
            except AttributeError:
                lane = recorder.lane()
            self._lanes.append((lane, lane.entered(self.name, self.enter)))
        return self

    def __exit__(self, *_: object) -> None:
        lanes = self._lanes
        if not lanes:
            return
        here = get_ident()
        lane, frame = lanes.pop()
        if lane.thread != here:  # several threads are in it
            lanes.append((lane, frame))
            mine = (k for k in reversed(range(len(lanes))) if lanes[k][0].thread == here)
            lane, frame = lanes.pop(next(mine, -1))
        lane.left(frame)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, which is in it while it runs; a generator or a coroutine while that is open.

        Raises:
            OptionError: it is an asynchronous generator.
        """
        cls, name = type(self), self.name
        if inspect.isasyncgenfunction(function):
            raise OptionError(
                f"{function.__qualname__} is an asynchronous generator, which cannot be decorated.",
                hint=f"write `with trl.scope.{cls.__name__}({name!r}):` inside of it.",
            )
        if inspect.iscoroutinefunction(function):

            async def waiting(*args: P.args, **named: P.kwargs) -> Any:
                with cls(name):
                    return await function(*args, **named)

            return cast("Callable[P, R]", functools.wraps(function)(waiting))
        if inspect.isgeneratorfunction(function):

            def yielding(*args: P.args, **named: P.kwargs) -> Any:
                with cls(name):
                    return (yield from function(*args, **named))

            return cast("Callable[P, R]", functools.wraps(function)(yielding))

        @functools.wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            with cls(name):
                return function(*args, **named)

        return call


class operation(_Named):
    """What the program does, in its user's words: `with operation("inference"):`, or a decorator.

    Operations nest, also in themselves; nothing is done where nothing is recorded (RL-Scope, paper 002,
    section 3.1).
    """

    enter = Kind.OPERATION_ENTER


class phase(_Named):
    """A stage of training, around operations (RL-Scope, paper 002, section 3.1)."""

    enter = Kind.PHASE_ENTER


Timed = Callable[["ThreadLane"], None]
Stepped = Callable[["ThreadLane", Kind], None]


def begin(
    folder: Path, *, parent: int | None = None, timed: Timed | None = None, drawn: bool = True
) -> None:
    """Begin a recording into a folder; one at a time in a process.

    Args:
        parent: the process whose recording this one joins; None where it begins one.
        timed: times what is recorded in a tight loop, now and then; with it, blocks are silent at random, so
            that a calibration can be made.
        drawn: whether they are, or are all recorded.

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
                hint="end it first; operations and phases may be nested, recordings may not.",
            )
        _go_on(_Recorder(folder, parent, timed=timed, drawn=drawn))


def make_fresh(folder: Path) -> None:
    """Make a folder to record into, if need be.

    Raises:
        ExecutionError: it cannot be made, or holds a recording.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(folder, error) from error
    if any(MANIFEST.fullmatch(path.name) for path in folder.iterdir()):
        raise ExecutionError(
            f"{folder} holds a recording.", hint="name another folder, or remove it."
        )


def _not_written(folder: Path, error: OSError) -> ExecutionError:
    return ExecutionError(
        f"nothing can be recorded into {folder}: {error.strerror or error}.",
        hint="name a folder that can be written.",
    )


def each_step(told: Stepped) -> None:
    """Have somebody be told where a thread's outermost phase or operation ends, and by what edge."""
    if _now is not None:
        _now.stepped = told


def end() -> None:
    """End the recording that goes on."""
    global _now
    with _SWITCH:
        recorder, _now = _now, None  # in a forked child its own
        native.module.stop()
    if recorder is not None:
        recorder.end()


def _go_on(recorder: _Recorder) -> None:
    """From here on a recorder is that of this process; what is known of this thread begins."""
    global _now
    _now = recorder
    native.module.start(_installed, recorder.top)
    recorder.lane().begin()


def _installed() -> None:
    """A tap of this thread asks for its lane."""
    lane = this_lane()
    if lane is not None:
        lane.install()


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


class Frame:
    """Something that was entered, and is on its lane's stack until what is above it has been left, too."""

    __slots__ = ("is_left", "kind", "name", "top")

    def __init__(self, name: str, leave: Kind, top: int) -> None:
        self.name, self.kind, self.top, self.is_left = name, leave, top, False


class ThreadLane:
    """A thread's stacks, and where its edges go."""

    def __init__(self, recorder: _Recorder) -> None:
        self.recorder, self.thread = recorder, get_ident()
        self.number = threading.get_native_id()
        segments = Segments(recorder.folder / f"{recorder.process}-{self.number}")
        self.writer: Any = native.module.Lane(functools.partial(recorder.segment, segments))
        self.install()
        # by half of a kind: to look an enum up in a dictionary calls Python
        self._stacks: tuple[list[Frame], ...] = tuple([] for _ in range(Kind.PHASE_EXIT))
        self._hidden = 0  # operations that are open, and not recorded
        self._blocks = None if recorder.asked is None else Blocks(self.number, drawn=recorder.drawn)
        called = thread.name[:LONGEST] if (thread := known_thread()) else ""
        recorder.say({"thread": self.number, "called": called})

    @property
    def silent(self) -> bool:
        """Whether calls and operations are not recorded now."""
        return self.writer.silent

    def silence(self, silent: bool) -> None:
        """Record no calls and operations from now on, or do so again, while none is open."""
        self.put(0, Kind.OFF if silent else Kind.ON, 0)
        self.writer.silent = silent

    @contextmanager
    def aside(self, segments: Callable[[], mmap.mmap]) -> Iterator[None]:
        """Meanwhile what is recorded of the thread, of which nothing is open, goes elsewhere."""
        writer, blocks = self.writer, self._blocks
        self.writer = type(writer)(segments)
        if blocks is not None:  # they count, which costs, and none of them ends
            self._blocks = Blocks(0, size=sys.maxsize)
        self.install()
        try:
            yield
        finally:
            self.writer, self._blocks = writer, blocks
            self.install()

    def begin(self) -> None:
        """What is known of the thread begins now."""
        self.put(0, Kind.MARK, 0)

    def mark(self, name: str) -> None:
        """Something happens now."""
        self.put(self.recorder.number(name), Kind.MARK, 0)

    def is_in(self, leave: Kind) -> bool:
        """Whether some operation is open, or some phase, by what leaves one."""
        return bool(self._stacks[leave >> 1]) or (leave is _OPERATION and self._hidden > 0)

    @property
    def library(self) -> int:
        """The one on top of the calls."""
        return self.writer.library

    def called(self, top: int, ts: int = 0) -> None:
        """A library is called, `top >> NAME_BITS`, be it at a moment since the last edge."""
        if not (self.writer.silent or self.recorder.failed):
            self.writer.called(top, ts)

    def returned(self) -> None:
        """What was called last has returned."""
        recorder = self.recorder
        if recorder is _now and not recorder.failed:  # else it has ended, or is another process's
            self.writer.returned()

    def entered(self, name: str, enter: Kind, point: Sequence[int] = ()) -> Frame | str:
        """An operation or a phase is entered; of one that is not recorded now its name is enough."""
        leave, stack = _LEAVE[enter], self._stacks[enter >> 1]
        if leave is _OPERATION and self.writer.silent:  # phases are always written
            self._hidden += 1
            self.writer.inside = True
            return name
        frame = Frame(name, leave, self.recorder.number(name))
        stack.append(frame)
        if leave is _OPERATION:
            self.writer.inside = True
        self.put(frame.top, enter, len(stack))
        for k, coordinate in enumerate(point):
            self.put(coordinate & 0xFFFFFFFF, Kind.POINT, k)
        return frame

    def left(self, frame: Frame | str) -> None:
        """What was entered is left, in the lane's thread or in another one."""
        recorder = self.recorder
        if recorder is not _now:  # it has ended, or is another process's
            return
        is_here = get_ident() == self.thread
        if isinstance(frame, str):
            name, kind = frame, _OPERATION
            self._hidden -= 1
            if not is_here:
                self.writer.inside = self.is_in(_OPERATION)
                return
        else:
            name, kind, stack = frame.name, frame.kind, self._stacks[frame.kind >> 1]
            frame.is_left = True
            if not is_here or (stack and stack[-1] is not frame):
                recorder.lane().mark(f"{INTERLEAVED}{name}")
                return
            while stack and stack[-1].is_left:
                stack.pop()
                self.put(stack[-1].top if stack else 0, kind, len(stack))
            if stack:
                return
        if kind is _OPERATION and self._hidden:
            return
        if kind is _OPERATION:
            self.writer.inside = False
            if self._blocks is not None:
                self._blocks.ended(self, name)
        if recorder.stepped is not None:
            recorder.stepped(self, kind)

    def install(self) -> None:
        """Have taps of this thread write here."""
        self.writer.install()

    def put(self, top: int, kind: Kind, depth: int) -> None:
        if not self.recorder.failed:
            self.writer.put(top, kind, depth)


class _Recorder:
    """What is written while it goes on.

    Args:
        parent: the process whose recording this one joins; None where it begins one.
        thread: the one of it that forked this process; 0 where it was made otherwise.
        timed, drawn: see `begin`.

    Attributes:
        asked: what times tight loops.
        stepped: see `each_step`.
    """

    def __init__(
        self,
        folder: Path,
        parent: int | None = None,
        thread: int = 0,
        *,
        timed: Timed | None = None,
        drawn: bool = True,
    ) -> None:
        self.folder, self.process, self.failed = folder, os.getpid(), False
        self.drawn = drawn
        self.asked = timed
        self._made_by = (os.getppid() if parent is None else parent), thread
        self.stepped: Stepped | None = None
        self.own = threading.local()
        self._begin = clocks()
        if parent is None:
            make_fresh(folder)
        try:
            self.names = NameTable(folder / f"{self.process}.names")
            try:
                write_manifest(folder, _kind(), self._made_by, self._begin)
            except OSError:
                self.names.remove()
                raise
        except OSError as error:
            raise _not_written(folder, error) from error

    def lane(self) -> ThreadLane:
        """That of the thread that asks."""
        found: ThreadLane | None = getattr(self.own, "lane", None)
        if found is None:
            found = self.own.lane = ThreadLane(self)
        return found

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

    def top(self, library: Library, name: str) -> int:
        """What an edge says of a call."""
        return library << NAME_BITS | self.number(name)

    def say(self, line: Mapping[str, Any]) -> None:
        """Say something else of the process: see `NameTable.say`."""
        try:
            self.names.say(line)
        except OSError as error:
            self.fail(error)

    def say_costs(self, costs: Mapping[str, float]) -> None:
        """Say what was timed in a tight loop."""
        self.say({"costs": dict(costs)})

    def fail(self, error: OSError) -> None:
        """Record no more; the program goes on."""
        if not self.failed:
            self.failed = True
            native.module.stop()
            warn(f"recording into {self.folder} has stopped: {error.strerror or error}.")

    def end(self) -> None:
        try:
            alive = [one.native_id for one in threading.enumerate() if one.native_id is not None]
            write_manifest(self.folder, _kind(), self._made_by, self._begin, clocks(), alive)
        except FileNotFoundError:  # it has been read, and thrown away: nobody asks
            self.failed = True
        except OSError as error:
            self.fail(error)


def _kind() -> str:
    return "python" if native.module is pure else "c"


def _forked() -> None:
    """A child writes files of its own; what its parent had open when it was made is not open in it."""
    global _now, _SWITCH
    _SWITCH = threading.Lock()
    if _now is not None:
        before, _now = _now, None
        native.module.stop()
        forking: ThreadLane | None = getattr(before.own, "lane", None)
        thread = 0 if forking is None else forking.number
        try:
            made_by = before.folder, before.process, thread
            _go_on(_Recorder(*made_by, timed=before.asked, drawn=before.drawn))
        except ExecutionError as error:
            warn(f"a child process is not recorded: {error.what}")


_SWITCH = threading.Lock()
_now: _Recorder | None = None
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
