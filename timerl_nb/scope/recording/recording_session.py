"""Recording session of a process: the context manager `trl.scope.record`."""

from __future__ import annotations

import inspect
import opcode
import os
import shutil
import sys
import tempfile
import weakref
from types import FrameType
from typing import Final

from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.scope.analysis.recording_queries import Recorded, Recording
from timerl_nb.scope.calibration.microbenchmark_cost import measure_call_costs
from timerl_nb.scope.device_activity.tracing_session import Steps
from timerl_nb.scope.recording import recorder
from timerl_nb.scope.recording.process_joining import hand_on, handed_on, take_back
from timerl_nb.scope.recording.program_launches import record_launches, stop_launches
from timerl_nb.scope.storage.recording_reader import read
from timerl_nb.scope.storage.recording_writer import Clocks, clocks
from timerl_nb.scope.wrappers.library_wrappers import Tapping

_SUSPENDED: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@explain_constructor
class record(Recorded):
    """Recording of a program's time, as a context manager.

    Child processes in Python are recorded, too, without a change to the program. A process has at
    most one open recording. After an interrupt (Ctrl-C) at the very end of the block, the recording
    may stay open. It then ends when this object is deleted, or when the next recording begins.

    Args:
        folder: folder of the recording, created if missing; must hold no recording. None for a
            temporary folder; it is deleted together with this object.
        taps: whether to wrap functions of libraries during the recording, to report their time
            separately. Launches of compiled programs are always recorded.
        calibrated: whether to disable the wrappers in random blocks of about 5 ms, between outermost
            operations, so `corrected` can estimate the overhead of recording. The first ten blocks
            are recorded, then half of the blocks are disabled; this fraction falls to 5 % in a long
            run. Calls and operations are counted in disabled blocks, too. Default: same as `taps`.
        exact: True to record all time; short for `calibrated=False`.
        devices: number of steps to trace on devices, from the second step on. A step is an
            outermost phase, or an outermost operation before the first phase. See `devices`.

    Raises:
        OptionError: `devices` is not a number of steps; `exact` and `calibrated` are both True.
        ExecutionError: on entry: the folder cannot be written or holds a recording, or another
            recording is open.

    Example:
        >>> with trl.scope.record() as recording:
        ...     with trl.scope.operation("inference"):
        ...         total = sum(range(100))
        >>> len(recording.read().processes)
        1
        >>> ("inference", "python") in recording.table().by("operation", "library")
        True
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        taps: bool = True,
        calibrated: bool | None = None,
        exact: bool = False,
        devices: int = 0,
    ) -> None:
        if exact and calibrated:
            raise OptionError(
                "exact=True records all blocks, but calibrated=True leaves some out.",
                hint="remove one of the two arguments.",
            )
        self._steps = Steps(devices)
        self._owner = (
            object()
            # a separate object: timelines refer to it, and must not keep this object and its temporary
            # folder alive
        )
        if folder is None:
            folder = tempfile.mkdtemp(prefix="timerl-scope-")
            weakref.finalize(self, _remove_folder, folder, os.getpid())
        self.folder = user_path(folder).absolute()  # the program may change its working directory
        self._taps, self._tapping = taps, Tapping(taps)
        self._calibrated = (taps and not exact) if calibrated is None else calibrated
        self._before: dict[str, str | None] = {}
        self._frame: FrameType | None = None

    def __enter__(self) -> record:
        _end_abandoned()
        self._before = handed_on()
        try:
            self._frame = _frame_of_with(sys._getframe(1))
            self._begin()
            return self
        except BaseException:  # also an interrupt
            self._end(clocks())
            raise

    def _begin(self) -> None:
        clock = measure_call_costs if self._calibrated else None
        global _open
        recorder.begin(self.folder, timed=clock, at_once=False, owner=self._owner)
        _open = weakref.ref(self)
        asked = {"devices": self._steps.count, "calibrated": self._calibrated}
        hand_on(self.folder, taps=self._taps, **asked)
        self._steps.begin()
        record_launches()
        self._tapping.install()
        recorder.begin_lane()

    def __exit__(self, *_: object) -> None:
        try:
            self._end(clocks())
        except BaseException:  # an interrupt: every step of `_end` may run twice
            self._end(clocks())
            raise

    def _end(self, at: Clocks) -> None:
        """Undo `_begin`, also after only a part of it has run."""
        if recorder.is_owned_by(self._owner):
            self._tapping.remove()
            stop_launches()
            take_back(self._before)
            self._steps.end()
            recorder.end(at, self._owner)
        self._frame = None

    def __del__(self) -> None:
        if getattr(self, "_frame", None) is not None and not sys.is_finalizing():
            record.__exit__(self)  # an interrupt came before `__exit__`

    def read(self) -> Recording:
        """Return the recorded data, up to now if the recording is still open."""
        return read(self.folder)


def _remove_folder(folder: str, maker: int) -> None:
    """Remove a temporary folder, but not in a forked child."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


_open: weakref.ref[record] | None = None  # open recording of this process


def _frame_of_with(caller: FrameType) -> FrameType | None:
    """Return the frame of the calling `with` statement, or None for another caller.

    `ExitStack` is another caller: it returns before the recording ends. A generator is treated as
    another caller, too, because it may be suspended inside of the block.
    """
    code = caller.f_code
    name = opcode.opname[code.co_code[caller.f_lasti]] if caller.f_lasti >= 0 else ""
    return caller if name == "BEFORE_WITH" and not code.co_flags & _SUSPENDED else None


def _end_abandoned() -> None:
    """End the open recording if the program has left its `with` block.

    An interrupt before the first line of `__exit__` leaves a recording open.
    """
    one = None if _open is None else _open()
    if one is None or one._frame is None:
        return
    for frame in sys._current_frames().values():
        at: FrameType | None = frame
        while at is not None:
            if at is one._frame:
                return
            at = at.f_back
    one._end(clocks())
