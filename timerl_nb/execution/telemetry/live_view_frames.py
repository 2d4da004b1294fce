"""Frames: snapshots of a run that live views draw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array


@dataclass(frozen=True, eq=False)
class Curve:
    """Known values of an output with one number per iteration.

    Attributes:
        at: Points of the outermost dimension, ascending. Some are left out if iterations are fast.
        values: Values at these points.
        is_late: Whether values become known only at the end of the run.
    """

    at: Array
    values: Array
    is_late: bool = False

    def __len__(self) -> int:
        return len(self.at)

    def to_json(self, since: int = 0) -> dict[str, Any]:
        """Return plain lists from the point `since`; None replaces infinities and NaN."""
        first = int(np.searchsorted(self.at, since))
        values = [float(x) if math.isfinite(x) else None for x in self.values[first:]]
        return {"at": self.at[first:].tolist(), "values": values, "is_late": self.is_late}


@dataclass(frozen=True, eq=False)
class MeasuredBytes:
    """Live bytes on the device since the previous frame, according to the interpreter's ledger.

    Attributes:
        live: Live bytes now.
        peak: Peak so far.
        first: First executed point in `bytes`. Points are numbered as in
            `program.memory.timeline().time`, unless a dynamic bound ends an iteration early.
        last: End of the executed points in `bytes`, exclusive.
        bytes: Maximum of live bytes in equal parts of the range of points.
    """

    live: int
    peak: int
    first: int
    last: int
    bytes: Array

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "bytes": self.bytes.tolist()}


@dataclass(frozen=True)
class Device:
    """State of an NVIDIA device, as reported by its driver.

    Attributes:
        name: Name of the device.
        busy: Fraction of the driver's last sampling period in which a kernel ran.
        memory: Bytes in use by all processes.
        total: Bytes of memory on the device.
        watts: Power draw; None if the driver does not report it.
    """

    name: str
    busy: float
    memory: int
    total: int
    watts: float | None

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Process:
    """Resource use of this process.

    Attributes:
        cpu: CPU seconds per second, over all threads including XLA's. 2.0 means two full cores.
        cores: Number of cores that the process may use.
        resident: Resident bytes in main memory; None if the system does not report them.
        on_device: Bytes of arrays on the device, according to JAX's allocator; None on a CPU.
    """

    cpu: float
    cores: int
    resident: int | None
    on_device: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "fraction": min(1.0, self.cpu / self.cores)}


@dataclass(frozen=True, eq=False)
class Frame:
    """Snapshot of a run.

    Attributes:
        number: Number of the frame, from 0. A slow consumer misses some numbers.
        state: State of the run, as in `Running.state`. The last frame has the final state.
        reason: Why a breakpoint has paused the run, such as `return = 412 at i = 27`; "" otherwise.
        turn: Completed iterations of the outermost loop.
        turns: Total number of iterations; None if it is not known in advance.
        elapsed: Seconds since the start of the run, including pauses.
        turns_per_second: Iterations per second, over about the last second; 0 while paused.
        steps_per_second: Environment steps per second, summed over all instances; None without an
            environment.
        busy: Fraction of an iteration's time spent inside kernels (with XLA: inside calls). About once a
            second, one iteration is measured, in which the run waits for each kernel. None before the
            first measurement.
        curves: Outputs with one number per iteration, by name; the mean over several seeds.
        outputs: Other outputs as text; empty before the end of the run.
        held: Live bytes; None if XLA runs the loop nest, where they cannot be observed.
        buffers: Total bytes of XLA's buffers; None if the interpreter runs the program.
        compiling: Seconds of the current wait for XLA to compile; None without a wait.
        compiling_part: Part of the program that XLA compiles, such as `call 2 of 3 (learning)`; "" if it
            traces all parts, or without a wait.
        process: Resource use of this process.
        devices: NVIDIA devices; empty without `nvidia-ml-py`.
        error: Message of the error that ended the run.
    """

    number: int
    state: str
    reason: str
    turn: int
    turns: int | None
    elapsed: float
    turns_per_second: float
    steps_per_second: float | None
    busy: float | None
    curves: Mapping[str, Curve]
    held: MeasuredBytes | None
    buffers: int | None
    compiling: float | None
    process: Process
    devices: tuple[Device, ...] = ()
    error: str | None = None
    outputs: Mapping[str, str] = field(default_factory=dict)
    compiling_part: str = ""

    def to_json(self, since: int = 0) -> dict[str, Any]:
        """Return the frame as JSON values, with curves from the point `since`."""
        found = dict(self.__dict__)
        found["curves"] = {name: curve.to_json(since) for name, curve in self.curves.items()}
        found["held"] = None if self.held is None else self.held.to_json()
        found["process"] = self.process.to_json()
        found["devices"] = [device.to_json() for device in self.devices]
        return found


def output_text(x: Array) -> str:
    """Return a number as text, or the shape and range of an array."""
    if x.ndim == 0:
        return f"{x.item():.4g}"
    shape = f"{x.dtype} {list(x.shape)}"
    return f"{shape}, {x.min():.4g} to {x.max():.4g}" if x.size and x.dtype != bool else shape


def compiling_text(seconds: float, part: str = "") -> str:
    """Return the progress text during compilation by XLA."""
    what = f"compiling {part}" if part else "compiling"
    return f"{what} with XLA, {seconds:.0f} s so far"
