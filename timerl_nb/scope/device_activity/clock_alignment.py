"""Clocks joined: moments by a tracer's clock as nanoseconds of CLOCK_MONOTONIC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timerl_nb.base.array_conversion import Array


@dataclass(frozen=True)
class Anchor:
    """One moment by two clocks.

    Args:
        theirs: nanoseconds of the tracer's.
        ours: nanoseconds of CLOCK_MONOTONIC.
        width: within so many nanoseconds.
    """

    theirs: int
    ours: int
    width: int

    @classmethod
    def from_readings(cls, before: int, theirs: int, after: int, took: int = 0) -> Anchor:
        """Theirs was read between two readings of ours; `took` nanoseconds of that are known to be theirs alone."""
        width = max(0, after - before - took)
        return cls(theirs, before + width // 2, (width + 1) // 2)


@dataclass(frozen=True)
class Joint:
    """Two clocks that were compared at one end, or at both.

    Args:
        first: the tracer's clock as it began.
        last: as it ended; None where that is not known.
    """

    first: Anchor
    last: Anchor | None = None

    @property
    def drift(self) -> int | None:
        """Nanoseconds by which their clock went ahead of ours from one end to the other."""
        if self.last is None:
            return None
        return (self.last.theirs - self.first.theirs) - (self.last.ours - self.first.ours)

    @property
    def width(self) -> int:
        """Nanoseconds within which a moment is known."""
        return max(one.width for one in (self.first, self.last) if one is not None)

    def to_our_clock(self, moments: Array) -> Array:
        """Moments of their clock by ours; the drift is taken off in proportion to the time."""
        since = moments.astype(np.int64) - self.first.theirs
        if self.last is None or not self.drift or self.last.theirs == self.first.theirs:
            return since + self.first.ours
        share = self.drift / (self.last.theirs - self.first.theirs)
        return since - np.rint(since * share).astype(np.int64) + self.first.ours
