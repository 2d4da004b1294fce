"""Common interface and counters of the implementations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from benchmarks.collecting.cell import Cell

Batch = Mapping[str, np.ndarray]  # obs, action, terminated, truncated, valid; last_obs; log_prob


class Implementation(ABC):
    """Running implementation of step collection.

    Attributes:
        calls: Python calls for the last batch: environment steps, policy calls, JAX functions,
        PyTorch
            operations. NumPy calls are not counted.
        launches: Kernels started by these calls; None if not counted.
        copies: Arrays of the last batch copied between libraries or processes.
    """

    launches: int | None = None
    copies = 0

    def __init__(self, cell: Cell) -> None:
        self.cell, self.calls = cell, 0

    @abstractmethod
    def advance(self) -> int:
        """Collect a batch, wait for it, and return its number of steps."""

    @abstractmethod
    def batch(self) -> Batch:
        """Return the last batch, time first."""

    def counts(self) -> dict[str, int | None]:
        """Count calls, launches and copies of a batch. Not part of the measured time."""
        return {"calls": self.calls, "launches": self.launches, "copies": self.copies}

    def close(self) -> None:
        """Release all resources."""
        return
