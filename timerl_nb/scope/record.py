"""A recording, from its beginning to its end: `trl.scope.record(folder)`."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

from timerl_nb.driver.onlooker import listen
from timerl_nb.errors import OptionError
from timerl_nb.files import user_path
from timerl_nb.scope import recorder
from timerl_nb.scope.joining import hand_on, handed_on, take_back
from timerl_nb.scope.launches import heard
from timerl_nb.scope.libraries import Tapping
from timerl_nb.scope.reading import read
from timerl_nb.scope.recording import Recorded, Recording
from timerl_nb.scope.tight_loop import timed
from timerl_nb.scope.tracing import Steps
from timerl_nb.scope.writing import Clocks, clocks


class record(Recorded):
    """Record into a folder, as a context manager; one recording at a time in a process.

    Python processes that are started meanwhile, however they are, are recorded with it.

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
            weakref.finalize(self, _removed, folder, os.getpid())
        self.folder = user_path(folder).absolute()  # the program may change its current folder
        self._taps, self._tapping = taps, Tapping(taps)
        self._calibrated = (taps and not exact) if calibrated is None else calibrated
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> record:
        self._before = handed_on()
        try:
            self._begin()
            return self
        except BaseException:  # also an interrupt
            self._end(clocks())
            raise

    def _begin(self) -> None:
        clock = timed if self._calibrated else None
        recorder.begin(self.folder, timed=clock, at_once=False, owner=self._owner)
        asked = {"devices": self._steps.count, "calibrated": self._calibrated}
        hand_on(self.folder, taps=self._taps, **asked)
        self._steps.begin()
        heard()
        self._tapping.on()
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
            self._tapping.off()
            listen(None)
            take_back(self._before)
            self._steps.end()
            recorder.end(at, self._owner)

    def read(self) -> Recording:
        """What was recorded, so far or in all."""
        return read(self.folder)


def _removed(folder: str, maker: int) -> None:
    """Remove a temporary folder, which is not a forked child's."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)
