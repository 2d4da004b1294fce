"""How compiling grows with depth: seconds and operations by stage, and isl's share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

import timerl_nb as trl
from tests.actor_critic import actor_critic
from tests.reinforce import reinforce
from timerl_nb.compiler.scheduling import schedule_validation
from timerl_nb.driver.program import Program

BOUNDS = {"B": 64, "I": 60, "T": 500}
PROGRAMS: Mapping[str, Callable[[tuple[int, ...]], trl.Context]] = {
    "REINFORCE": lambda hidden: reinforce(None, hidden=hidden),
    "actor-critic": lambda hidden: actor_critic(hidden),
}


@contextmanager
def scheduling() -> Iterator[list[float]]:
    """The seconds of each call of isl's scheduler inside, trial schedules included."""
    found: list[float] = []
    kept = schedule_validation.solve

    def timed(*args: Any) -> Any:
        start = time.perf_counter()
        try:
            return kept(*args)
        finally:
            found.append(time.perf_counter() - start)

    schedule_validation.solve = timed
    try:
        yield found
    finally:
        schedule_validation.solve = kept


def measure(write: Callable[[tuple[int, ...]], trl.Context], depth: int, repeats: int) -> Any:
    """The programs compiled, and per compilation the seconds that isl scheduled."""
    programs: list[Program] = []
    shares: list[float] = []
    for _ in range(repeats):
        ctx = write((64,) * depth)
        with scheduling() as spent:
            programs.append(ctx.compile(BOUNDS))
        shares.append(sum(spent))
    return programs, shares


def main(depths: tuple[int, ...] = (2, 4, 16), repeats: int = 3) -> None:
    """Print a table per program: stages down, depths across."""
    for name, write in PROGRAMS.items():
        measure(write, 1, 1)  # what is done once a process
        found = [measure(write, depth, repeats) for depth in depths]
        titles = " | ".join(f"{depth} layers" for depth in depths)
        print(f"| {name}: compile, ms (median of {repeats}) | {titles} |")
        print("|---" * (len(depths) + 1) + "|")
        for stage in found[0][0][0].stages:
            cells = [
                f"{median(p.stages[stage].seconds for p in programs) * 1e3:.1f}"
                f" ({programs[0].stages[stage].summary})"
                for programs, _ in found
            ]
            print(f"| {stage} | {' | '.join(cells)} |")
        totals = [median(p.stages.seconds for p in programs) for programs, _ in found]
        print(f"| total | {' | '.join(f'{total * 1e3:.1f}' for total in totals)} |")
        parts = [
            f"{median(s) * 1e3:.1f} = {100 * median(s) / total:.0f} %"
            for (_, s), total in zip(found, totals, strict=True)
        ]
        print(f"| of which isl schedules | {' | '.join(parts)} |\n")
