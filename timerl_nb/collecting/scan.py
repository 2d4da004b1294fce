"""`scan`: all steps of a batch in one call to XLA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from timerl_nb.collecting.program import Turns, collecting
from timerl_nb.collecting.task import Task
from timerl_nb.collecting.way import Counts, Way
from timerl_nb.config import Options
from timerl_nb.driver.program import Program


class Scan(Way):
    name = "scan"
    provenance = "recurrence equations"
    what = "a call to XLA for each batch"
    options: ClassVar[Options] = Options(executor="xla")

    def why_not(self, task: Task) -> str | None:
        if not task.is_ours:
            return "the environment is not written in recurrence equations, and steps on the host"
        return task.acting.why_not_written

    def prepared(self, task: Task) -> Compiled:
        program = self._program(task)
        return Compiled(program, task, self._counted(program))

    def _program(self, task: Task) -> Program:
        return collecting(task, self.options)

    def _counted(self, program: Program) -> Counts:
        lowered = program.executable.lowered
        calls = 0 if lowered is None else sum(bool(call.counters) for call in lowered.calls)
        return Counts(calls, None, 0)


@dataclass(frozen=True)
class Compiled:
    """A compiled program of a task."""

    program: Program
    task: Task
    counts: Counts

    def open(self, seed: int) -> Turns:
        return Turns(self.program, self.task, seed, self.counts)
