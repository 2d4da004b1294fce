"""A recording, from its beginning to its end: `trl.scope.record(folder)`."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

from timerl_nb.driver.onlooker import listen
from timerl_nb.scope import recorder
from timerl_nb.scope.joining import hand_on, take_back
from timerl_nb.scope.launches import heard
from timerl_nb.scope.libraries import Tapping
from timerl_nb.scope.reading import read
from timerl_nb.scope.recording import Recorded, Recording
from timerl_nb.scope.tight_loop import timed
from timerl_nb.scope.tracing import Steps
from timerl_nb.scope.writing import clocks


class record(Recorded):
    """Record into a folder, as a context manager; one recording at a time in a process.

    Python processes that are started meanwhile, however they are, are recorded with it.

    Args:
        folder: is made if need be; must hold no recording. None for a temporary one, which goes when
            nobody holds the record any more.
        taps: whether to tell libraries apart: their functions are tapped meanwhile. Launches of
            compiled programs are always told.
        calibrated: whether blocks of some 5 ms, between outermost operations, are left out at random, so that
            `corrected` can say what recording added: half of 40 to 200 of them, from the eleventh on, and
            5 % later. By default where there are taps.
        devices: in so many steps devices are traced, if there are any, from the second step on: outermost
            phases, or, as long as there was none, outermost operations. See `devices`.

    Raises:
        OptionError: `devices` is no number of steps.
        ExecutionError: as it begins: the folder cannot be written, or holds a recording, or one goes on.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        taps: bool = True,
        calibrated: bool | None = None,
        devices: int = 0,
    ) -> None:
        self._steps = Steps(devices)
        if folder is None:
            folder = tempfile.mkdtemp(prefix="timerl-scope-")
            weakref.finalize(self, _removed, folder, os.getpid())
        self.folder = Path(folder)
        self._tapping = Tapping() if taps else None
        self._calibrated = taps if calibrated is None else calibrated
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> record:
        clock = timed if self._calibrated else None
        recorder.begin(self.folder, timed=clock, at_once=False)
        taps, devices = self._tapping is not None, self._steps.count
        self._before = hand_on(self.folder, taps=taps, devices=devices, calibrated=self._calibrated)
        self._steps.begin()
        heard()
        if self._tapping is not None:
            self._tapping.on()
        recorder.begin_lane()
        return self

    def __exit__(self, *_: object) -> None:
        ended = clocks()
        if self._tapping is not None:
            self._tapping.off()
        listen(None)
        take_back(self._before)
        self._steps.end()
        recorder.end(ended)

    def read(self) -> Recording:
        """What was recorded, so far or in all."""
        return read(self.folder)


def _removed(folder: str, maker: int) -> None:
    """Remove a temporary folder, which is not a forked child's."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)
