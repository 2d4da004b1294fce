"""Recording of compiled programs: iterations of the outermost loop and kernel launches."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final

from timerl_nb.base.runtime_events import Event
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program_hooks import ProgramObserver, add_observer, remove_observer
from timerl_nb.driver.program_runs.run_observation import Names
from timerl_nb.scope.recording.annotations import operation, phase
from timerl_nb.scope.recording.recorder import ThreadLane, this_lane
from timerl_nb.scope.storage.event_format import NAME_BITS, Kind, Library
from timerl_nb.scope.wrappers.function_wrappers import is_tap

TURN: Final = "turn"
WAIT: Final = "wait for the device"


class Launches:
    """Observer of a program run: records each launch as a call on the timeline of the thread.

    If no phase is open, every iteration of the outermost loop is recorded as a phase. If no
    operation is open, every launch is recorded as an operation.
    """

    def __init__(self, program: Compilation) -> None:
        self._names, self._tops = Names(program), dict[str, int]()
        self._lane: ThreadLane | None = None
        self._turn: phase | None = None
        self._runs: operation | None = None
        self._is_called = False

    def __call__(self, event: Event) -> None:
        lane = self._lane
        if lane is None or lane is not this_lane():
            # a run begins, or the recording has been replaced: drop open entries of the previous
            # recording
            lane = self._lane = this_lane()
            self._turn, self._runs, self._is_called = None, None, False
        if lane is None:
            return
        if event.kind == "execute":
            self._end(lane)  # an event without computation has no "done" event
            self._begin(lane, event.name, event.point)
        elif event.kind in ("launch", "done"):
            self._end(lane)
        elif event.kind == "wait" and not is_tap(sys.modules["jax"].block_until_ready):
            # a wrapped `block_until_ready` has recorded this wait, and an earlier time must not
            # follow a later one
            begun = time.monotonic_ns() - round(event.seconds * 1e9)
            lane.called(lane.recorder.top_of_call(Library.WAITING, WAIT), begun)
            lane.returned()
        elif event.kind == "end":
            self.on_turn()

    def on_turn(self, count: int = 1) -> None:
        """End an iteration, or a block of `count` iterations in one launch."""
        if (lane := self._lane) is not None:
            self._end(lane)
            if self._turn is not None:
                self._turn.__exit__()
            self._turn = None

    def _begin(self, lane: ThreadLane, name: str, point: Sequence[int]) -> None:
        if name not in self._tops:
            library = Library.PYTHON if self._names.sort(name) == "host" else Library.BACKEND
            self._tops[name] = lane.recorder.top_of_call(library, name)
            lane.recorder.add_line({"launch": name, "op_ids": list(self._names.op_ids(name))})
        if self._turn is None and not lane.phases:
            self._turn = phase(TURN).__enter__()
        if not lane.operations:
            self._runs = operation(name).__enter__()
            for k, coordinate in enumerate(() if lane.silent else point):
                lane.put(coordinate & 0xFFFFFFFF, Kind.POINT, k)
        self._is_called = self._tops[name] >> NAME_BITS != Library.PYTHON
        if self._is_called:
            lane.called(self._tops[name])

    def _end(self, lane: ThreadLane) -> None:
        if self._is_called:
            lane.returned()
        if self._runs is not None:
            self._runs.__exit__()
        self._runs, self._is_called = None, False


class _LaunchObserver(ProgramObserver):
    """Observer of all programs; creates a listener for every run."""

    def listener(self, compiled: Compilation) -> Launches:
        return Launches(compiled)


_OBSERVER: Final = _LaunchObserver()


def record_launches() -> None:
    """Record the launches of all runs during recordings."""
    add_observer(_OBSERVER)


def stop_launches() -> None:
    """Stop recording launches of later runs."""
    remove_observer(_OBSERVER)
