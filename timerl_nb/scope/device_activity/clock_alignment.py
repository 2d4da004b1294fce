"""Conversion of the clocks of tracers and of other hosts to CLOCK_MONOTONIC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.text_formatting import format_ns_as_ms


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


@dataclass(frozen=True)
class HostClock:
    """Conversion of another host's CLOCK_MONOTONIC to the clock of the recording.

    Attributes:
        host: the name of the host.
        joint: the relation of both clocks.
        is_exchanged: whether the clocks were compared by messages. Otherwise the relation assumes that the wall clocks
            of both hosts agree.
    """

    host: str
    joint: Joint
    is_exchanged: bool = True

    @classmethod
    def from_anchors(cls, host: str, anchors: Sequence[Anchor]) -> Self:
        """Return the conversion by some anchors, at least one.

        A drift is corrected only if it is larger than the errors of both ends. Otherwise the most accurate anchor holds
        for all times.
        """
        first, *_, last = sorted([*anchors, *anchors], key=lambda one: one.theirs)
        joint = Joint(first, last)
        if joint.drift is not None and abs(joint.drift) > first.width + last.width:
            return cls(host, joint)
        return cls(host, Joint(min(anchors, key=lambda one: one.width)))

    @property
    def offset(self) -> int:
        """Nanoseconds added to a time of the host, at the first anchor."""
        return self.joint.first.ours - self.joint.first.theirs

    @property
    def residual(self) -> int | None:
        """Largest error of a converted time in nanoseconds at an anchor: half of the shortest round trip; None if
        unknown.
        """
        return self.joint.width if self.is_exchanged else None

    def __str__(self) -> str:
        moved = f"clock of {self.host}: {format_ns_as_ms(self.offset)} ms added"
        if self.residual is None:
            return f"{moved}, by wall clocks of unknown accuracy"
        drift = "" if not self.joint.drift else f", drift of {self.joint.drift:,} ns corrected"
        return f"{moved}, accurate to {self.residual:,} ns{drift}"
