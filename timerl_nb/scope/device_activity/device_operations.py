"""What devices ran while a process was recorded, and the calls by which its threads had them run it.

Tracers see it in windows alone, since they inflate what they look at: outside of these nobody knows what devices did.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.text_formatting import format_ns_as_ms
from timerl_nb.scope.storage.event_format import Library

# What ran on a device, and a call of its programming interface: nanoseconds of CLOCK_MONOTONIC once joined; a
# correlation of 0 says that the tracer knew of none, a thread of 0 that it did not say which.
_MOMENTS: Final = [("begin", "<i8"), ("end", "<i8"), ("correlation", "<i8")]
RAN: Final = np.dtype(
    [*_MOMENTS, ("stream", "<i8"), ("name", "<u4"), ("device", "<u2"), ("sort", "<u2")]
)
CALLED: Final = np.dtype([*_MOMENTS, ("thread", "<u4"), ("name", "<u4")])


class Sort(IntEnum):
    """What ran."""

    KERNEL = 0
    COPY = 1
    SET = 2  # memory was set to a value


@dataclass(frozen=True)
class TracedWindow:
    """A time in which a tracer looked at the devices of one process, and how well its clock was joined.

    Args:
        process: its id.
        tracer: what it is called.
        begin, end: nanoseconds of CLOCK_MONOTONIC.
        devices: their names, by number; none where there were none.
        absent: why there are none, or "".
        drift: nanoseconds by which the tracer's clock went ahead of ours from one end to the other, which is
            taken off; None where it was compared at one end alone.
        width: nanoseconds within which the clocks were compared; a moment is known no better.
        early, earliest: how many kernels and copies begin before their launch all the same, and the most
            nanoseconds by which one does.
        nested: calls inside of another such call, which are that one's.
        misfits: calls left out because they contradict what their thread recorded.
        elsewhere: calls of threads that were not recorded, or at times at which they were not.
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
        clock = (
            "of which nobody knows the drift"
            if self.drift is None
            else f"drifted {self.drift:,} ns"
        )
        parts = [
            f"{format_ns_as_ms(self.end - self.begin)} ms of {', '.join(self.devices)}",
            f"clocks joined within {self.width:,} ns, {clock}",
        ]
        if self.early:
            parts.append(
                f"began before their launch: {self.early:,}, by up to {self.earliest:,} ns"
            )
        if self.misfits:
            parts.append(f"calls left out that contradict their thread: {self.misfits:,}")
        if self.elsewhere:
            parts.append(f"calls of threads or times that were not recorded: {self.elsewhere:,}")
        return f"{where}: {'; '.join(parts)}"


@dataclass(frozen=True, eq=False)
class Devices:
    """What devices ran in a recording: a row for each kernel or copy, in order of `begin`.

    Attributes:
        begin, end: nanoseconds of CLOCK_MONOTONIC.
        name: a number in the recording's names.
        device, stream: as the tracer numbers them, within a process.
        sort: of `Sort`.
        process: whose it is.
        correlation: what the tracer calls its launch, within a window; 0 for none.
        window: in which it was seen.
        lane: a number in the recording's lanes, of the thread that launched it; -1 where that is not known.
        launched: when the call that launched it began; -1 where that is not known.
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
        """Nothing, seen in some windows or in none."""
        none = np.zeros(0, np.int64)
        columns = {one.name: none for one in fields(cls) if one.name != "windows"}
        return cls(**columns, windows=windows)

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def traced_windows(self) -> tuple[TracedWindow, ...]:
        """The windows in which there were devices."""
        return tuple(one for one in self.windows if one.devices)

    def __str__(self) -> str:
        if not self.traced_windows:
            said = [str(one) for one in self.windows] or ["nobody looked at devices"]
            return "\n".join(["devices: absent, not zero", *(f"  {one}" for one in said)])
        lines = [
            f"devices: kernels and copies: {len(self):,}, windows: {len(self.traced_windows):,}"
        ]
        return "\n".join([*lines, *(f"  {one}" for one in self.windows)])


def library_of(name: str) -> Library:
    """What a call of a device's interface is, by its name: calls that synchronise wait."""
    return Library.WAITING if "Synchronize" in name else Library.API
