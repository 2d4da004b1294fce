"""Double buffer of weights: actors read one slot while the learner writes the other. Source: PEARL §3.3.2."""

from __future__ import annotations

from typing import Any

from timerl_nb.runtime.jax_backend import graph_function as graph


class WeightSlots:
    """Weights of the actors with a version number.

    One thread writes, any thread reads without waiting. NumPy arrays are copied to read-only arrays.
    """

    def __init__(self, params: Any, version: int = 0) -> None:
        params = graph.frozen(params)
        # version and weights form one tuple, so a reader never gets weights with the wrong version
        self._slots = [(version, params), (version, params)]
        self._reading = 0

    @property
    def version(self) -> int:
        return self._slots[self._reading][0]

    def write(self, params: Any) -> None:
        """Write newer weights into the unused slot, then direct readers to it."""
        other = 1 - self._reading
        self._slots[other] = (self.version + 1, graph.frozen(params))
        self._reading = other

    def restore(self, params: Any, version: int) -> None:
        """Set the weights of a resumed run, before the first read."""
        params = graph.frozen(params)
        self._slots = [(version, params), (version, params)]

    def read(self) -> tuple[int, Any]:
        """Return the version and the weights."""
        return self._slots[self._reading]
