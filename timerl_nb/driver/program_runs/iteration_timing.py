"""Timing of one iteration of the outermost loop."""

from __future__ import annotations

import itertools
import math
import time
from typing import Final

from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program_runs.host_effects import refuse_host_effects
from timerl_nb.driver.program_runs.main_memory_check import check_memory
from timerl_nb.driver.program_runs.program_run import make_run

_MEASURED: Final = 4  # iterations in each of two runs


class _Enough(Exception):
    """End of a run after the measured iterations."""


def measure_iteration(compiled: Compilation) -> tuple[Compilation, float]:
    """Run a few iterations of a program.

    Returns:
        the executed compilation, as returned by `check_memory`; and the seconds of the fastest iteration.

    Raises:
        BudgetError: the program needs more memory than the machine has.
        OptionError: the program has effects on the host.
    """
    why = "timing an iteration runs the program"
    hint = "run the program, and read `result.seconds`."
    refuse_host_effects(compiled.pdg, why, hint)
    compiled = check_memory(compiled)
    least_found = math.inf
    for _ in range(2):  # the first run compiles
        marks = [time.perf_counter()]

        def on_turn(*_: object, marks: list[float] = marks) -> None:
            marks.append(time.perf_counter())
            if len(marks) > _MEASURED:
                raise _Enough

        run = make_run(compiled, 0, on_turn)
        try:
            run.complete()
        except _Enough:
            pass
        finally:
            run.release()
        if len(marks) == 1:  # a program without iterations
            marks.append(time.perf_counter())
        least_found = min(least_found, *(b - a for a, b in itertools.pairwise(marks)))
    return compiled, least_found
