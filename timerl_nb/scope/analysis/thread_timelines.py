"""Contents of a recording: a lane of edges for each thread, operations of devices, and names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from timerl_nb.base.errors import CallError
from timerl_nb.scope.device_activity.device_operations import Devices

BLOCKED: Final = "blocked"  # the name of a wait seen by no wrapper: the thread had no processor, and did not need one


@dataclass(frozen=True, eq=False)
class Lane:
    """The edges of one thread, in time.

    Args:
        process: its id.
        thread: the kernel's id of it.
        name: what Python calls the thread, or "".
        edges: of `edges.EDGE`, sorted by `ts`.
        end: nanoseconds of CLOCK_MONOTONIC up to which the lane is known; not before the last edge.
        traced: numbers of the edges that are no wrapper's, but of calls that a tracer of devices saw; sorted.
        missed: how often calls and operations happened in disabled blocks, by the operation, the library left (or
            `MISSED_OPERATION` of the operation itself) and the library entered.
        blocked: begins and ends of waits that no wrapper saw; `waits.with_waits` makes calls of them.
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
    """A process that was recorded.

    Args:
        number, parent: ids of it, and of the one that made it.
        forked_by: the thread of its parent that forked it; 0 where it was made otherwise.
        command: its words.
        begin, end: nanoseconds of CLOCK_MONOTONIC; None where its end was not recorded.
        cpu: nanoseconds of CPU time that it spent meanwhile; None where its end was not recorded.
        made_by: the recorder, Python, the machine and versions of libraries, as far as they are known.
        costs: nanoseconds that recording takes in a tight loop (`tight_loop`), where a calibration was asked for.
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


@dataclass(frozen=True, eq=False)
class Lanes:
    """Lanes of all processes under one table of names: `names[top & 0xFFFFFF]`; name 0 is "" (nothing).

    Args:
        processes: in the order in which they began.
        op_ids: of the names that are launches of a compiled program, its operations that run there.
        devices: what ran on devices while somebody looked.
    """

    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    op_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()
    devices: Devices = field(default_factory=Devices.empty)


class Readable(ABC):
    """An object with a recording."""

    @abstractmethod
    def read(self) -> Lanes:
        """Read the recording, up to now if it goes on."""


def lanes_of(given: object) -> Lanes:
    """Return the recording of an argument, which may also be the object returned by `record`.

    Raises:
        CallError: it is none.
    """
    if isinstance(given, Lanes):
        return given
    if isinstance(given, Readable):
        return given.read()
    raise CallError(
        f"{given!r} is no recording.", hint="give what trl.scope.record or trl.scope.read returns."
    )
