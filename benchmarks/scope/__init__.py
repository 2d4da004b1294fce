"""Reproduction of the findings of RL-Scope; cost and coverage of recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from benchmarks.finding import Finding, table
from benchmarks.scope import devices, inside, on_gpu, overhead
from benchmarks.scope.findings import FINDINGS

# For each name, the function that prints a table, and its required packages.
TABLES: Final[Mapping[str, tuple[Callable[[], None], Sequence[str]]]] = {
    "devices": (devices.main, ()),
    "gpu": (on_gpu.main, ("torch", "stable_baselines3")),
    "inside": (inside.main, ("torch", "stable_baselines3")),
    "overhead": (overhead.main, ("torch", "stable_baselines3")),
}
PARTS: Final = (*FINDINGS, *TABLES)


def main(*names: str) -> None:
    """Print the findings and tables of some names, or of all; print the reason for unavailable ones."""
    chosen = names or PARTS
    found = list[Finding]()
    for name in chosen:
        if name in FINDINGS:
            finding, needed = FINDINGS[name]
            missing = _missing(needed)
            found.append(
                Finding(name, "", missing, "", "", "not shown", "") if missing else finding()
            )
    if found:
        print(table(found))
    for name in chosen:
        if name in TABLES:
            printed, needed = TABLES[name]
            print()
            if missing := _missing(needed):
                print(f"{name} is not shown: {missing}")
            else:
                printed()


def _missing(needed: Sequence[str]) -> str:
    """Return the required packages that are not installed."""
    missing = [package for package in needed if find_spec(package) is None]
    return f"{', '.join(missing)} is not installed (make torch-env)" if missing else ""
