"""What a run looks like at one moment: frozen values that views draw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array


@dataclass(frozen=True, eq=False)
class Curve:
    """An output of one number per turn, as far as it is known.

    Attributes:
        at: the points of the outermost dimension, rising; where turns are fast some are left out.
        values: the output there.
        is_late: nothing is known before the end.
    """

    at: Array
    values: Array
    is_late: bool = False

    def __len__(self) -> int:
        return len(self.at)

    def to_json(self, since: int = 0) -> dict[str, Any]:
        """As plain lists, from the point `since` on; what is not finite is null."""
        first = int(np.searchsorted(self.at, since))
        values = [float(x) if math.isfinite(x) else None for x in self.values[first:]]
        return {"at": self.at[first:].tolist(), "values": values, "is_late": self.is_late}


@dataclass(frozen=True, eq=False)
class Held:
    """Live bytes on the device since the frame before, by the interpreter's ledger.

    Attributes:
        live: at the moment of the frame.
        peak: the greatest so far.
        first, last: the executed points that `bytes` are of, `last` not among them. They count as in
            `program.memory.timeline().time`, if no dynamic bound ended a turn earlier.
        bytes: the greatest number of live bytes in each of equal parts of these points.
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
    """An NVIDIA device as its driver sees it.

    Attributes:
        name: of the device.
        busy: the fraction of the driver's last sampling period in which some kernel ran.
        memory, total: bytes in use by all processes, and bytes that there are.
        watts: what it draws; None where the driver does not say.
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
    """This process on its machine.

    Attributes:
        cpu: CPU seconds of all its threads per second, XLA's among them: 2.0 is two cores' worth.
        cores: how many cores it may use.
        resident: the bytes of main memory that it occupies; None where the system does not say.
        on_device: the bytes that its arrays take on the device, as JAX's allocator says; None where
            there is none that does, as on a CPU.
    """

    cpu: float
    cores: int
    resident: int | None
    on_device: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "fraction": min(1.0, self.cpu / self.cores)}


@dataclass(frozen=True, eq=False)
class Frame:
    """A run at one moment.

    Attributes:
        number: frames are counted from 0; who is slow misses some.
        state: as `Running.state`; in the last frame how the run ended.
        turn, turns: turns of the outermost loop that are done, and how many there are (None where
            that is not known beforehand).
        elapsed: seconds since the run began, pauses included.
        turns_per_second: over the last second or so; 0 while it rests.
        steps_per_second: the same in steps of environments, all instances together; None where
            nothing acts.
        busy: the fraction of a turn's time that was spent inside kernels (of XLA: inside calls), each
            waited for, in the turn that was measured last; None until one was. About one turn a second
            is measured: waiting for every kernel in all of them would cost too much.
        curves: outputs by name, those with one number per turn; of several seeds their mean.
        outputs: the outputs without a curve, as text; empty before the end of the run.
        held: live bytes; None where XLA runs the nest, and nobody sees what lives when.
        buffers: the bytes of XLA's buffers in all; None where the interpreter runs.
        compiling: for how many seconds the run has been waiting for XLA to compile; None if it is not.
        process: what this process takes of the machine.
        devices: NVIDIA devices, where there are some and `nvidia-ml-py` is installed.
        error: what the run failed with.
    """

    number: int
    state: str
    turn: int
    turns: int | None
    elapsed: float
    turns_per_second: float
    steps_per_second: float | None
    busy: float | None
    curves: Mapping[str, Curve]
    held: Held | None
    buffers: int | None
    compiling: float | None
    process: Process
    devices: tuple[Device, ...] = ()
    error: str | None = None
    outputs: Mapping[str, str] = field(default_factory=dict)

    def to_json(self, since: int = 0) -> dict[str, Any]:
        """The frame as plain JSON values; curves from the point `since` on."""
        found = dict(self.__dict__)
        found["curves"] = {name: curve.to_json(since) for name, curve in self.curves.items()}
        found["held"] = None if self.held is None else self.held.to_json()
        found["process"] = self.process.to_json()
        found["devices"] = [device.to_json() for device in self.devices]
        return found


def output_text(x: Array) -> str:
    """Return a number as text; of more, their shape and range."""
    if x.ndim == 0:
        return f"{x.item():.4g}"
    shape = f"{x.dtype} {list(x.shape)}"
    return f"{shape}, {x.min():.4g} to {x.max():.4g}" if x.size and x.dtype != bool else shape


def compiling_text(seconds: float) -> str:
    """What a run waits for that has not begun to make turns, or does not go on."""
    return f"compiling with XLA, {seconds:.0f} s so far"
