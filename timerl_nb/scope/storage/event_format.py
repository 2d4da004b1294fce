"""What is recorded of a thread: a sequence of edges, each of which says what is on top of a stack from then on.

Three stacks run side by side: calls of native libraries, the user's operations, phases. An edge of 16 bytes holds
what is on top of its own stack behind it, so that nothing is paired or sorted as it is read, and what was open
when a process was killed is known. RL-Scope (paper 002, section 3.3) goes by events with a begin and an end.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

# ts: nanoseconds of CLOCK_MONOTONIC, stored last, so that 0 says "not written"; top: the library in the upper 8
# bits, the name in the lower 24; depth: of the stack behind the edge.
EDGE = np.dtype([("ts", "<u8"), ("top", "<u4"), ("kind", "<u2"), ("depth", "<u2")])
NAME_BITS = 24
NAME_MASK: Final = (1 << NAME_BITS) - 1
# What marks say: another thread or process may be woken; one has been started, or waited for, by number and name.
SENDS, STARTS, JOINS = "sends", "starts process ", "joins process "


class Kind(IntEnum):
    """What an edge changes."""

    CALL_ENTER = 0
    CALL_EXIT = 1
    OPERATION_ENTER = 2  # `top` is an operation's name, its library 0
    OPERATION_EXIT = 3
    PHASE_ENTER = 4  # `top` is a phase's name
    PHASE_EXIT = 5
    OFF = 6  # what follows was not observed, up to ON: a block that calibrates
    ON = 7
    MARK = 8  # changes nothing: a moment, of which `top` is the name
    # changes nothing: `top` is a coordinate (signed) of the point of what was entered last
    POINT = 9
    # A block, of which a calibration is made (`blocks`): what stands in these three changes nothing.
    BLOCK_ENTER = 10  # the thread's CPU time, in nanoseconds: `top`, and 16 bits more in `depth`
    BLOCK_EXIT = 11  # the same at its end
    TALLY = 12  # behind it: `top` is the name of an operation of which `depth` have ended in it
    # Changes nothing: `top` calls of wrappers (`depth` 0) or operations (1) since the last edge were not written: they
    # are of the library on top, or disabled.
    PASSED = 13
    # The next five are in files alone: reading turns them into other edges and fields of lanes.
    BLOCKED = 14  # the thread was blocked in Python up to this moment, in nanoseconds: `top`, and 16 bits more in `depth`
    ENDED = 15  # the thread has ended; `top` is the number of edges before this one
    # While calls were disabled: `top` is a library entered and the operation's name, `depth` the library left, or
    # `MISSED_OPERATION` where it counts how often the operation was entered. COUNT follows, whose `top` says how often.
    MISSED = 16
    COUNT = 17
    HANDS = 18  # this thread starts a thread or submits a task, which is number `top`
    TAKES = 19  # this thread begins with number `top`


NAMELESS: Final = (
    Kind.POINT,
    Kind.BLOCK_ENTER,
    Kind.BLOCK_EXIT,
    Kind.PASSED,
    Kind.BLOCKED,
    Kind.ENDED,
    Kind.COUNT,
    Kind.HANDS,
    Kind.TAKES,
)  # of which `top` is no name
MISSED_OPERATION: Final = 0xFFFF  # `depth` of `MISSED`
RENEWED: Final = 10_000_000  # is added to the number of a process or a thread for each earlier one of the same id
# In `top` of phases: the phase was opened by the thread that began this one, or submitted its task.
INHERITED: Final = 1 << NAME_BITS
CPU_MOST: Final = (1 << 48) - 1  # nanoseconds that fit into `top` and `depth`


class Library(IntEnum):
    """Whose code runs: what is on top of the stack of calls."""

    PYTHON = 0
    BACKEND = 1
    SIMULATION = 2
    API = 3
    WAITING = 4
