"""A whole run of a program, recorded as `trl.scope` records any other: `program.scope()`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final

from timerl_nb.driver.program import Program, a_program
from timerl_nb.entry_points import register_entry_point
from timerl_nb.events import Event
from timerl_nb.profiler.observed_run import Names, observed
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.scope.edges import NAME_BITS, Kind, Library
from timerl_nb.scope.record import record
from timerl_nb.scope.recorder import Frame, this_lane

TURN: Final = "turn"
WAIT: Final = "wait for the device"


def scope(
    program: Program,
    seed: int = 0,
    turns: int | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
) -> record:
    """Run a program, and record where its time goes: see `Program.scope`."""
    a_program(program)
    with record(folder, taps=False) as rec, _Launches(program) as launches:
        observed(program, seed, turns, launches, launches.turned, waits=False)
    return rec


class _Launches:
    """Writes the events of a run into its thread's lane: a phase is a turn, an operation a launch."""

    def __init__(self, program: Program) -> None:
        self._names, self._tops = Names(program), dict[str, int]()
        self._turn: Frame | None = None
        self._runs: Frame | None = None
        self._is_called = False

    def __enter__(self) -> _Launches:
        lane = this_lane()
        assert lane is not None
        self._lane = lane
        return self

    def __exit__(self, *_: object) -> None:
        self._end_turn()

    def __call__(self, event: Event) -> None:
        if event.kind == "execute":
            self._end()  # what computes nothing has no end of its own
            self._begin(event.name, event.point)
        elif event.kind in ("launch", "done"):
            self._end()
        elif event.kind == "wait":
            begun = time.monotonic_ns() - round(event.seconds * 1e9)
            self._lane.called(self._lane.recorder.top(Library.WAITING, WAIT), begun)
            self._lane.returned()

    def turned(self, run: RunProtocol, count: int) -> None:
        """A turn has ended, or several of them, which were one launch."""
        self._end_turn()

    def _begin(self, name: str, point: Sequence[int]) -> None:
        lane = self._lane
        if name not in self._tops:
            library = Library.PYTHON if self._names.sort(name) == "host" else Library.BACKEND
            self._tops[name] = lane.recorder.top(library, name)
            lane.recorder.launch(name, self._names.op_ids(name))
        if self._turn is None:
            self._turn = lane.entered(TURN, Kind.PHASE_ENTER)
        self._runs = lane.entered(name, Kind.OPERATION_ENTER, point)
        self._is_called = self._tops[name] >> NAME_BITS != Library.PYTHON
        if self._is_called:
            lane.called(self._tops[name])

    def _end(self) -> None:
        if self._is_called:
            self._lane.returned()
        if self._runs is not None:
            self._lane.left(self._runs)
        self._runs, self._is_called = None, False

    def _end_turn(self) -> None:
        self._end()
        if self._turn is not None:
            self._lane.left(self._turn)
        self._turn = None


register_entry_point("scope", scope)
