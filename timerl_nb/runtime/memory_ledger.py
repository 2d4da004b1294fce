"""The memory ledger of a run: bytes owned by stores, operands gathered for an Execute, outputs.

The engine's own temporaries inside a kernel are not in it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Live bytes now, and during every executed point so far: on the device, and on the host.

    The host's are those of swapped values.
    """

    live: int = 0
    host: int = 0
    trace: array[int] = field(default_factory=lambda: array("q"))
    host_trace: array[int] = field(default_factory=lambda: array("q"))

    def record_both(self, live: int) -> None:
        """Note what is live during an executed point; without swaps `trace` alone is noted."""
        self.trace.append(live)
        self.host_trace.append(self.host)

    @property
    def peak(self) -> int:
        """The greatest number of bytes that were live at once."""
        return max(self.trace, default=0)

    def timeline(self) -> list[int]:
        """Live bytes during each executed point, in order."""
        return list(self.trace)
