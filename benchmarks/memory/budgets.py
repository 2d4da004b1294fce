"""Programs under memory budgets: predicted peak, XLA's figure, and measured memory of a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from benchmarks.memory.temporaries import OWN
from benchmarks.training.race import resident_bytes
from benchmarks.works import WORKS, Stock, Work
from timerl_nb.base.errors import BudgetError
from timerl_nb.base.options import Options
from timerl_nb.base.text_formatting import format_bytes

SHARES = (1, 0.7, 0.5, 0.25, 0.1)
# Sizes that no test uses: odd ones, a long window, a network of one layer, another number of
# minibatches.
UNSEEN: Final[Mapping[str, Work | Stock]] = {
    "odd": Work("ppo", 37, 53, layers=3, width=29, obs_shape=(2, 3, 5)),
    "R-20": Work("reinforce", 48, 90, width=40, obs_shape=(11,), window=20),
    "flat": Work("reinforce", 96, 75, layers=0, width=24, obs_shape=(7,)),
    "C-9": Stock(envs=9, steps=32, epochs=3, minibatches=6, hidden=(20,)),
}
PROGRAMS: Final[Mapping[str, Work | Stock]] = {**WORKS, **UNSEEN}
NAMES = ("s", "R-8", "R-mc", "C", "S", "L4", *UNSEEN)
TURNS = 2


def main(*names: str, shares: Sequence[float] = SHARES) -> None:
    """Print a table: per program, budgets as fractions of its unrestricted need, and whether each budget is met."""
    head = "work, share|budget|needed|carried|temporaries estimated|stated|resident, measured|compiled in"
    print(f"| {head.replace('|', ' | ')} |\n|{'---|' * 8}")
    kept = dict[str, bool]()
    refused = 0
    for name in names or NAMES:
        whole = measured_under(name, None)["needed"]
        for share in shares:
            budget = int(whole * share)
            found = measured_under(name, budget)
            cells = format_bytes(budget), *_cells(found)
            print(f"| {name}, {share:g} | {' | '.join(cells)} |", flush=True)
            if "refused" in found:
                refused += 1
            else:
                kept[f"{name}, {share:g}"] = _taken(found) <= budget
    beyond = [name for name, is_kept in kept.items() if not is_kept]
    print(
        f"\n{len(kept) - len(beyond)} of {len(kept)} keep to their budgets, {refused} are refused."
    )
    if beyond:
        print(f"Beyond them: {'; '.join(beyond)}.")


def _taken(found: dict[str, Any]) -> int:
    """Return the larger figure of the forecast and of XLA's statement, without the fixed cost of any call."""
    if found["stated"] is None:
        return found["needed"]
    stated = found["carried"] + found["given"] + max(0, found["stated"] - OWN)
    return max(found["needed"], stated)


def _cells(found: dict[str, Any]) -> Iterator[str]:
    if "refused" in found:
        yield from (f"refused: {format_bytes(found['refused'])} would do", *[""] * 4)
    else:
        for key in ("needed", "carried", "estimated", "stated", "resident"):
            value = found[key]
            yield "interpreted" if value is None else format_bytes(value)
    yield f"{found['seconds']:.1f} s"


def measured_under(work: str, budget: int | None) -> dict[str, Any]:
    """Run `measure` in a separate process."""
    command = [sys.executable, "-m", "benchmarks", "held", work, str(budget or 0)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(work: str, budget: str) -> None:
    """Print the memory use of a program within a budget; 0 means no budget."""
    warnings.simplefilter("ignore")
    began = perf_counter()
    try:
        options = Options(executor="xla", device_memory=int(budget) or None)
        program = PROGRAMS[work].compile(TURNS, options)
        seconds = perf_counter() - began
        if program.executable.xla_program is not None:
            _ = (
                program.executable.xla_program.temporaries
            )  # compile first: XLA's compilation needs more memory
        before = resident_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        program.execute(progress=False)
    except BudgetError as error:
        print(json.dumps({"refused": error.needed, "seconds": perf_counter() - began}))
        return
    memory, lowered = program.memory, program.executable.xla_program
    print(
        json.dumps(
            {
                "needed": memory.needed,
                "carried": memory.peak if lowered is None else lowered.nbytes,
                "given": memory.constants,
                "estimated": memory.temporaries,
                "stated": None if lowered is None else lowered.temporaries,
                "resident": resident_bytes() - before,
                "seconds": seconds,
            }
        )
    )
