"""What a device ran over a stretch of time, in as many columns as lanes have: by sort, and where nobody looked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.scope.analysis.time_breakdown import seen_of
from timerl_nb.scope.device_activity.busy_time import Busy
from timerl_nb.scope.device_activity.device_operations import Devices, Sort

SORTS: Final = (*(one.name.lower() for one in Sort), "untraced")


@dataclass(frozen=True, eq=False)
class Ran:
    """What ran on a device in a stretch, in order of `begin`.

    Attributes:
        begin, end: nanoseconds since the recording began; some overlap, on several streams.
        name: a number in the recording's names.
        lane: a number in the recording's lanes, of the thread that launched it; -1 where that is not known.
        launched: when, in nanoseconds since the recording began.
    """

    begin: Array
    end: Array
    name: Array
    lane: Array
    launched: Array


class DeviceSums:
    """The running sums of one device, as one process had it traced.

    Args:
        origin: the moment that counts as 0.

    Attributes:
        process, number: whose it is, and which.
        ran: the rows of `devices` that are its own.
        looked: nanoseconds in which anybody looked.
        busy: of these, in which something ran.
    """

    def __init__(self, devices: Devices, process: int, number: int, origin: int) -> None:
        self.process, self.number = process, number
        which = (devices.process == process) & (devices.device == number)
        parts, self._looked = seen_of(devices, which, process, parts=True)
        sort = devices.sort[parts.of_which]
        self._parts = [
            Busy(parts.begin[some], parts.end[some], parts.of_which[some])
            for some in (sort == one for one in Sort)
        ]
        self._devices, self.ran, self._origin = devices, np.flatnonzero(which), origin
        self._begin = devices.begin[self.ran]
        self._reach = np.maximum.accumulate(devices.end[self.ran])
        self.looked, self.busy = (int((x.end - x.begin).sum()) for x in (self._looked, parts))

    def __len__(self) -> int:
        return len(self.ran)

    def busy_fractions(self, moments: Array) -> Array:
        """How much of what lies between each two moments each of `SORTS` has: 255 is all, and 0 none at all.

        Of what runs at once on several streams, what began first counts.
        """
        at = moments + self._origin
        wide = np.diff(at)
        ran = [np.diff(one.busy_before(at)) for one in self._parts]
        spent = np.array([*ran, wide - np.diff(self._looked.busy_before(at))])
        share = np.rint(spent / np.maximum(wide, 1) * 255).astype(np.uint8)
        return np.maximum(share, spent > 0).ravel()

    def operations_between(self, begin: float, end: float, most: int) -> Ran:
        """What ran from one moment to another; nothing where it is more than `most`."""
        first = int(np.searchsorted(self._reach, begin + self._origin, side="right"))
        last = int(np.searchsorted(self._begin, end + self._origin))
        devices, origin, rows = self._devices, self._origin, self.ran[first:last]
        rows = rows[devices.end[rows] > begin + origin]
        if len(rows) > most:
            rows = rows[:0]
        times = devices.begin[rows] - origin, devices.end[rows] - origin
        return Ran(*times, devices.name[rows], devices.lane[rows], devices.launched[rows] - origin)
