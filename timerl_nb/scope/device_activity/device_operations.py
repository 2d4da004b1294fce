"""Device operations (kernels, copies, memory sets) of a recording, and their launches.

Tracers slow down the traced code, so devices are traced in time windows only. Outside of windows
nothing is known about devices.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.text_formatting import format_ns_as_ms
from timerl_nb.scope.storage.event_format import Library

# A device operation, and a call of a device's interface. Times are in nanoseconds, after alignment
# of CLOCK_MONOTONIC. A correlation or thread of 0 is unknown.
_MOMENTS: Final = [("begin", "<i8"), ("end", "<i8"), ("correlation", "<i8")]
RAN: Final = np.dtype(
    [*_MOMENTS, ("stream", "<i8"), ("name", "<u4"), ("device", "<u2"), ("sort", "<u2")]
)
CALLED: Final = np.dtype([*_MOMENTS, ("thread", "<u4"), ("name", "<u4")])


class Sort(IntEnum):
    """Kind of a device operation."""

    KERNEL = 0
    COPY = 1
    SET = 2  # memory set


@dataclass(frozen=True)
class TracedWindow:
    """Time window with a trace of one process's devices, and the accuracy of its clock.

    Args:
        process: id of the process.
        tracer: name of the tracer.
        begin, end: nanoseconds of CLOCK_MONOTONIC.
        devices: names by number; empty without devices.
        absent: reason for a window without devices, or "".
        drift: corrected drift of the tracer's clock in nanoseconds; None if unknown.
        width: accuracy of the clock comparison in nanoseconds.
        early, earliest: number of operations with a start before their launch, and the largest such
            difference in nanoseconds.
        nested: calls inside of another interface call.
        misfits: calls left out because of a contradiction to their thread's timeline.
        elsewhere: calls of unrecorded threads, or in unrecorded time.
    """

    process: int
    tracer: str
    begin: int
    end: int
    devices: tuple[str, ...]
    absent: str
    drift: int | None
    width: int
    early: int = 0
    earliest: int = 0
    nested: int = 0
    misfits: int = 0
    elsewhere: int = 0

    def __str__(self) -> str:
        where = f"process {self.process}, {self.tracer}"
        if not self.devices:
            return f"{where}: {self.absent or 'no device'}"
        clock = "of unknown drift" if self.drift is None else f"drifted {self.drift:,} ns"
        parts = [
            f"{format_ns_as_ms(self.end - self.begin)} ms of {', '.join(self.devices)}",
            f"clock accurate to {self.width:,} ns, {clock}",
        ]
        if self.early:
            parts.append(
                f"began before their launch: {self.early:,}, by up to {self.earliest:,} ns"
            )
        if self.misfits:
            parts.append(f"contradictory calls left out: {self.misfits:,}")
        if self.elsewhere:
            parts.append(f"calls in unrecorded threads or times: {self.elsewhere:,}")
        return f"{where}: {'; '.join(parts)}"


@dataclass(frozen=True, eq=False)
class Devices:
    """Device operations of a recording; one row per operation in order of `begin`.

    Attributes:
        begin, end: nanoseconds of CLOCK_MONOTONIC.
        name: number in the recording's name table.
        device, stream: numbers from the tracer, per process.
        sort: kind of the operation; see `Sort`.
        process: id of the process.
        correlation: the tracer's id of the launch, per window; 0 for none.
        window: index of the traced window.
        lane: index of the launching thread's timeline; -1 if unknown.
        launched: start of the launching call; -1 if unknown.
        windows: traced windows, including windows without devices.
    """

    begin: Array
    end: Array
    name: Array
    device: Array
    stream: Array
    sort: Array
    process: Array
    correlation: Array
    window: Array
    lane: Array
    launched: Array
    windows: tuple[TracedWindow, ...] = ()

    @classmethod
    def empty(cls, windows: tuple[TracedWindow, ...] = ()) -> Devices:
        """Return no operations, with some traced windows."""
        none = np.zeros(0, np.int64)
        columns = {one.name: none for one in fields(cls) if one.name != "windows"}
        return cls(**columns, windows=windows)

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def traced_windows(self) -> tuple[TracedWindow, ...]:
        """Windows with at least one device."""
        return tuple(one for one in self.windows if one.devices)

    def __str__(self) -> str:
        if not self.traced_windows:
            said = [str(one) for one in self.windows] or ["no device was traced"]
            return "\n".join(["devices: no data", *(f"  {one}" for one in said)])
        lines = [
            f"devices: kernels and copies: {len(self):,}, windows: {len(self.traced_windows):,}"
        ]
        return "\n".join([*lines, *(f"  {one}" for one in self.windows)])


def library_of(name: str) -> Library:
    """Return the category of an interface call by its name; synchronization counts as waiting."""
    return Library.WAITING if "Synchronize" in name else Library.API
