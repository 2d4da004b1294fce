"""Whether the notebook's kernel is at work."""

from __future__ import annotations

from functools import cache
from typing import Any

from IPython.core.getipython import get_ipython


class Cells:
    """Hears of what a shell runs; of the cell in which it is made it hears only the end."""

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
def _cells() -> Cells:
    return Cells(get_ipython())


def runs_a_cell() -> bool:
    """Whether a cell runs now, as far as that was heard of since this was first asked."""
    return _cells().running
