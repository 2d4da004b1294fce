"""Data of a recording: event timelines of threads, operations of devices, processes and names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from timerl_nb.base.errors import CallError
from timerl_nb.scope.device_activity.clock_alignment import HostClock
from timerl_nb.scope.device_activity.device_operations import Devices
from timerl_nb.scope.storage.event_format import PER_HOST

# name of a wait outside of wrapped calls: the thread neither ran nor was in the run queue
BLOCKED: Final = "blocked"


@dataclass(frozen=True, eq=False)
class Lane:
    """Event timeline of one thread.

    Args:
        process: id of the process.
        thread: id of the thread in the system.
        name: Python's name of the thread, or "".
        edges: events with dtype `event_format.EDGE`, sorted by `ts`.
        end: end of the timeline in nanoseconds of CLOCK_MONOTONIC; not before the last event.
        traced: sorted indices of events from device traces, without overhead of a wrapper.
        missed: counts of calls and operations in disabled blocks, by operation, left library
            (`MISSED_OPERATION` for the operation itself) and entered library.
        blocked: start and end times of waits outside of wrapped calls; see `blocked_time.with_waits`.
    """

    process: int
    thread: int
    name: str
    edges: np.ndarray
    end: int
    traced: np.ndarray = field(default_factory=partial(np.zeros, 0, np.int64))
    missed: Mapping[tuple[int, int, int], int] = field(default_factory=dict)
    blocked: np.ndarray = field(default_factory=partial(np.zeros, (2, 0), np.int64))


@dataclass(frozen=True)
class Process:
    """A recorded process.

    Args:
        number, parent: ids of the process and of its parent.
        forked_by: forking thread of the parent; 0 without a fork.
        command: command line.
        begin, end: nanoseconds of CLOCK_MONOTONIC; the end is None if it was not recorded.
        cpu: nanoseconds of CPU time; None if the end was not recorded.
        made_by: recorder, Python, machine and versions of libraries, as far as known.
        costs: nanoseconds per recorded event in a tight loop; empty without `calibrated`.
        wall: nanoseconds of the wall clock at `begin`; None if unknown.
        host: name of the host, if it is not that of the recording.
    """

    number: int
    parent: int
    forked_by: int
    command: str
    begin: int
    end: int | None
    cpu: int | None = None
    made_by: Mapping[str, str] = field(default_factory=dict, hash=False)
    costs: Mapping[str, float] = field(default_factory=dict, hash=False)
    wall: int | None = None
    host: str = ""

    @property
    def label(self) -> str:
        """The id in the system, with the name of another host."""
        return f"{self.host}:{self.number % PER_HOST}" if self.host else str(self.number)


@dataclass(frozen=True, eq=False)
class Lanes:
    """Timelines of all processes with one name table.

    The name of an event is `names[top & 0xFFFFFF]`; number 0 is "" (none).

    Args:
        lanes: timelines of the threads.
        names: name table.
        op_ids: operation ids of each kernel launch, by name.
        processes: processes in order of start.
        devices: operations of devices in traced windows.
        hosts: clocks of the other hosts.
    """

    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    op_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()
    devices: Devices = field(default_factory=Devices.empty)
    hosts: tuple[HostClock, ...] = ()


class Readable(ABC):
    """Base class of objects with a recording."""

    @abstractmethod
    def read(self) -> Lanes:
        """Return the recorded data, up to now if the recording is still open."""


def lanes_of(given: object) -> Lanes:
    """Return the data of a recording, open or read from files.

    Raises:
        CallError: the argument is not a recording.
    """
    if isinstance(given, Lanes):
        return given
    if isinstance(given, Readable):
        return given.read()
    raise CallError(
        f"{given!r} is not a recording.",
        hint="pass the object of `with trl.scope.record()`, or the result of trl.scope.read.",
    )
