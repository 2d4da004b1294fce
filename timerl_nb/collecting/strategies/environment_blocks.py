"""`blocks`: as `scan`, but some environments make all steps of a batch before the next ones, in the cache."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from timerl_nb.base.options import Options
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategies.xla_scan import Scan
from timerl_nb.driver.program import Program


class Blocks(Scan):
    name = "blocks"
    what = "a call to XLA for each batch, all steps of some environments before the next ones"
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
        """Compiled once, as it says itself whether it has blocks."""
        if task not in self._programs:
            self._programs[task] = super()._program(task)
        return self._programs[task]
