"""Growth of this process's memory over tries."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import Counter
from contextlib import suppress
from typing import Any, Final

from benchmarks.training.race import resident_bytes

FIRST: Final = 10  # tries before the reference measurement,
ALLOWED: Final = 0.05  # and allowed growth after it
MIB: Final = 2**20


class Growth:
    """Resident memory after every try.

    Before each measurement, C's allocator returns its cached memory. The cached amount depends on
    fragmentation, and levels off after some hundred tries.

    Attributes:
        resident: MiB after each try.
        kept: Maximal MiB cached by C's allocator.
    """

    def __init__(self) -> None:
        self.resident: list[float] = []
        self.kept = 0.0
        self._first: tuple[float, Counter[str]] = 0.0, Counter()

    def add(self) -> None:
        """Record a try."""
        gc.collect()
        before = resident_bytes("VmRSS") / MIB
        give_back()
        self.resident.append(resident_bytes("VmRSS") / MIB)
        self.kept = max(self.kept, before - self.resident[-1])
        if len(self.resident) == FIRST:
            self._first = allocated(), alive()

    @property
    def share(self) -> float:
        """Return the growth since the tenth try; 0.0 before."""
        if len(self.resident) < FIRST:
            return 0.0
        return self.resident[-1] / self.resident[FIRST - 1] - 1

    @property
    def wrong(self) -> list[str]:
        """Return a failure if the growth exceeds the limit."""
        if self.share <= ALLOWED:
            return []
        then, now = self.resident[FIRST - 1], self.resident[-1]
        tries = len(self.resident)
        return [f"{now:.0f} MiB after {tries:,} tries, {then:.0f} after {FIRST}: {self.share:+.1%}"]

    def figures(self) -> dict[str, Any]:
        """Return the measurements."""
        if len(self.resident) < FIRST:
            return {}
        then, objects = self._first
        more = {n: k - objects[n] for n, k in alive().items() if k > objects[n]}
        return {
            f"MiB after {FIRST}": round(self.resident[FIRST - 1], 1),
            "MiB at the end": round(self.resident[-1], 1),
            "growth": f"{self.share:+.1%}",
            "MiB free, but kept by C's allocator, at most": round(self.kept, 1),
            "of which allocated, MiB": round(allocated() - then, 1),
            "our own objects more": dict(Counter(more).most_common(6)),
        }


def alive() -> Counter[str]:
    """Count the live objects of our classes."""
    gc.collect()
    return Counter(
        type(one).__name__
        for one in gc.get_objects()
        if str(type(one).__module__).startswith(("timerl_nb", "timerl_widgets"))
    )


def give_back() -> None:
    """Return cached memory of C's allocator to the system, if possible."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def allocated() -> float:
    """Return the MiB allocated in the main arena of C's allocator; 0.0 elsewhere."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            found = ctypes.CDLL(None).mallinfo2
            found.restype = _Allocated
            made = found()
            return (made.uordblks + made.hblkhd) / MIB
    return 0.0


class _Allocated(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]
