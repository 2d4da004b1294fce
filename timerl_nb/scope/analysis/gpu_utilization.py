"""GPU utilization as reported by `nvidia-smi`, and real busy time.

Source: RL-Scope, section 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timerl_nb.base.errors import OptionError
from timerl_nb.scope.analysis.thread_timelines import Lanes, Readable, lanes_of
from timerl_nb.scope.device_activity.busy_time import Busy
from timerl_nb.scope.device_activity.device_operations import Sort


@dataclass(frozen=True)
class Utilization:
    """Utilization of a device in the traced windows.

    Attributes:
        reported: fraction of sampling periods with a running kernel, as in `nvidia-smi`.
        busy: fraction of time with a running kernel.
    """

    reported: float
    busy: float


def utilization(recording: Lanes | Readable, seconds: float = 1 / 6) -> dict[int, Utilization]:
    """Return the utilization of each device by its number.

    Equal numbers in different processes count as one device. The time span is from the start of the
    first traced window to the end of the last one.

    Args:
        recording: a recording.
        seconds: sampling period; 1/6 to 1 s according to NVIDIA's documentation.

    Raises:
        OptionError: `seconds` is not positive.
    """
    if not seconds > 0:
        raise OptionError(
            f"seconds={seconds!r} is not positive.", hint="pass a positive number, such as 1/6."
        )
    recording = lanes_of(recording)
    devices, windows = recording.devices, recording.devices.traced_windows
    found: dict[int, Utilization] = {}
    if not windows:
        return found
    begin, end = min(one.begin for one in windows), max(one.end for one in windows)
    count = max(1, round((end - begin) / (seconds * 1e9)))
    moments = np.linspace(begin, end, count + 1).astype(np.int64)
    for number in range(max(len(one.devices) for one in windows)):
        mine = (devices.device == number) & (devices.sort == Sort.KERNEL)
        spent = np.diff(
            Busy.from_intervals(devices.begin[mine], devices.end[mine]).busy_before(moments)
        )
        whole = max(1, end - begin)
        found[number] = Utilization(float((spent > 0).mean()), int(spent.sum()) / whole)
    return found
