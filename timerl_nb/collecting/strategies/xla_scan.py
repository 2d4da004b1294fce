"""Strategy "scan": all steps of a batch in one XLA call."""

from __future__ import annotations

from functools import cache
from typing import ClassVar

from timerl_nb.base.options import Options
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategies.collecting_program import Turns, collecting
from timerl_nb.collecting.strategy import Counts, Prepared, Strategy
from timerl_nb.driver.program import Program
from timerl_nb.runtime.xla.hlo.calls_per_run import count_calls


class Scan(Strategy):
    name = "scan"
    provenance = "recurrence equations"
    what = "one XLA call per batch"
    options: ClassVar[Options] = Options(executor="xla")

    def why_not(self, task: Task) -> str | None:
        if not task.is_ours:
            return "the environment is not written in recurrence equations and runs on the host"
        return task.acting.why_not_written

    def prepared(self, task: Task) -> Prepared:
        program = self._program(task)
        counts = cache(lambda: self.count_work(program))  # compiles the program
        return lambda seed: Turns(program, task, seed, counts)

    def _program(self, task: Task) -> Program:
        return collecting(task, self._options(task))

    def _options(self, task: Task) -> Options:
        return self.options

    def count_work(self, program: Program) -> Counts:
        """Return the counts of a batch."""
        lowered = program.executable.xla_program
        assert lowered is not None
        made = count_calls(lowered)
        return Counts(0 if made is None else sum(made.values()), program.executable.launches, 0)
