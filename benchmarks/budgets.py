"""Works under budgets: what is predicted, what XLA states, and what a process of its own then takes."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.race import resident_bytes
from benchmarks.works import WORKS
from timerl_nb.config import Options
from timerl_nb.errors import BudgetError
from timerl_nb.show.text import human_bytes

SHARES = (1, 0.7, 0.5, 0.25, 0.1)
NAMES = ("s", "R-8", "R-mc", "C", "S", "L4")
TURNS = 2


def main(names: Sequence[str] = NAMES, shares: Sequence[float] = SHARES) -> None:
    """Print a table: for each work, budgets that are shares of what it needs without one."""
    head = "work, share|needed|carried|temporaries estimated|stated|resident, measured|compiled in"
    print(f"| {head.replace('|', ' | ')} |\n|{'---|' * 7}")
    for name in names:
        whole = _asked(name, None)["needed"]
        for share in shares:
            print(f"| {name}, {share:g} | {' | '.join(_cells(_asked(name, int(whole * share))))} |")


def _cells(found: dict[str, Any]) -> Iterator[str]:
    if "refused" in found:
        yield from (f"refused: {human_bytes(found['refused'])} would do", *[""] * 4)
    else:
        for key in ("needed", "carried", "estimated", "stated", "resident"):
            value = found[key]
            yield "interpreted" if value is None else human_bytes(value)
    yield f"{found['seconds']:.1f} s"


def _asked(work: str, budget: int | None) -> dict[str, Any]:
    """What `measure` finds in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "held", work, str(budget or 0)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(work: str, budget: str) -> None:
    """Print what a work takes within a budget; 0 is none."""
    warnings.simplefilter("ignore")
    began = perf_counter()
    try:
        options = Options(executor="xla", device_memory=int(budget) or None)
        program = WORKS[work].compile(TURNS, options)
        seconds = perf_counter() - began
        lowered = program.executable.lowered
        stated = None if lowered is None else lowered.temporaries
        before = resident_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        program.execute(progress=False)
    except BudgetError as error:
        print(json.dumps({"refused": error.needed, "seconds": perf_counter() - began}))
        return
    memory, lowered = program.memory, program.executable.lowered
    print(
        json.dumps(
            {
                "needed": memory.needed,
                "carried": memory.peak if lowered is None else lowered.nbytes,
                "estimated": memory.temporaries,
                "stated": stated,
                "resident": resident_bytes() - before,
                "seconds": seconds,
            }
        )
    )
