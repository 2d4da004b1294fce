"""Two buffers of weights: actors read one while the learner writes the other (003_bc3f8b946743a61e, §3.3.2)."""

from __future__ import annotations

from typing import Any

from timerl_nb.runtime.jax_backend import graph_function as graph


class WeightSlots:
    """What actors act by, and the how many-th it is.

    One thread writes; any read, and never wait. Arrays of NumPy are copied to read-only arrays.
    """

    def __init__(self, params: Any, version: int = 0) -> None:
        params = graph.frozen(params)
        # one value, so no reader sees weights with the version of others
        self._held = [(version, params), (version, params)]
        self._reading = 0

    @property
    def version(self) -> int:
        return self._held[self._reading][0]

    def write(self, params: Any) -> None:
        """Write newer weights into the slot that nobody reads, then let it be read."""
        other = 1 - self._reading
        self._held[other] = (self.version + 1, graph.frozen(params))
        self._reading = other

    def restore(self, params: Any, version: int) -> None:
        """Set the weights of a resumed run, before anybody reads."""
        params = graph.frozen(params)
        self._held = [(version, params), (version, params)]

    def read(self) -> tuple[int, Any]:
        """The version, and the weights."""
        return self._held[self._reading]
