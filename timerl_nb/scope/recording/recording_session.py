"""A recording, from its beginning to its end: `trl.scope.record(folder)`."""

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


class record(Recorded):
    """Record into a folder, as a context manager; one recording at a time in a process.

    Python processes that are started meanwhile, however they are, are recorded with it.

    An interrupt (Ctrl-C) at the very end of the block may leave the recording open. It then ends with this
    object, or as the next recording begins.

    Args:
        folder: is made if need be; must hold no recording. None for a temporary one, which goes when
            nobody holds the record any more.
        taps: whether to tell libraries apart: their functions are wrapped during the recording. Launches of
            compiled programs are always recorded.
        calibrated: whether to disable wrappers in some blocks of about 5 ms, between outermost operations, so that
            `corrected` can say what recording added. They are chosen at random: half of 40 to 200 blocks from the
            eleventh on, and 5 % later. Calls and operations are counted in them, too. By default as `taps`.
        exact: whether all time is recorded: the short form of `calibrated=False`.
        devices: in so many steps devices are traced, if there are any, from the second step on: outermost
            phases, or, as long as there was none, outermost operations. See `devices`.

    Raises:
        OptionError: `devices` is no number of steps; `exact` and `calibrated` contradict each other.
        ExecutionError: as it begins: the folder cannot be written, or holds a recording, or one goes on.
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
                "exact=True records all blocks, and calibrated=True leaves some out.",
                hint="give one of them.",
            )
        self._steps = Steps(devices)
        self._owner = (
            object()
        )  # not this object: lanes hold it, and the temporary folder goes with this
        if folder is None:
            folder = tempfile.mkdtemp(prefix="timerl-scope-")
            weakref.finalize(self, _remove_folder, folder, os.getpid())
        self.folder = user_path(folder).absolute()  # the program may change its current folder
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
        except BaseException:  # an interrupt: each step may be taken twice
            self._end(clocks())
            raise

    def _end(self, at: Clocks) -> None:
        """Undo `_begin`, or the part of it that has run."""
        if recorder.is_owned_by(self._owner):
            self._tapping.remove()
            stop_launches()
            take_back(self._before)
            self._steps.end()
            recorder.end(at, self._owner)
        self._frame = None

    def __del__(self) -> None:
        if getattr(self, "_frame", None) is not None and not sys.is_finalizing():
            record.__exit__(self)  # an interrupt came ahead of it

    def read(self) -> Recording:
        """Return the recording, so far or in all."""
        return read(self.folder)


def _remove_folder(folder: str, maker: int) -> None:
    """Remove a temporary folder, which is not a forked child's."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


_open: weakref.ref[record] | None = None  # the recording of this process


def _frame_of_with(caller: FrameType) -> FrameType | None:
    """Return the frame of a `with` statement that calls `__enter__`.

    None stands for another caller: an `ExitStack` returns while the recording goes on. The same is true
    of a generator, which may be suspended.
    """
    code = caller.f_code
    name = opcode.opname[code.co_code[caller.f_lasti]] if caller.f_lasti >= 0 else ""
    return caller if name == "BEFORE_WITH" and not code.co_flags & _SUSPENDED else None


def _end_abandoned() -> None:
    """End the open recording if its `with` block has been left.

    An interrupt ahead of the first line of `__exit__` leaves it open.
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
