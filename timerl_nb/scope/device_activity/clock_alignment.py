"""Conversion of a tracer's clock to CLOCK_MONOTONIC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timerl_nb.base.array_conversion import Array


@dataclass(frozen=True)
class Anchor:
    """Simultaneous reading of two clocks.

    Args:
        theirs: nanoseconds of the tracer's clock.
        ours: nanoseconds of CLOCK_MONOTONIC.
        width: accuracy in nanoseconds.
    """

    theirs: int
    ours: int
    width: int

    @classmethod
    def from_readings(cls, before: int, theirs: int, after: int, took: int = 0) -> Anchor:
        """Return the anchor of a tracer reading between two readings of CLOCK_MONOTONIC.

        Args:
            before, after: readings of CLOCK_MONOTONIC.
            theirs: reading of the tracer's clock.
            took: known duration of the tracer's reading, in nanoseconds.
        """
        width = max(0, after - before - took)
        return cls(theirs, before + width // 2, (width + 1) // 2)


@dataclass(frozen=True)
class Joint:
    """Relation of two clocks with anchors at one or both ends of a trace.

    Args:
        first: anchor at the start.
        last: anchor at the end; None if unknown.
    """

    first: Anchor
    last: Anchor | None = None

    @property
    def drift(self) -> int | None:
        """Nanoseconds gained by the tracer's clock between both anchors; None with one anchor."""
        if self.last is None:
            return None
        return (self.last.theirs - self.first.theirs) - (self.last.ours - self.first.ours)

    @property
    def width(self) -> int:
        """Accuracy of a converted time, in nanoseconds."""
        return max(one.width for one in (self.first, self.last) if one is not None)

    def to_our_clock(self, moments: Array) -> Array:
        """Convert times of the tracer to CLOCK_MONOTONIC; drift is corrected linearly."""
        since = moments.astype(np.int64) - self.first.theirs
        if self.last is None or not self.drift or self.last.theirs == self.first.theirs:
            return since + self.first.ours
        share = self.drift / (self.last.theirs - self.first.theirs)
        return since - np.rint(since * share).astype(np.int64) + self.first.ours
