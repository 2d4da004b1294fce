"""Two buffers of weights: actors read one while the learner writes the other (003_bc3f8b946743a61e, §3.3.2)."""

from __future__ import annotations

from typing import Any


class WeightSlots:
    """What actors act by, and the how many-th it is.

    One thread writes; any read, and never wait.
    """

    def __init__(self, params: Any, version: int = 0) -> None:
        # what is read is one value, so that nobody takes weights for others' version
        self._held = [(version, params), (version, params)]
        self._reading = 0

    @property
    def version(self) -> int:
        return self._held[self._reading][0]

    def write(self, params: Any) -> None:
        """Newer weights, into the buffer that nobody is shown; then that is shown."""
        other = 1 - self._reading
        self._held[other] = (self.version + 1, params)
        self._reading = other

    def restore(self, params: Any, version: int) -> None:
        """Weights of a run that is gone on with; before anybody reads."""
        self._held = [(version, params), (version, params)]

    def read(self) -> tuple[int, Any]:
        """The version, and the weights."""
        return self._held[self._reading]
