"""Memory ledger of a run: bytes of buffers, of operands gathered for a kernel, and of outputs.

Temporary memory that XLA uses inside a kernel is not counted.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Live bytes on the device and on the host, now and at every executed point.

    Host bytes are those of swapped values.
    """

    live: int = 0
    host: int = 0
    trace: array[int] = field(default_factory=lambda: array("q"))
    host_trace: array[int] = field(default_factory=lambda: array("q"))

    def record_both(self, live: int) -> None:
        """Record the live bytes of an executed point, on device and host; used only with swapping."""
        self.trace.append(live)
        self.host_trace.append(self.host)

    @property
    def peak(self) -> int:
        """Peak of the live bytes on the device."""
        return max(self.trace, default=0)

    def timeline(self) -> list[int]:
        """Return the live bytes on the device at each executed point, in order."""
        return list(self.trace)
