"""Activity of a device in a time window, downsampled to the columns of a timeline."""

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
    """Device operations in a time window, in order of `begin`.

    Attributes:
        begin, end: nanoseconds since the start of the recording; operations on several streams overlap.
        name: index into the recording's names.
        lane: index of the launching thread's track; -1 if unknown.
        launched: time of the launch, in nanoseconds since the start of the recording.
    """

    begin: Array
    end: Array
    name: Array
    lane: Array
    launched: Array


class DeviceSums:
    """Prefix sums of one device's activity, as traced by one process.

    Args:
        origin: the time that counts as 0.

    Attributes:
        process, number: the process, and the number of the device.
        ran: the device's rows in `devices`.
        looked: traced nanoseconds.
        busy: nanoseconds of these in which an operation ran.
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
        """Return the fraction of each of `SORTS` between consecutive moments, from 0 to 255; positive fractions
        are at least 1.

        Of overlapping operations on several streams, the first one counts.
        """
        at = moments + self._origin
        wide = np.diff(at)
        ran = [np.diff(one.busy_before(at)) for one in self._parts]
        spent = np.array([*ran, wide - np.diff(self._looked.busy_before(at))])
        share = np.rint(spent / np.maximum(wide, 1) * 255).astype(np.uint8)
        return np.maximum(share, spent > 0).ravel()

    def operations_between(self, begin: float, end: float, most: int) -> Ran:
        """Return the operations between two moments; none if there are more than `most`."""
        first = int(np.searchsorted(self._reach, begin + self._origin, side="right"))
        last = int(np.searchsorted(self._begin, end + self._origin))
        devices, origin, rows = self._devices, self._origin, self.ran[first:last]
        rows = rows[devices.end[rows] > begin + origin]
        if len(rows) > most:
            rows = rows[:0]
        times = devices.begin[rows] - origin, devices.end[rows] - origin
        return Ran(*times, devices.name[rows], devices.lane[rows], devices.launched[rows] - origin)
