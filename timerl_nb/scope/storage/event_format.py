"""Event format of recordings: begin and end events of calls, operations and phases.

Every thread has three stacks: calls of native libraries, operations and phases. An event (16 bytes)
stores the top of its stack after the event. A reader therefore needs no pairing or sorting, and
knows the open entries of a killed process. RL-Scope (section 3.3) stores complete
intervals instead.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

# ts: nanoseconds of CLOCK_MONOTONIC, stored last; 0 marks an unwritten event. top: library (upper 8
# bits) and name (lower 24 bits). depth: stack depth after the event.
EDGE = np.dtype([("ts", "<u8"), ("top", "<u4"), ("kind", "<u2"), ("depth", "<u2")])
BLOCKS: Final = "count of blocks"  # key in `made_by`: the unit of disabled blocks
NAME_BITS = 24
NAME_MASK: Final = (1 << NAME_BITS) - 1
# Names of marks: a wake-up of another thread or process, the start of a process, a wait for its
# end.
SENDS, STARTS, JOINS = "sends", "starts process ", "joins process "


class Kind(IntEnum):
    """Kind of an event."""

    CALL_ENTER = 0
    CALL_EXIT = 1
    OPERATION_ENTER = 2  # `top` is the name of the operation, with library 0
    OPERATION_EXIT = 3
    PHASE_ENTER = 4  # `top` is the name of the phase
    PHASE_EXIT = 5
    OFF = 6  # start of a disabled block, up to ON
    ON = 7
    MARK = 8  # a point in time, named by `top`; no effect on the stacks
    # a signed coordinate (`top`) of the last launch; no effect on the stacks
    POINT = 9
    # Blocks for the calibration of overhead (see `enabled_disabled_blocks`); no effect on the
    # stacks.
    BLOCK_ENTER = 10  # CPU time of the thread in nanoseconds: 32 bits in `top`, 16 more in `depth`
    BLOCK_EXIT = 11  # same, at the end of the block
    TALLY = 12  # follows BLOCK_EXIT: operation `top` ended `depth` times in the block
    # Number (`top`) of unwritten wrapper calls (`depth` 0) or operations (`depth` 1) since the last
    # event. Such calls are nested in a call of the same library, or in a disabled block. No effect
    # on the stacks.
    PASSED = 13
    # The kinds below occur in files only; the reader converts them.
    # wait in Python code up to this time: nanoseconds in `top`, 16 more bits in `depth`
    BLOCKED = 14
    ENDED = 15  # end of the thread; `top` is the number of earlier events
    # Calls in disabled blocks: `top` has the entered library and the operation, `depth` the left
    # library, or `MISSED_OPERATION` for entries of the operation itself. The next event, COUNT, has
    # the number in `top`.
    MISSED = 16
    COUNT = 17
    HANDS = 18  # this thread starts a thread or submits a task with number `top`
    TAKES = 19  # this thread starts to run the thread or task with number `top`


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
)  # kinds without a name in `top`
MISSED_OPERATION: Final = 0xFFFF  # value of `depth` in `MISSED`
# added to the number of a process or thread for each earlier one with the same system id
RENEWED: Final = 10_000_000
# Added to the numbers of processes, once for the first other host, twice for the second; a multiple of `RENEWED`.
PER_HOST: Final = 100 * RENEWED
# Bit of `top` in phase events: the phase was opened by the parent thread or the submitter of the
# task.
INHERITED: Final = 1 << NAME_BITS
CPU_MOST: Final = (1 << 48) - 1  # largest number of nanoseconds in `top` and `depth`


class Library(IntEnum):
    """Category of the running code: the top of the call stack."""

    PYTHON = 0
    BACKEND = 1
    SIMULATION = 2
    API = 3
    WAITING = 4
