"""What RL-Scope (paper 002) found, found again; and what recording costs and sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from benchmarks.scope import devices, inside

# By name, what prints a table, and the packages that it needs.
PARTS: Final[Mapping[str, tuple[Callable[[], None], Sequence[str]]]] = {
    "devices": (devices.main, ()),
    "inside": (inside.main, ("torch", "stable_baselines3")),
}


def main(names: Sequence[str]) -> None:
    """Print the tables of some parts, or of all; of what cannot be, why."""
    for name in names or PARTS:
        part, needed = PARTS[name]
        missing = [package for package in needed if find_spec(package) is None]
        if missing:
            print(f"{name} is not shown: {', '.join(missing)} is not installed (make torch-env).\n")
            continue
        part()
        print()
