"""Strategy "blocks": like "scan", but block by block of environments.

A block runs all its steps before the next block, which keeps its state in the cache.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from timerl_nb.base.options import Options
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategies.xla_scan import Scan
from timerl_nb.driver.program import Program


class Blocks(Scan):
    name = "blocks"
    what = "one XLA call per batch, with all steps of a block of environments before the next block"
    options = Options(executor="xla", tile="auto")

    def __init__(self) -> None:
        self._programs: WeakKeyDictionary[Task, Program] = WeakKeyDictionary()

    def why_not(self, task: Task) -> str | None:
        why = super().why_not(task)
        if why is not None:
            return why
        program = self._program(task)
        return None if program.executable.tiles else program.stages["tile"].summary

    def _program(self, task: Task) -> Program:
        """Return the program of a task, compiled once, because `why_not` needs it, too."""
        if task not in self._programs:
            self._programs[task] = super()._program(task)
        return self._programs[task]
