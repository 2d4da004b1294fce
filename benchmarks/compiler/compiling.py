"""Compile time of REINFORCE by stage, without XLA's compilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from tests.reinforce import reinforce
from timerl_nb.driver.program import Program

BOUNDS = {"B": 64, "I": 60, "T": 500}
PROGRAMS: Mapping[str, tuple[int | None, Sequence[int]]] = {
    "Monte Carlo": (None, (32, 32)),
    "5-step": (5, (32, 32)),
    "5-step, 8 layers": (5, (32,) * 8),
}


def compiled(name: str) -> Program:
    window, hidden = PROGRAMS[name]
    return reinforce(window, hidden=hidden).compile(BOUNDS)


def main(repeats: int = 5) -> None:
    """Print the median milliseconds of each stage; programs are interleaved."""
    runs: dict[str, list[Program]] = {name: [] for name in PROGRAMS}
    for _ in range(repeats + 1):
        for name in PROGRAMS:
            runs[name].append(compiled(name))
    stages = list(runs["Monte Carlo"][0].stages)
    print(f"| compile, ms (median of {repeats}) | {' | '.join(runs)} |")
    print("|---" * (len(runs) + 1) + "|")
    for stage in [*stages, "total"]:
        cells: list[str] = []
        for programs in runs.values():
            made = [p.stages for p in programs[1:]]
            times = [s.seconds if stage == "total" else s[stage].seconds for s in made]
            cells.append(f"{median(times) * 1e3:.1f}")
        print(f"| {stage} | {' | '.join(cells)} |")
    for stage in stages:
        if any(ch.isdigit() for ch in runs["Monte Carlo"][0].stages[stage].summary):
            cells = [programs[0].stages[stage].summary for programs in runs.values()]
            print(f"| *{stage}* | {' | '.join(cells)} |")
