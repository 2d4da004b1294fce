"""Detection of a busy notebook kernel."""

from __future__ import annotations

from functools import cache
from typing import Any

from IPython.core.getipython import get_ipython


class KernelActivity:
    """Tracks whether a shell runs a cell, from its events; of the current cell only the end is observed."""

    def __init__(self, shell: Any) -> None:
        self.running = False
        if shell is not None:
            shell.events.register("pre_execute", self._begin)
            shell.events.register("post_execute", self._end)

    def _begin(self) -> None:
        self.running = True

    def _end(self) -> None:
        self.running = False


@cache
def _cells() -> KernelActivity:
    return KernelActivity(get_ipython())


def runs_a_cell() -> bool:
    """Return whether a cell is running, as far as events since the first call show."""
    return _cells().running
