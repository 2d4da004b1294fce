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
from timerl_nb.scope.edges import Kind, Library
from timerl_nb.scope.recorder import Frame, record, this_lane

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
    with record(folder) as rec, _Launches(program) as launches:
        observed(program, seed, turns, launches, launches.turned, waits=False)
    return rec


class _Launches:
    """Writes the events of a run into its thread's lane: a phase is a turn, an operation a launch."""

    def __init__(self, program: Program) -> None:
        self._names, self._known = Names(program), set[str]()
        self._open: list[Frame] = []  # the turn; in it what runs, and the call that it makes

    def __enter__(self) -> _Launches:
        lane = this_lane()
        assert lane is not None
        self._lane = lane
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(0)

    def __call__(self, event: Event) -> None:
        if event.kind == "execute":
            self._leave(1)  # what computes nothing has no end of its own
            self._begin(event.name, event.point)
        elif event.kind in ("launch", "done"):
            self._leave(1)
        elif event.kind == "wait":
            now = time.monotonic_ns()
            begun = now - round(event.seconds * 1e9)
            waited = self._lane.entered(WAIT, Kind.CALL_ENTER, Library.WAITING, ts=begun)
            self._lane.left(waited)

    def turned(self, run: RunProtocol, count: int) -> None:
        """The turn that goes on has ended, or several of them, which were one launch."""
        self._leave(0)

    def _begin(self, name: str, point: Sequence[int]) -> None:
        lane, is_on_host = self._lane, self._names.sort(name) == "host"
        if name not in self._known:
            self._known.add(name)
            lane.recorder.launch(name, self._names.op_ids(name))
        if not self._open:
            self._open.append(lane.entered(TURN, Kind.PHASE_ENTER))
        self._open.append(lane.entered(name, Kind.OPERATION_ENTER, point=point))
        if not is_on_host:
            self._open.append(lane.entered(name, Kind.CALL_ENTER, Library.BACKEND))

    def _leave(self, depth: int) -> None:
        while len(self._open) > depth:
            self._lane.left(self._open.pop())


register_entry_point("scope", scope)
