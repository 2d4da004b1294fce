"""What a machine can do, as a few numbers: the one that every estimate of time is made with.

They are for comparing ways to go on, not for promising seconds. Those that stand here are of the order
of two CPU cores; `trl.tune_machine()` measures those of the machine that is there.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass


def cores() -> int:
    """How many cores the process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Machine:
    """A device.

    Attributes:
        launch: seconds that a statement's point costs beside its work, where each is a call.
        call: seconds that a contraction or reduction costs beside its work, within a program.
        flops: multiplications and additions of contractions per second, of matrices in the cache.
        elements: elements of other operations per second, of arrays in the cache.
        bandwidth: bytes per second from and to memory.
        host: bytes per second between device and host.
        near, far: arrays up to so many bytes stay in the cache, and those from so many on do not.
        worth: batches whose arrays take fewer bytes stay whole: a simple loop nest is worth more.
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
