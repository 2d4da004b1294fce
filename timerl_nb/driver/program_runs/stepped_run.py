"""Run that executes one instruction per call."""

from __future__ import annotations

from typing import Any

from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program_runs.assumed_ceiling import refuse_assumed_ceiling
from timerl_nb.driver.program_runs.main_memory_check import check_machine
from timerl_nb.driver.program_runs.run_preparation import first_seed
from timerl_nb.runtime.interpreter.interpreter import Instruction, Run


class SteppedRun:
    """A run of single instructions, which restarts at its end."""

    def __init__(self) -> None:
        self._run: Run | None = None

    @property
    def has_begun(self) -> bool:
        return self._run is not None

    def step(self, compiled: Compilation, seed: Any) -> Instruction | None:
        """Execute one instruction; return None at the end of the program.

        Args:
            compiled: the program; read at the first instruction.
            seed: the seed; read at the first instruction.

        Raises:
            BoundsError: a dynamic bound has no ceiling.
            BudgetError: the program needs more memory than the machine has.
        """
        refuse_assumed_ceiling(compiled.bounds, "single steps cannot be repeated")
        if self._run is not None and self._run.failed:
            self._run.release()
            self._run = None
        if self._run is None:
            check_machine(compiled)
            self._run = Run(compiled.executable, first_seed(compiled, seed), follow=True)
        done = self._run.step()
        if done is None:
            self._run.release()
            self._run = None
        return done

    @property
    def stores(self) -> dict[str, dict[Any, Any]]:
        """The stored values by tensor and point."""
        return {} if self._run is None else self._run.stores
