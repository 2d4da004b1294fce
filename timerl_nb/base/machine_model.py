"""Machine model of the cost estimates: speeds of arithmetic, memory and launches.

The estimates compare plans; they do not predict exact seconds. The defaults suit two CPU cores, and
`trl.tune_machine()` measures the current machine.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass


def cores() -> int:
    """Return the number of cores available to the process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Machine:
    """Speeds and sizes of a device.

    Attributes:
        launch: overhead of one call of a statement, in seconds.
        call: overhead of one contraction or reduction inside a compiled program, in seconds.
        flops: multiplications and additions per second in contractions of cached matrices.
        elements: elements per second in other operations on cached arrays.
        bandwidth: bytes per second from and to memory.
        host: bytes per second between device and host.
        near: arrays up to this size, in bytes, stay in the cache.
        far: arrays from this size on, in bytes, do not stay in the cache.
        worth: batches with smaller arrays, in bytes, are not tiled, for a simple loop nest.
    """

    launch: float = 40e-6
    call: float = 25e-6
    flops: float = 1.5e11
    elements: float = 6e9
    bandwidth: float = 1.5e10
    host: float = 5e9
    near: int = 5 << 19
    far: int = 3 << 25
    worth: int = 1 << 24

    def __str__(self) -> str:
        return "\n".join(f"{name:<9}  {value:10.3g}" for name, value in asdict(self).items())

    __repr__ = __str__
