"""What implementations share: what they are asked, and what they count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from benchmarks.collecting.cell import Cell

Batch = Mapping[str, np.ndarray]  # obs, action, terminated, truncated, valid; last_obs; log_prob


class Implementation(ABC):
    """A way of collecting steps, at work.

    Attributes:
        calls: that Python made for the last batch: steps of environments, calls of the policy,
            functions of JAX, operations of PyTorch. Those of NumPy are not counted.
        launches: kernels that these started; None where nobody counts them.
        copies: arrays of the last batch that were copied from one library or process to another.
    """

    launches: int | None = None
    copies = 0

    def __init__(self, cell: Cell) -> None:
        self.cell, self.calls = cell, 0

    @abstractmethod
    def advance(self) -> int:
        """Collect a batch, and wait for it; returns how many steps it has."""

    @abstractmethod
    def batch(self) -> Batch:
        """The last one, time first."""

    def counts(self) -> dict[str, int | None]:
        """Calls, launches and copies of a batch; takes its time, which is not measured."""
        return {"calls": self.calls, "launches": self.launches, "copies": self.copies}

    def close(self) -> None:
        """Let go of what is held."""
        return
